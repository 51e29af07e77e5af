"""Packets on this disk that wait to be put into a bucket.

Each process has a folder of its own, which it keeps locked and which outlives it: a packet folder in which
files are written as in any other. A file is *claimed* before it is uploaded, that is renamed, so that nothing
writes to it any more. A later process takes over what is left in the folders of ended ones.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

from sfapp.files import may_pass, open_regular, remove_leftovers, user_state_folder
from sfapp.packets.paths import SUFFIX

SPOOL_VARIABLE = "SFAPP_SPOOL"
"""Environment variable with the folder of all spools."""

_LOCK = ".lock"
_LEDGER = ".uploaded"
"""File next to a run's packets with the names of those that were claimed, one a line."""

_CLAIMED = ".uploading"
_LONGEST_LABEL = 80
_RESTART_SECONDS = 90.0
"""Seconds for which the files of an ended process are left to its successor."""

_MOST_LEDGER_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """File to upload.

    Attributes:
        name: its name in the bucket, below the run's prefix.
    """

    path: Path
    name: str
    size: int
    mtime_ns: int

    @property
    def is_claimed(self) -> bool:
        return self.path.name.endswith(_CLAIMED)

    @property
    def run(self) -> str:
        """Name of the run's folder."""
        return self.path.parent.name


class Spool:
    """Folder of one process. Safe to use from several threads, except that one of them claims.

    Attributes:
        folder: the packet folder.
    """

    def __init__(self, folder: Path, lock: BinaryIO) -> None:
        """Use a folder that is locked by an open file."""
        self.folder = folder
        self._lock = lock
        self._claimed: dict[str, set[str]] = {}
        self._loading = threading.Lock()

    @classmethod
    def open(cls, target: str, owner: str) -> Spool:
        """Return a folder that no other process uses, preferably that of an earlier process.

        Args:
            target: address of the bucket and prefix, without credentials.
            owner: kind of process, which begins the folder's name.

        Raises:
            OSError: no folder can be made or locked.
        """
        try:
            return cls._open_below(spools_folder() / _label(target), owner)
        except OSError:
            if os.environ.get(SPOOL_VARIABLE):
                raise
            # The home directory may be read-only, or on a file system without locks.
            return cls._open_below(Path(tempfile.mkdtemp(prefix="sfapp-spool-")), owner)

    @classmethod
    def _open_below(cls, parent: Path, owner: str) -> Spool:
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in count():
            folder = parent / f"{owner}-{number}"
            try:
                lock = _locked(folder)
            except OSError:
                if _is_foreign(folder):
                    continue
                raise
            if lock is not None:
                remove_leftovers(folder)
                return cls(folder, lock)
        raise AssertionError("count() has no end")

    def close(self) -> None:
        """Let later processes use the folder."""
        self._lock.close()

    def waiting(self) -> list[WaitingFile]:
        """Return the files to upload: claimed ones, then the others by age."""
        found: list[WaitingFile] = []
        for run in self._runs():
            with suppress(OSError), os.scandir(run) as entries:
                for entry in entries:
                    name = _name_in_bucket(entry.name)
                    if name:
                        with suppress(FileNotFoundError):  # A part may be removed meanwhile.
                            status = entry.stat(follow_symlinks=False)
                            if not stat.S_ISREG(status.st_mode):  # Reading a pipe would never end.
                                continue
                            size, mtime_ns = status.st_size, status.st_mtime_ns
                            found.append(WaitingFile(Path(entry.path), name, size, mtime_ns))
        return sorted(found, key=lambda file: (not file.is_claimed, file.mtime_ns, file.name))

    def claim(self, file: WaitingFile) -> Path:
        """Rename a file so that only its upload uses it, and return its path.

        Raises:
            FileNotFoundError: it has been removed.
            FileExistsError: another file of its name is claimed, which comes first.
            OSError: it cannot be renamed.
        """
        if file.is_claimed:
            return file.path
        names = self._names(file.run)
        if names is None or file.name not in names:
            if names is not None:
                names.add(file.name)
            with suppress(OSError):  # A full disk must not keep the upload from making room.
                _append(file.path.with_name(_LEDGER), file.name)
        claimed = file.path.with_name(f".{file.name}{_CLAIMED}")
        if claimed.exists():  # Taken over from another process of the run, and not uploaded yet.
            raise FileExistsError(errno.EEXIST, "another packet of this name waits", str(claimed))
        file.path.rename(claimed)
        return claimed

    def has_claimed(self, path: Path) -> bool:
        """Return whether a file of this path was claimed at any time, or may have been: what is written as if
        it was replaces nothing."""
        names = self._names(path.parent.name)
        return names is None or path.name in names

    def claim_all(self) -> None:
        """Claim every file, because the process that wrote it has ended."""
        for file in self.waiting():
            with suppress(OSError):
                self.claim(file)

    def adopt(self) -> None:
        """Take what processes that ended some time ago left; one that starts again takes its own folder.

        Raises:
            OSError: the folders cannot be listed.
        """
        os.utime(self._lock.fileno())
        for folder in self._siblings():
            if folder == self.folder or _awaits_successor(folder):
                continue
            with suppress(OSError):  # One that cannot be read must not keep the others waiting.
                lock = _locked(folder)
                if lock is not None:
                    with lock:
                        self._move_from(Spool(folder, lock))

    def _move_from(self, other: Spool) -> None:
        for file in other.waiting():
            with suppress(OSError):
                claimed = other.claim(file)
                target = self.folder / file.run / claimed.name
                target.parent.mkdir(exist_ok=True)
                if not target.exists():
                    claimed.rename(target)

    def names_of(self, run: str) -> Iterator[tuple[str, float]]:
        """Yield the packets of a run that any process on this disk has written: each name, and the time in
        seconds since the epoch at which it existed at the latest."""
        for folder in self._siblings():
            with suppress(OSError), os.scandir(folder / run) as entries:
                for entry in entries:
                    try:
                        modified = entry.stat(follow_symlinks=False).st_mtime
                    except OSError:  # It was just removed.
                        continue
                    name = _name_in_bucket(entry.name)
                    if name:
                        yield name, modified
                    elif entry.name == _LEDGER:
                        yield from ((each, modified) for each in _names_in(Path(entry.path)))

    def _names(self, run: str) -> set[str] | None:
        """Return the names that were claimed; None if they cannot be read for a moment."""
        with self._loading:
            if run not in self._claimed:
                try:
                    self._claimed[run] = _read_names(self.folder / run / _LEDGER)
                except OSError as error:
                    if may_pass(error):
                        return None
                    self._claimed[run] = set()
            return self._claimed[run]

    def _runs(self) -> list[Path]:
        return [folder for folder in _folders_in(self.folder) if _is_key(folder.name)]

    def _siblings(self) -> list[Path]:
        return _folders_in(self.folder.parent)


def spools_folder() -> Path:
    """Return the folder of all spools, whose path stays the same when the program goes to another folder.

    Raises:
        OSError: the user has no home directory, or the current folder was removed.
    """
    chosen = os.environ.get(SPOOL_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    return (user_state_folder() / "sfapp" / "spool").absolute()


def _label(target: str) -> str:
    """Return a folder name for an address, different for different addresses."""
    digest = hashlib.sha256(target.encode()).hexdigest()[:16]
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', target)[:_LONGEST_LABEL]}-{digest}"


def _locked(folder: Path) -> BinaryIO | None:
    """Return an open file that locks a folder; None if another process has it."""
    folder.mkdir(exist_ok=True, mode=0o700)
    lock = open_regular(folder / _LOCK, "ab", permissions=0o600, follow_links=False)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    except OSError:
        lock.close()
        raise
    return lock


def _is_foreign(folder: Path) -> bool:
    """Return whether something else is where a folder or its lock would be."""
    lock = folder / _LOCK
    return not folder.is_dir() or (os.path.lexists(lock) and (lock.is_symlink() or not lock.is_file()))


def _folders_in(parent: Path) -> list[Path]:
    """Return the folders in a folder; none if it was removed, as it is made again for the next packet."""
    found = []
    with suppress(FileNotFoundError), os.scandir(parent) as entries:
        for entry in entries:
            with suppress(OSError):  # a link to itself
                if entry.is_dir():
                    found.append(Path(entry.path))
    return found


def _awaits_successor(folder: Path) -> bool:
    """Return whether a folder's process showed a short time ago that it runs, or never did."""
    try:
        age = time.time() - (folder / _LOCK).stat().st_mtime
    except OSError:  # It is just being made, or is not a spool.
        return True
    return abs(age) < _RESTART_SECONDS  # One from the future: the clock was set back since.


def _name_in_bucket(name: str) -> str:
    """Return the name that a file of a run's folder gets in the bucket; empty if it is not uploaded."""
    if name.startswith("."):
        name = name[1:].removesuffix(_CLAIMED) if name.endswith(_CLAIMED) else ""
    return name if name.endswith(SUFFIX) and _is_key(name) else ""


def _is_key(name: str) -> bool:
    """Return whether a name can be a part of an object's key. Of the others, no packet has one."""
    return name[0] != "." and name.isprintable()


def _append(ledger: Path, name: str) -> None:
    with open_regular(ledger, "ab", follow_links=False) as file:
        file.write(f"\n{name}".encode())  # First the break: a power failure may have cut the last line off.
        file.flush()
        os.fsync(file.fileno())


def _names_in(ledger: Path) -> set[str]:
    """Return the names in a ledger; none if it cannot be read."""
    try:
        return _read_names(ledger)
    except OSError:
        return set()


def _read_names(ledger: Path) -> set[str]:
    with open_regular(ledger, follow_links=False) as file:
        return set(file.read(_MOST_LEDGER_BYTES).decode(errors="replace").split("\n"))
