"""Look at other processes of this machine in ``/proc``: stopped, gone, or running (docs/hangs.md)."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from sfapp.model.standstill import ProcessId, ProcessLook
from sfapp.packets.host_files import STARTED, STATE, SYSTEM_TICKS, USER_TICKS, process_fields

_PROC = Path("/proc")


def this_process() -> ProcessId | None:
    """Return the identity of this process; None if the system has no ``/proc``."""
    host = this_host()
    fields = _fields("self")
    return None if host is None or fields is None else ProcessId(os.getpid(), int(fields[STARTED]), host)


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
        fields = process_fields(process.pid)
    except (FileNotFoundError, ProcessLookupError):
        return ProcessLook(process, "")
    except OSError:
        return None
    if int(fields[STARTED]) != process.started:  # The number belongs to another process by now.
        return ProcessLook(process, "")
    return ProcessLook(process, fields[STATE], int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS]))


def thread_ticks(native_id: int) -> int | None:
    """Return the CPU time of a thread of this process, in ticks of the kernel; None if it cannot be read."""
    fields = _fields("self", native_id)
    return None if fields is None else int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])


def storage_bytes() -> int | None:
    """Return the bytes that this process has read from and written to storage; None if not known."""
    try:
        lines = (_PROC / "self/io").read_text().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) for line in lines if line.startswith(("read_bytes", "write_bytes")))


def _fields(process: int | str, thread: int | None = None) -> list[str] | None:
    try:
        return process_fields(process, thread)
    except OSError:
        return None
