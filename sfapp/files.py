"""Open regular files only, and write files atomically: readers see the old file or the new one, never a part
of it."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path
from typing import BinaryIO, Literal, cast

from sfapp.errors import TemporaryFolderError

_FURTHEST = 2**62

PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE})
"""Errors that say nothing of the file: the process has used what it may, or the disk does not answer, for a
moment."""

_TEMPORARY = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.tmp", re.DOTALL)
_LEFT_SECONDS = 86_400.0
"""Age from which a temporary file has no writer: other machines may write to the same folder, so that process
ids say nothing."""

_LONGEST_NAME_KEPT = 50
"""Maximum number of characters of the target's name in the temporary name: file systems allow 255 bytes, and
a character has up to four."""


def open_regular(
    path: str | Path,
    mode: Literal["rb", "r+b", "wb", "xb", "ab", "ab+"] = "rb",
    *,
    permissions: int = 0o666,
    follow_links: bool = True,
) -> BufferedRandom:
    """Open a regular file, or a link to one, in a binary mode.

    Opening a named pipe could block forever, and opening a device can have side effects.

    Args:
        permissions: of a new file, minus the process's umask. follow_links: whether the path may be a link.

    Raises:
        OSError: it cannot be opened, or is no regular file (``EINVAL``).
    """

    def opener(name: str, flags: int) -> int:
        nofollow = 0 if follow_links else os.O_NOFOLLOW
        descriptor = os.open(name, flags | nofollow | os.O_NONBLOCK | os.O_CLOEXEC, permissions)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            os.set_blocking(descriptor, True)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    return cast(BufferedRandom, open(path, mode, opener=opener))


def system_error(error: BaseException | None) -> OSError | None:
    """Return the system's error that is, or caused, an error; None if there is none."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error


def may_pass(error: BaseException) -> bool:
    """Return whether the cause of an error is one of ``PASSING``."""
    cause = system_error(error)
    return cause is not None and cause.errno in PASSING


class OwnDescriptor:
    """Descriptor of an open file, and what tells that file from others.

    A program that becomes a daemon closes all of its descriptors; files that it opens later have their
    numbers.

    Attributes:
        number: the descriptor; -1 once ``close`` was called.
    """

    __slots__ = ("_identity", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._identity = _identity(number)

    def is_open(self) -> bool:
        """Return whether it still is this file's."""
        return _identity(self.number) == self._identity

    def close(self) -> None:
        """Close it, if it still is this file's."""
        if self.is_open():
            with suppress(OSError):
                os.close(self.number)
        self.number = -1


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def check_regular(path: str | Path) -> None:
    """Check a path before a library opens it by name.

    Raises:
        OSError: as ``open_regular``.
    """
    with open_regular(path):
        pass


def read_regular(path: str | Path, most: int, *, follow_links: bool = True) -> bytes:
    """Return the content of a regular file of bounded size.

    Raises:
        OSError: as ``open_regular``, or the file is larger (``EFBIG``).
    """
    with open_regular(path, follow_links=follow_links) as file:
        is_larger = os.fstat(file.fileno()).st_size > most
        content = b"" if is_larger else file.read(most + 1)
    if is_larger or len(content) > most:  # It may grow meanwhile.
        raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))
    return content


def subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, and links to such; none if it is no folder or cannot be read.

    What cannot be looked at is left out. ``Path.glob`` ends at a link that cannot be followed, or raises.
    """
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # Such as a link into a folder of another user.
                if entry.is_dir():
                    found.append(Path(entry.path))
    return found


def temporary_directory(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """Make a folder of temporary files, which no other user can read.

    Raises:
        TemporaryFolderError: there is no room or place for it.
    """
    try:
        return tempfile.TemporaryDirectory(prefix=prefix)
    except OSError as error:
        raise TemporaryFolderError(
            f"no temporary folder can be made ({error.strerror}): set TMPDIR to a folder with room"
        ) from error


def user_state_folder() -> Path:
    """Return the folder in which programs keep state of this user.

    Raises:
        FileNotFoundError: the user has no home directory.
    """
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if state.startswith("~"):  # That would be a folder of this name in the current one.
        raise FileNotFoundError(errno.ENOENT, "the user has no home directory", state)
    return Path(state)


def modified_ns(status: os.stat_result) -> int:
    """Return a file's modification time, ns since 1970, limited to the years 1823 to 2116.

    The owner of a file can set any time, even one that fits neither a column of a database nor ``datetime``.
    """
    return bounded(status.st_mtime_ns)


def bounded(value: int) -> int:
    """Return a size or time that others claim, limited to ±2^62, so that it fits a column of a database."""
    return max(-_FURTHEST, min(value, _FURTHEST))


class PathTakenError(FileExistsError):
    """There is a file that must not be replaced; other than where a folder cannot be made."""


@contextmanager
def atomic_writer(
    path: Path, *, mode: int = 0o666, sync: bool = True, replaces: bool = True
) -> Iterator[BinaryIO]:
    """Open a temporary file next to ``path`` that replaces it when the block ends without an exception.

    The temporary file has a name that begins with a dot and is removed when the block raises.

    Args:
        mode: permissions of a new file, minus the process's umask.
        sync: flush the content to disk before the rename, so that a power failure leaves no empty file.
        replaces: whether a file that is at ``path`` by then is replaced.

    Raises:
        PathTakenError: there is a file that must not be replaced.
        OSError: the file cannot be written.
    """
    name = f".{path.name[:_LONGEST_NAME_KEPT]}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    temporary = path.with_name(name)
    try:
        with open(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if replaces or not _linked(temporary, path):
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _linked(temporary: Path, path: Path) -> bool:
    """Give a file a second name; return False where the file system has no links and nothing has that name.

    Between a look and a rename, another process could write a file there, which the rename would replace.

    Raises:
        PathTakenError: something is there.
    """
    try:
        os.link(temporary, path)
    except OSError:
        if path.exists():
            raise PathTakenError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        return False  # A link to nothing may have that name.
    return True


def write_atomic(
    path: Path,
    content: bytes,
    *,
    mode: int = 0o666,
    sync: bool = True,
    replaces: bool = True,
) -> int:
    """Replace the content of ``path``, making its folder, and return the number of bytes written.

    Args:
        mode, sync, replaces: as of ``atomic_writer``.

    Raises:
        OSError: as ``atomic_writer``.
    """
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_writer(path, mode=mode, sync=sync, replaces=replaces) as file:
        return file.write(content)


def append_lines(file: int, lines: bytes, *, sync: bool = True) -> None:
    """Append complete lines to a file, all or none, and after an incomplete one of a process that was killed.

    Args:
        file: descriptor of a file that is open for appending, and locked where several processes append.
        sync: flush them to disk.

    Raises:
        OSError: they cannot be written.
    """
    if not lines:
        return
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        lines = b"\n" + lines
    try:
        left = memoryview(lines)
        while left:
            left = left[os.write(file, left) :]
        if sync:
            os.fsync(file)
    except OSError:
        os.ftruncate(file, size)  # A full disk leaves no incomplete line, and a failed flush no line.
        raise


@contextmanager
def output_writer(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Open what a user named for output: a file is replaced as a whole, and a device or a pipe is written to.

    A user who may write to ``/dev``, as root in a container, would replace ``/dev/null`` by a file for all
    programs, or the link ``/dev/stdout``.

    Args:
        sync: as of ``atomic_writer``.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and (not path.is_file() or path.absolute().parent == Path("/dev")):
        with open(path, "wb") as file:
            yield file
    else:
        with atomic_writer(path, sync=sync) as file:
            yield file


def lock_file(file: int, seconds: float, pause: float = 0.005) -> None:
    """Lock an open file against other processes until it is closed.

    Args:
        seconds: longest wait for a process that holds the lock. pause: seconds between two attempts.

    Raises:
        BlockingIOError: another process kept it locked.
        OSError: its file system has no locks.
    """
    import fcntl  # Windows lacks it.

    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(pause)


def remove_leftovers(root: Path) -> int:
    """Remove temporary files below a folder that killed writers left a day ago or earlier; return how many.

    Links are not followed, and what cannot be removed stays.
    """
    before = time.time() - _LEFT_SECONDS
    removed = 0
    for folder, _, names in os.walk(root):
        for path in (os.path.join(folder, name) for name in names if _TEMPORARY.fullmatch(name)):
            with suppress(OSError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                    os.unlink(path)
                    removed += 1
    return removed


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a new file in it survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
