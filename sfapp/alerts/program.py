"""Run a program that delivers one message, bounded in time and in what is kept of its errors."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from sfapp.errors import DeliveryError
from sfapp.terminal import first_line

_MAX_ERRORS = 4096
_PART_BYTES = 64 << 10

_LAST_BYTES_SECONDS = 1.0
"""Time for which the last errors of a program that has ended are awaited: one that it has left behind may
keep the pipe open."""


def run_program(name: str, arguments: Sequence[str], content: bytes, seconds: float) -> tuple[int, str]:
    """Run a program with this content on its standard input; return its exit code and the first line of its
    standard error.

    Raises:
        DeliveryError: it cannot be run, or did not end in time and was killed.
    """
    # No file on a disk: it could be full, or be filled by the program.
    with _first_bytes(name) as (errors, kept):
        try:
            child = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise DeliveryError(f"{name} cannot be run: {error.strerror}") from error
        try:
            child.communicate(content, timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(child)
            raise DeliveryError(f"{name} did not end within {seconds:g} s") from None
    return child.returncode, first_line(kept.decode(errors="replace"), 200)


@contextmanager
def _first_bytes(name: str) -> Iterator[tuple[int, bytearray]]:
    """Provide the end of a pipe to write to, and what is kept of that, which is complete after the block.

    Raises:
        DeliveryError: the system has no pipe or thread left.
    """
    kept = bytearray()
    try:
        read_end, write_end = os.pipe()
    except OSError as error:
        raise DeliveryError(f"{name} cannot be run: {error.strerror}") from error

    def read() -> None:
        try:
            while part := os.read(read_end, _PART_BYTES):
                kept.extend(part[: _MAX_ERRORS - len(kept)])
        finally:
            os.close(read_end)

    reader = threading.Thread(target=read, name="sfapp-alert-errors", daemon=True)
    try:
        try:
            reader.start()
        except RuntimeError as error:
            os.close(read_end)
            raise DeliveryError(f"{name} cannot be run: {error}") from error
        yield write_end, kept
    finally:
        os.close(write_end)
    reader.join(_LAST_BYTES_SECONDS)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a process and those that it has started, as far as this user may, and do not wait for others."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_LAST_BYTES_SECONDS)
