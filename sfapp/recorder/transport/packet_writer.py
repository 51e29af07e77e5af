"""Write packets on the calling thread or, if worthwhile, in a separate process."""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sfapp.errors import describe_error

if TYPE_CHECKING:
    from sfapp.packets import WindowDraft
    from sfapp.packets.writer_process import WriterProcess

_WORTH_A_PROCESS = 1e-3
"""Maximum share of the training time for writing in this process, where it competes for the interpreter."""

_FIRST_WINDOWS = 8
"""Number of windows that are always written in this process: a short job needs no other process."""

_SHORTEST_TIMEOUT = 1.0
"""Minimum time limit in seconds for the other process to write a packet."""


class PacketWriter:
    """Writer of a recorder's packets.

    Args:
        failures: receives failures that do not lose a window.
    """

    def __init__(self, failures: deque[str]) -> None:
        self._failures = failures
        self._writer_process: WriterProcess | None = None
        self._may_start = True
        self._windows = self._spent_ns = self._trained_ns = 0

    def write_here(self, draft: WindowDraft, path: Path) -> Exception | None:
        """Write a window on this thread; return the error, or None.

        Parts are always written here: every rank of a node may have one.
        """
        error = _written(draft, path)
        return _written(draft, path) if _was_closed_by_others(error) else error

    def write(self, packets: Sequence[tuple[WindowDraft, Path]]) -> list[Exception | None]:
        """Write windows; return the error of each, or None."""
        refusals = self._write_elsewhere(packets)
        if refusals is not None:
            return refusals
        begin = time.perf_counter_ns()
        written = [self.write_here(draft, path) for draft, path in packets]
        self._windows += len(packets)
        self._spent_ns += time.perf_counter_ns() - begin
        self._trained_ns += sum(draft.manifest.overhead.train_ns for draft, _ in packets)
        if self._may_start and self._windows >= _FIRST_WINDOWS:
            self._start_if_worth_it()
        return written

    def close(self) -> None:
        """End the other process, if there is one."""
        if self._writer_process is not None:
            self._writer_process.close()

    def _start_if_worth_it(self) -> None:
        if self._spent_ns <= _WORTH_A_PROCESS * self._trained_ns:
            return
        from sfapp.packets.writer_process import WriterProcess

        self._may_start = False  # Only one attempt: if it cannot be started or ends, this process writes.
        try:
            self._writer_process = WriterProcess()
        except (OSError, ValueError) as error:  # ValueError: the system cannot pass a socket on.
            self._failures.append(f"packets are written on the recorder's thread: {describe_error(error)}")

    def _write_elsewhere(self, packets: Sequence[tuple[WindowDraft, Path]]) -> list[Exception | None] | None:
        """Write windows in the other process; return None if there is none, or it is not ready."""
        from sfapp.packets.writer_process import WriterProcessEnded

        writer_process = self._writer_process
        if writer_process is None:
            return None
        # Half of their training time, so that no later window waits long.
        trained_ns = sum(draft.manifest.overhead.train_ns for draft, _ in packets)
        try:
            return [*writer_process.write(packets, max(_SHORTEST_TIMEOUT, trained_ns / 2e9))]
        except WriterProcessEnded as gone:
            if gone.for_good:
                self._writer_process = None
                self._failures.append(
                    f"the process that writes packets {gone}: the recorder's thread writes them again"
                )
                writer_process.close()
            return None


def _written(draft: WindowDraft, path: Path) -> Exception | None:
    """Write a window and return the error, or None."""
    from sfapp.packets import write_packet

    try:
        write_packet(draft, path, replaces=False)  # Another job of the run may have written it meanwhile.
    except Exception as error:  # fail-open: the caller reports it
        return error
    return None


def _was_closed_by_others(error: Exception | None) -> bool:
    """Return whether the file was closed while it was written: a script that becomes a daemon closes all."""
    cause = None if error is None else error.__cause__
    return isinstance(cause, OSError) and cause.errno == errno.EBADF
