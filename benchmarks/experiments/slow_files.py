"""A file system in user space with one file, each read of which takes a while: slow_files.py FOLDER.

It speaks the kernel's FUSE protocol itself (version 7), since no library for it need be installed. It needs
the right to mount; the process serves until it is terminated.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHARD = "shard.bin"
RECORD = 4096
RECORD_SECONDS = 0.010
"""Mean time of one read; it varies by half of it."""

_SIZE = 1 << 30
_ROOT, _FILE = 1, 2
_LOOKUP, _DROP, _GETATTR, _OPEN, _READ, _INIT, _OPENDIR = 1, 2, 3, 14, 15, 26, 27
_NO_REPLY = (_DROP, 36, 42)
"""Requests without a reply: FUSE_FORGET, interrupt, FUSE_BATCH_FORGET."""

_EMPTY_REPLY = (18, 25, 29, 34, 38)
"""Requests with an empty reply: release, flush, release of a folder, access, destroy."""

_HEADER = struct.Struct("<IIQQIIII")
_DIRECT_IO = 1
_DETACH = 2


def mount_refusal() -> str:
    """Return why a file system in user space cannot be mounted here; empty if it can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse"
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.close(_mount(Path(folder)))
        except OSError as error:
            return f"a file system cannot be mounted: {error.strerror}"
        unmount(Path(folder))
    return ""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(folder: Path) -> int:
    """Mount an empty connection on a folder, and return its descriptor.

    Raises:
        OSError: it is not allowed.
    """
    descriptor = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={descriptor},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if _libc().mount(b"slow", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
        os.close(descriptor)
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor


def unmount(folder: Path) -> None:
    """Unmount the file system of a folder, at once for new users."""
    _libc().umount2(os.fsencode(folder), _DETACH)


class SlowFiles:
    """A mounted file system, served by a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.experiments.slow_files", str(folder)]
        )
        until = time.monotonic() + 30.0
        while not self.path.exists():
            if time.monotonic() > until or self._process.poll() is not None:
                raise OSError(f"nothing is mounted on {folder}")
            time.sleep(0.05)

    @property
    def path(self) -> Path:
        """Its file."""
        return self.folder / SHARD

    def close(self) -> None:
        """Unmount it and end its process."""
        unmount(self.folder)
        self._process.terminate()
        self._process.wait()


def _attributes(node: int) -> bytes:
    is_file = node == _FILE
    mode = (stat.S_IFREG | 0o444) if is_file else (stat.S_IFDIR | 0o555)
    size = _SIZE if is_file else 0
    return struct.pack(
        "<QQQQQQIIIIIIIIII", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, RECORD, 0
    )


def _reply(opcode: int, node: int, body: bytes) -> bytes | int:
    """Return the reply to a request, or the number of an error."""
    if opcode == _INIT:
        flags = 0
        return struct.pack("<IIIIHHIIHHII6I", 7, 31, 0, flags, 4, 3, RECORD, 1, 1, 0, 0, 0, *[0] * 6)
    if opcode == _LOOKUP:
        if node != _ROOT or body.split(b"\0")[0] != SHARD.encode():
            return errno.ENOENT
        return struct.pack("<QQQQII", _FILE, 0, 3600, 3600, 0, 0) + _attributes(_FILE)
    if opcode == _GETATTR:
        return struct.pack("<QII", 3600, 0, 0) + _attributes(node)
    if opcode in (_OPEN, _OPENDIR):
        return struct.pack("<QII", 1, _DIRECT_IO if opcode == _OPEN else 0, 0)
    if opcode == _READ:
        (size,) = struct.unpack_from("<I", body, 16)
        time.sleep(RECORD_SECONDS * random.uniform(0.5, 1.5))
        return bytes(size)
    return b"" if opcode in _EMPTY_REPLY else errno.ENOSYS


def serve(folder: Path) -> None:
    """Mount the file system and serve it until it is unmounted."""
    descriptor = _mount(folder)
    while True:
        try:
            request = os.read(descriptor, 1 << 17)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                continue
            return
        _, opcode, unique, node, *_ = _HEADER.unpack_from(request)
        if opcode in _NO_REPLY:
            continue
        found = _reply(opcode, node, request[_HEADER.size :])
        body, error_number = (b"", -found) if isinstance(found, int) else (found, 0)
        os.write(descriptor, struct.pack("<IiQ", 16 + len(body), error_number, unique) + body)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Path(sys.argv[1]))
