"""Read the stacks of a process of this machine through a signal, also while its interpreter lock is held.

A recorder registers a free real-time signal with ``faulthandler``, whose handler needs no lock, and publishes
this in a file in a folder of the machine that only its user can read. Another process of the same user sends
the signal to the recorder's own thread, so that no system call of the training thread is interrupted, and
reads the stacks from the file that the handler wrote to. Linux only.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import stat
import tempfile
import threading
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from sfapp.errors import CaptureError, describe_error
from sfapp.files import open_regular, read_regular, write_atomic
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.model.stacks import (
    MAX_FRAMES,
    MAX_TEXT,
    MAX_THREADS,
    RankStacks,
    StackFrame,
    ThreadStack,
    stack_text,
)
from sfapp.packets.host_files import STARTED, STATE, process_fields
from sfapp.packets.job import JobRank

ANSWER_SECONDS = 2.0
"""Longest wait for the stacks after the signal was sent."""

_MAX_DUMP_BYTES = 4 << 20  # faulthandler writes at most 100 threads of 100 frames
_MAX_FILE_BYTES = 1 << 14
_MOST_FILES = 4096
_POLL_SECONDS = 0.02
_CLAIM_SECONDS = 600.0
_CHOICES = 8
"""Number of signals that are tried, from the fifth-highest real-time signal downwards. Debuggers use the
highest ones, runtimes of other languages the lowest ones, and schedulers SIGUSR1 and SIGUSR2."""

_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-fA-F]+)(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d{1,9}|\?\?\?) in (.*)')

_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class StackProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A recording process that answers a signal with its stacks.

    Attributes:
        started: start time in ticks since boot, which tells it from a later process of the same number.
        thread: system id of the thread that takes the signal.
        training: identifier of the training thread, as in the dump.
        root: the recorder's folder for packets.
    """

    process: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    started: _Whole
    thread: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    training: Annotated[int, msgspec.Meta(ge=0)]
    signal: Annotated[int, msgspec.Meta(gt=0, lt=65)]
    rank: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    world_size: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    run_id: str
    root: str
    hostname: Annotated[str, msgspec.Meta(max_length=MAX_TEXT)] = ""


_DECODER = msgspec.json.Decoder(StackProcess)


class _Handler:
    """The signal handler of this process. It stays installed, because without it a late signal would kill."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._number = 0
        self._descriptor = -1

    def install(self, path: Path) -> int:
        """Make the handler write to this file, and return its signal; 0 if no signal is free."""
        with self._lock:
            number = self._number or free_signal()  # A forked child inherits the handler.
            if number and not (self._process == os.getpid() and path.exists()):
                with open_regular(path, "ab+", permissions=0o600, follow_links=False) as file:
                    descriptor = os.dup(file.fileno())  # An open file object would warn at exit.
                # With chain=True, system calls would not be restarted; there is no handler to chain to.
                faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
                before, self._descriptor = self._descriptor, descriptor
                self._process, self._number = os.getpid(), number
                if before >= 0:
                    os.close(before)
            return number


_HANDLER = _Handler()


def free_signal() -> int:
    """Return a real-time signal that this process neither catches nor ignores; 0 if there is none."""
    if not hasattr(signal, "SIGRTMAX") or not hasattr(faulthandler, "register"):
        return 0
    used = _mask("self", "SigCgt") | _mask("self", "SigIgn")
    first = int(signal.SIGRTMAX) - 4
    return next((number for number in range(first, first - _CHOICES, -1) if not used >> (number - 1) & 1), 0)


def publish(rank: JobRank, training: int) -> bool:
    """Make this process answer the signal on the current thread; return False if no signal is free.

    Args:
        training: identifier of the training thread.

    Raises:
        OSError: the folder or file cannot be used, or the system has no ``/proc``.
    """
    folder = _own_folder()
    number = _HANDLER.install(_dump_path(folder, os.getpid()))
    if not number:
        return False
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    process = StackProcess(
        process=os.getpid(),
        started=_state(os.getpid())[1],
        thread=threading.get_native_id(),
        training=training,
        signal=number,
        rank=rank.identity.rank,
        world_size=rank.job.world_size,
        run_id=rank.job.run_id,
        root=str(rank.job.root.absolute()),
        hostname=stack_text(rank.identity.hostname),
    )
    write_atomic(_published_path(folder, os.getpid()), msgspec.json.encode(process), mode=0o600, sync=False)
    return True


def refusal() -> str:
    """Return why this process could not publish its stacks; empty if it could."""
    try:
        _own_folder()
        number = free_signal()
    except OSError as error:
        return describe_error(error)
    return "" if number else "no real-time signal is free, or the system has none"


def withdraw() -> None:
    """Remove what ``publish`` wrote; the handler stays until the process ends."""
    folder = stack_folder()
    for path in (_published_path(folder, os.getpid()), _dump_path(folder, os.getpid())):
        path.unlink(missing_ok=True)


def stack_processes(run_id: str | None, root: Path) -> list[StackProcess]:
    """Return the processes of a run on this machine, by rank; files of ended processes are removed.

    Args:
        run_id: None for the processes of any run that have this folder.
        root: the folder for packets.

    Ranks that stream may have another folder than their aggregator. A process with another folder counts if
    no process of the run has this one; if there are several of one rank then, none of them does.
    """
    try:
        folder = _checked_folder()
        own = f"{_namespace()}-"
        found_names = (name for name in os.listdir(folder) if name.startswith(own) and name.endswith(".json"))
        names = sorted(found_names)[:_MOST_FILES]
    except OSError:
        return []
    found = [each for name in names if (each := _read(folder / name)) is not None]
    here = [each for each in found if each.root == str(root.absolute()) and run_id in (None, each.run_id)]
    here = here or [each for each in found if each.run_id == run_id]
    by_rank: dict[int, list[StackProcess]] = {}
    for each in here:
        by_rank.setdefault(each.rank, []).append(each)
    return [of_rank[0] for _, of_rank in sorted(by_rank.items()) if len(of_rank) == 1]


def claim(request: str, rank: int) -> bool:
    """Return whether the caller is the first process of this machine to answer a request for a rank.

    Without a usable folder every caller is.
    """
    try:
        folder = _own_folder()
        now = time.time()
        for old in folder.glob("*.claim"):
            if now - old.stat().st_mtime > _CLAIM_SECONDS:
                old.unlink(missing_ok=True)
        open_regular(folder / f"{request}.{rank}.claim", "xb", permissions=0o600).close()
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def stacks_by_signal(process: StackProcess) -> RankStacks:
    """Return the stacks of a process of this machine, whether or not its interpreter lock is held.

    Raises:
        CaptureError: it has ended, is stopped, belongs to another user or does not answer in time.
    """
    path = _dump_path(stack_folder(), process.process)
    try:
        state, started = _state(process.process)
        if started != process.started or state in "ZX":
            raise CaptureError("the process has ended")
        if state in "Tt":
            raise CaptureError("the process is stopped (SIGSTOP or a debugger)")
        if not _mask(str(process.process), "SigCgt") >> (process.signal - 1) & 1:
            raise CaptureError("the process does not answer the signal")
        with open_regular(path, "r+b", follow_links=False) as file:
            file.truncate(0)
        _send(process)
        text = _answer(path)
    except FileNotFoundError as error:
        raise CaptureError("the process has ended") from error
    except OSError as error:
        raise CaptureError(f"its stacks cannot be read: {error.strerror or error}") from error
    if not text:
        raise CaptureError(
            f"the process did not answer the signal within {ANSWER_SECONDS:g} s (state {state})"
        )
    return RankStacks(
        rank=process.rank,
        taken_at=datetime.now(UTC),
        source="signal",
        hostname=process.hostname,
        process=process.process,
        threads=parse_dump(text, process.training),
    )


def parse_dump(text: str, training: int) -> tuple[ThreadStack, ...]:
    """Return the threads of ``faulthandler``'s output, the training thread first.

    The current thread is the one that took the signal, which is the recorder's own; it is left out.
    """
    threads: dict[int, ThreadStack] = {}  # Two processes that read at the same time get two dumps.
    ident, name, frames, is_own = 0, "", list[StackFrame](), True

    def add() -> None:
        if not is_own:
            threads[ident] = ThreadStack(name, tuple(frames[:MAX_FRAMES]), ident == training)

    for line in text.splitlines():
        if head := _THREAD.fullmatch(line):
            add()
            ident = int(head[1], 16)
            name, frames = (head[2] or f"thread {ident:#x}")[:MAX_TEXT], []
            is_own = line.startswith("Current") and ident != training
        elif found := _FRAME.fullmatch(line):
            number = 0 if found[2] == "???" else int(found[2])
            frames.append(StackFrame(found[1][:MAX_TEXT], found[3][:MAX_TEXT], number))
    add()
    return tuple(sorted(threads.values(), key=lambda each: not each.is_training)[:MAX_THREADS])


def stack_folder() -> Path:
    """Return the folder of this machine and user, which may not exist."""
    return Path(tempfile.gettempdir()) / f"sfapp-stacks-{os.getuid()}"


def _own_folder() -> Path:
    stack_folder().mkdir(mode=0o700, exist_ok=True)
    return _checked_folder()


def _checked_folder() -> Path:
    """Return the folder if no other user can write to it: the temporary folder is open to all.

    Raises:
        OSError: it does not exist, or belongs to another user.
    """
    folder = stack_folder()
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder that only its user can open")
    return folder


def _dump_path(folder: Path, process: int) -> Path:
    return folder / f"{_namespace()}-{process}.txt"


def _published_path(folder: Path, process: int) -> Path:
    return folder / f"{_namespace()}-{process}.json"


@cache
def _namespace() -> str:
    """Return the number of this process's PID namespace, 0 if the system has none.

    Containers that share a temporary folder have processes of the same number: one must neither signal those
    of another nor remove their files.
    """
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"


def _read(path: Path) -> StackProcess | None:
    """Return a published process; remove its files if it has ended."""
    try:
        found = _DECODER.decode(read_regular(path, _MAX_FILE_BYTES, follow_links=False))
    except (OSError, *UNREADABLE_JSON):
        return None
    try:
        if _state(found.process)[1] == found.started:
            return found
    except OSError:
        pass
    path.unlink(missing_ok=True)
    path.with_suffix(".txt").unlink(missing_ok=True)
    return None


def _state(process: int) -> tuple[str, int]:
    """Return a process's state letter and start time in ticks since boot.

    Raises:
        OSError: there is no such process, or no ``/proc``.
    """
    fields = process_fields(process)
    return fields[STATE], int(fields[STARTED])


def _mask(process: str, name: str) -> int:
    """Return a set of signals of a process, bit n − 1 for signal n; all if it is not known."""
    try:
        lines = read_regular(f"/proc/{process}/status", _MAX_FILE_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return 0 if process != "self" else (1 << 64) - 1
    return next((int(line.split()[1], 16) for line in lines if line.startswith(f"{name}:")), 0)


def _send(process: StackProcess) -> None:
    """Send the signal to the thread that takes it.

    Raises:
        OSError: the thread has ended, belongs to another user, or the C library cannot send to a thread.
    """
    send = getattr(ctypes.CDLL(None, use_errno=True), "tgkill", None)
    if send is None:
        raise OSError(0, "this system cannot send a signal to a thread")
    if send(process.process, process.thread, process.signal) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _answer(path: Path) -> str:
    """Return what the handler wrote, once it has stopped growing; empty if nothing arrives in time."""
    deadline, before = time.monotonic() + ANSWER_SECONDS, b""
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        content = read_regular(path, _MAX_DUMP_BYTES, follow_links=False)
        if content and content == before:
            break
        before = content
    return before.decode(errors="replace")
