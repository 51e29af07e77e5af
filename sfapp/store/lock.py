"""One process a store: a lock file beside it that says whose it is.

DuckDB lets one process write, and names only a PID when it refuses. An advisory lock of our own gives the
command line too, and refuses a second opening inside the same process, which DuckDB would let through. The
kernel drops the lock with the process, however it dies: nothing is ever left behind to be cleared by hand.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import socket
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from sfapp.errors import StoreBusyError
from sfapp.terminal import printable

_LONGEST_COMMAND = 200
_PID_IN_DUCKDB_ERROR = re.compile(r"\(PID (\d+)\)")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a store."""

    pid: int
    host: str
    command: str
    since: str

    @classmethod
    def myself(cls) -> Holder:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), shlex.join(sys.orig_argv), now)

    def describe(self) -> str:
        """In words, on one line whatever the command holds."""
        elsewhere = f" on host {self.host}" if self.host != socket.gethostname() else ""
        whose = "this very process" if self.is_me else f"process {self.pid}{elsewhere}"
        return f"{whose} ({printable(self.command, _LONGEST_COMMAND)}), since {self.since}"

    @property
    def is_me(self) -> bool:
        return self.pid == os.getpid() and self.host == socket.gethostname()


class StoreLock:
    """An exclusive advisory lock on ``<store>.lock``, held until ``release``."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    @classmethod
    def acquire(cls, store: Path) -> StoreLock:
        """Take the lock and write down whose it is.

        Raises:
            StoreBusyError: it is held; the message names the process.
            OSError: the lock file cannot be made, or the file system knows no locks.
        """
        file = lock_path(store).open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = _parse(file.read())
            file.close()
            raise StoreBusyError(_busy(store, holder.describe() if holder else "another process")) from None
        except OSError:
            file.close()
            raise
        file.truncate(0)
        file.write(msgspec.json.encode(Holder.myself()))
        file.flush()
        return cls(file)

    def release(self) -> None:
        """Give the lock up. The file stays: removing it would race with who takes it next."""
        self._file.truncate(0)
        self._file.close()


def lock_path(store: Path) -> Path:
    return store.with_name(store.name + ".lock")


def busy_from_duckdb(store: Path, message: str) -> StoreBusyError | None:
    """What to raise where DuckDB finds its own lock taken, say by a DuckDB shell; None for other errors."""
    if "Could not set lock" not in message:
        return None
    found = _PID_IN_DUCKDB_ERROR.search(message)
    if found is None:
        return StoreBusyError(_busy(store, "another process"))
    pid = int(found[1])
    command = _command_of(pid)
    return StoreBusyError(_busy(store, f"process {pid}" + (f" ({command})" if command else "")))


def _busy(store: Path, who: str) -> str:
    return (
        f"the store {store} is in use by {who}. "
        "Use that one, stop it, or give this one a store of its own with --db FILE"
    )


def _command_of(pid: int) -> str:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return printable(shlex.join(raw.decode(errors="replace").rstrip("\0").split("\0")), _LONGEST_COMMAND)


def _parse(raw: bytes) -> Holder | None:
    try:
        return msgspec.json.decode(raw, type=Holder)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # it has the lock but has not signed yet
