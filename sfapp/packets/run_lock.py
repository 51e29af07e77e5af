"""Let one process at a time replace packets of a run, if several aggregators or imports write to its folder.

Two aggregators do for a while if another one is started before the first has ended, and each would replace
what the other has written since it looked. So would imports of two sources whose runs have one name.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sfapp.files import lock_file, open_regular

NAME = ".stream.lock"

_WAIT_S = 0.5
"""Longest wait: the other process holds the lock while it writes one packet."""

_MOST_REMEMBERED = 10_000
"""Largest number of folders whose lock another process kept."""


class RunLocks:
    """Locks of the folders of runs, as one process takes them."""

    def __init__(self) -> None:
        self._kept: set[Path] = set()

    @contextmanager
    def locked(self, folder: Path) -> Iterator[None]:
        """Lock the folder of a run within the block, making it if necessary.

        Where that is not possible, as on some network file systems or beside another user's lock, the block
        runs without one. A lock that another process kept is not waited for again until it is free: all
        runs of an aggregator would wait with it.

        Raises:
            OSError: another process keeps it locked.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Not readable by others: a process that can open the file could keep it locked.
            file = open_regular(folder / NAME, "ab", permissions=0o600, follow_links=False)
        except OSError:  # Nothing can be written there either, which is reported then.
            yield
            return
        with file:
            if not _is_of_others(file):
                self._wait_for(file, folder)
            yield

    def _wait_for(self, file: BinaryIO, folder: Path) -> None:
        """Lock an open file, if its file system has locks.

        Raises:
            OSError: another process keeps it locked.
        """
        try:
            lock_file(file.fileno(), 0.0 if folder in self._kept else _WAIT_S)
        except BlockingIOError:
            if len(self._kept) >= _MOST_REMEMBERED:
                self._kept.clear()
            self._kept.add(folder)
            reason = f"another process has locked the run for longer than {_WAIT_S:g} s"
            raise OSError(errno.EAGAIN, reason, os.fspath(folder / NAME)) from None
        except (ImportError, OSError):  # Windows, or a file system without locks.
            return
        self._kept.discard(folder)


def _is_of_others(file: BinaryIO) -> bool:
    """Return whether another user has made the lock, and lets others open it: who may write to the folder
    could so keep the run from being written. On NFS a file that root makes is another user's, too."""
    status = os.fstat(file.fileno())
    return os.name == "posix" and status.st_uid != os.geteuid() and bool(status.st_mode & 0o077)
