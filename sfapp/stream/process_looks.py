"""Look at other processes of this machine in ``/proc``: stopped, gone, or running (docs/hangs.md)."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from sfapp.model.standstill import ProcessId, ProcessLook

_PROC = Path("/proc")
_STATE, _USER_TICKS, _SYSTEM_TICKS, _STARTED = 0, 11, 12, 19  # fields after the name of the program


def this_process() -> ProcessId | None:
    """Return the identity of this process; None if the system has no ``/proc``."""
    host = this_host()
    fields = _stat(_PROC / "self")
    return None if host is None or fields is None else ProcessId(os.getpid(), int(fields[_STARTED]), host)


@cache
def this_host() -> str | None:
    """Return what processes must have in common to look at each other: machine, PID namespace and user.

    Another user's processes may be hidden, and would look as if they were gone.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        namespace = os.readlink(_PROC / "self/ns/pid").strip("pid:[]")
    except OSError:
        return None
    return f"{boot[:24]}/{namespace}/{os.getuid()}"[:64]


def look_at(process: ProcessId) -> ProcessLook | None:
    """Return the state of a process of this host; None if it is of another one or cannot be read."""
    if process.host != this_host():
        return None
    try:
        fields = _fields((_PROC / str(process.pid) / "stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return ProcessLook(process, "")
    except OSError:
        return None
    if int(fields[_STARTED]) != process.started:  # The number belongs to another process by now.
        return ProcessLook(process, "")
    return ProcessLook(process, fields[_STATE], int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS]))


def thread_ticks(native_id: int) -> int | None:
    """Return the CPU time of a thread of this process, in ticks of the kernel; None if it cannot be read."""
    fields = _stat(_PROC / "self/task" / str(native_id))
    return None if fields is None else int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])


def storage_bytes() -> int | None:
    """Return the bytes that this process has read from and written to storage; None if not known."""
    try:
        lines = (_PROC / "self/io").read_text().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) for line in lines if line.startswith(("read_bytes", "write_bytes")))


def _stat(folder: Path) -> list[str] | None:
    try:
        return _fields((folder / "stat").read_text())
    except OSError:
        return None


def _fields(stat: str) -> list[str]:
    """Return the fields after the program's name, which may itself hold spaces and brackets."""
    return stat.rpartition(")")[2].split()
