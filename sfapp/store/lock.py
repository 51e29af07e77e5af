"""Lock a store for one process, with a file next to it that names the process.

DuckDB allows one process to write, and its error names only a process id. This lock adds the command line and
also refuses a second opening inside the same process, which DuckDB would allow. The kernel releases it when
the process ends, even by ``kill -9``, so nothing has to be removed manually.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from sfapp.errors import StoreBusyError
from sfapp.files import open_regular, read_regular
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.storage import HIDDEN, redacted
from sfapp.terminal import encodable, printable

_LONGEST_COMMAND = 200
_MAX_HOLDER_BYTES = 2**22  # Linux allows a command line of 2 MiB.
_SECRET_OPTIONS = ("--token", "--storage-option")
_PID_IN_DUCKDB_ERROR = re.compile(r"\(PID (\d+)\)")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Process that holds a store, as named in the lock file."""

    pid: int
    host: str
    command: str
    since: str

    @classmethod
    def this_process(cls) -> LockHolder:
        """Return the holder entry of this process for lock files."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        command = encodable(shlex.join(without_secrets(sys.orig_argv)))
        return cls(os.getpid(), socket.gethostname(), command, now)

    def describe(self) -> str:
        """Return one line for an error message, whatever the command line contains."""
        host = socket.gethostname()
        elsewhere = f" on host {self.host}" if self.host != host else ""
        is_this = (self.pid, self.host) == (os.getpid(), host)
        process = "this very process" if is_this else f"process {self.pid}{elsewhere}"
        return f"{process} ({printable(self.command, _LONGEST_COMMAND)}), since {self.since}"


class StoreLock:
    """Exclusive advisory lock on ``<store>.lock``, held until ``release``."""

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    @classmethod
    def acquire(cls, store: Path, dataset: Path | None = None) -> StoreLock:
        """Take the lock and write the holder into the file.

        Args:
            dataset: the dataset that it protects, if it is no store.

        Raises:
            StoreBusyError: another opening holds it; the message names the process.
            OSError: the lock file cannot be created, or the file system has no locks.
        """
        path = lock_path(store)
        # The holder is written into it, so it must be no link to another file.
        if os.path.lexists(path):
            with open_regular(path, follow_links=False):
                pass
        # A lock without flock would outlive a killed process, so there is no fallback. The file stays after
        # the release: removing it would race with the next process that takes the lock.
        lock = FileLock(
            path,
            blocking=False,
            thread_local=False,
            fallback_to_soft=False,
            preserve_lock_file=True,
            on_acquired=_write_holder,
        )
        try:
            lock.acquire()
        except Timeout:
            holder = _read_holder(path)
            named = holder.describe() if holder else "another process"
            if dataset is not None:
                raise StoreBusyError(
                    f"the dataset {dataset} is in use by {named}. Wait until it has ended, or stop it"
                ) from None
            raise StoreBusyError(_busy(store, named)) from None
        return cls(lock)

    def release(self) -> None:
        """Clear the holder and release the lock."""
        with (
            suppress(OSError),  # The file may have been removed by hand.
            open_regular(self._lock.lock_file, "r+b", follow_links=False) as file,
        ):
            file.truncate(0)
        self._lock.release()


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments without the token of ``sfapp serve``, storage options and credentials in
    addresses: those who can read the packets can read the lock file, also on other machines and after the
    process has ended."""
    shown = [redacted(argument) for argument in arguments]
    for place, argument in enumerate(arguments):
        name = argument.partition("=")[0]
        if name not in _SECRET_OPTIONS:
            continue
        if name != argument:
            shown[place] = f"{name}={HIDDEN}"
        elif place + 1 < len(arguments):
            shown[place + 1] = HIDDEN
    return shown


def lock_path(store: Path) -> Path:
    """Return the path of a store's lock file."""
    return store.with_name(store.name + ".lock")


def busy_from_duckdb(store: Path, message: str) -> StoreBusyError | None:
    """Return the error if DuckDB's own lock is taken, for example by a DuckDB shell.

    Returns None for other messages of DuckDB.
    """
    if "Could not set lock" not in message:
        return None
    found = _PID_IN_DUCKDB_ERROR.search(message)
    if found is None:
        return StoreBusyError(_busy(store, "another process"))
    pid = int(found[1])
    command = _command_of(pid)
    return StoreBusyError(_busy(store, f"process {pid}" + (f" ({command})" if command else "")))


def _busy(store: Path, holder: str) -> str:
    return (
        f"the store {store} is in use by {holder}. "
        "Use that process, stop it, or use another store with --db FILE"
    )


def _command_of(pid: int) -> str:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    arguments = raw.decode(errors="replace").rstrip("\0").split("\0")
    return printable(shlex.join(without_secrets(arguments)), _LONGEST_COMMAND)


def _write_holder(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(LockHolder.this_process()), 0)


def _read_holder(path: Path) -> LockHolder | None:
    """Return the holder in a lock file; None in the moment before it is written."""
    try:
        return msgspec.json.decode(read_regular(path, _MAX_HOLDER_BYTES), type=LockHolder)
    except (OSError, *UNREADABLE_JSON):
        return None
