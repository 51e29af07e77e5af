"""Counters of the operating system in files that are opened once and read again and again.

They are the files of Linux below ``/proc`` and ``/sys/fs/cgroup``; elsewhere they do not exist.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath

from sfapp.files import OwnDescriptor

_MAX_BYTES = 4096

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")

MAX_GROUPS = 8
"""Maximum number of control groups whose throttling is read, from the process's own upwards."""

STATE, USER_TICKS, SYSTEM_TICKS, STARTED = 0, 11, 12, 19
"""Positions in ``process_fields``: state letter, CPU time, and start time in ticks since boot."""

Parser = Callable[[bytes], int]


class HostFile:
    """An open file with one counter."""

    def __init__(self, path: Path, parse: Parser) -> None:
        """Open a file and read it once.

        Raises:
            OSError: it cannot be read.
            ValueError: it does not have the counter.
        """
        self._file = OwnDescriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        self._parse = parse
        try:
            self.read()
        except (OSError, ValueError):
            self.close()
            raise

    @property
    def number(self) -> int:
        """The file's descriptor."""
        return self._file.number

    def read(self) -> int:
        """Return the counter.

        Raises:
            OSError, ValueError: as when it was opened.
        """
        try:
            return self._parse(os.pread(self._file.number, _MAX_BYTES, 0))
        except (IndexError, KeyError) as error:
            raise ValueError("the file lacks this counter") from error

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()


def pressure_ns(content: bytes) -> int:
    """Return the total of the line ``some`` of pressure stall information, in ns.

    Raises:
        ValueError, IndexError: it has none.
    """
    some = content.split(b"\n", 1)[0]
    if not some.startswith(b"some "):
        raise ValueError("no line of some stalled tasks")
    return int(some.rpartition(b"total=")[2]) * 1000


def throttled_ns(content: bytes) -> int:
    """Return the throttled time of a control group's ``cpu.stat``, in ns, of version 2 or 1.

    Raises:
        ValueError: the group has no quota, as the root group.
    """
    for line in content.split(b"\n"):
        name, _, value = line.partition(b" ")
        if name == b"throttled_usec":
            return int(value) * 1000
        if name == b"throttled_time":
            return int(value)
    raise ValueError("no quota of CPU time here")


def runnable_ns(content: bytes) -> int:
    """Return the time for which a task could run but had no core, from its ``schedstat``, in ns.

    Raises:
        ValueError, IndexError: it has no such field.
    """
    return int(content.split()[1])


def block_io_ns(content: bytes) -> int:
    """Return the time for which a task waited for block devices, from its ``stat``, in ns.

    Raises:
        ValueError, IndexError: it has no such field.
    """
    ticks = int(content.rpartition(b")")[2].split()[39])  # Field 42; the third one follows the name.
    return ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))


def pressure_file(resource: str) -> HostFile:
    """Open the pressure on ``cpu``, ``memory`` or ``io`` of this process's control group, else the machine's.

    Raises:
        OSError, ValueError: neither can be read.
    """
    group = next(control_groups("cpu"), None)
    if group is not None:
        with suppress(OSError, ValueError):
            return HostFile(group / f"{resource}.pressure", pressure_ns)
    return machine_pressure_file(resource)


def machine_pressure_file(resource: str) -> HostFile:
    """Open the machine's pressure on ``cpu``, ``memory`` or ``io``.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    return HostFile(_PROC / "pressure" / resource, pressure_ns)


def throttling_files() -> list[HostFile]:
    """Open the throttled times of this process's control group and the groups around it.

    Raises:
        OSError: none can be read.
    """
    found = []
    for folder in islice(control_groups("cpu"), MAX_GROUPS):
        try:
            found.append(HostFile(folder / "cpu.stat", throttled_ns))
        except (OSError, ValueError):
            continue
    if not found:
        raise OSError("no control group with a quota of CPU time")
    return found


def task_file(task: int, name: str) -> Path:
    """Return the path of a file of a thread of this process, by the thread's native id."""
    return _PROC / "self" / "task" / str(task) / name


def accounts_delays() -> bool:
    """Return whether the kernel accounts delays; kernels without the switch do if they can."""
    try:
        return (_PROC / "sys/kernel/task_delayacct").read_text(encoding="ascii").strip() != "0"
    except FileNotFoundError:
        return True


def process_fields(process: int | str, thread: int | None = None) -> list[str]:
    """Return the fields of a process's or a thread's ``stat`` after the program's name, which may itself hold
    spaces and brackets.

    Args:
        process: its number, or ``self``. thread: native id of one of its threads.

    Raises:
        OSError: there is no such process, or no ``/proc``.
    """
    folder = _PROC / str(process)
    of_thread = folder if thread is None else folder / "task" / str(thread)
    return (of_thread / "stat").read_text(errors="replace").rpartition(")")[2].split()


def control_groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and the groups around it, from the inside out.

    Args:
        controller: ``cpu`` or ``memory``; in version 1, each has groups of its own.
    """
    try:
        lines = (_PROC / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        root = _CGROUP if not controllers else _CGROUP / controllers
        if controllers and controller not in controllers.split(","):
            continue
        inside = PurePosixPath(path).relative_to("/") if path.startswith("/") else PurePosixPath(path)
        if ".." in inside.parts:  # It lies outside the namespace of this process.
            inside = PurePosixPath()
        folders = [root / inside, *(root / parent for parent in inside.parents)]
        yield from (folder for folder in dict.fromkeys(folders) if folder.is_dir())
