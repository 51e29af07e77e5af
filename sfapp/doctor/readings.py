"""Read what the checks need: variables, files, ports and modules of this environment.

What may block (a file system, a driver, the import of torch) has a time limit: it runs on a thread that can
be abandoned, or in a process that is killed.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

import msgspec

from sfapp.compiled_modules import compiled_from
from sfapp.doctor.child_readings import GpuReading, TorchReading
from sfapp.errors import EXTRA_OF_MODULE, SfappError, describe_error
from sfapp.files import read_regular
from sfapp.model.host_evidence import EVIDENCE_KINDS
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.packets.sink import STREAM_VARIABLE
from sfapp.recorder.identity import RankPlace, resolve_place
from sfapp.terminal import first_line

PORTS: Mapping[int, str] = {8642: "sfapp serve", 29765: "sfapp aggregate", 29766: "sfapp relay"}
"""Default ports, and the commands that listen on them."""

_FILE_SECONDS = 5.0
_TRIED_BYTES = 4096
"""Size of the file that is written to a folder: a full disk, or a quota, still lets empty ones be made."""

_CONNECT_SECONDS = 3.0
_MAX_PROC_BYTES = 1 << 16
_MAX_ANSWER_BYTES = 1 << 16
_PTRACE_CAPABILITY = 19  # CAP_SYS_PTRACE

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReading:
    """A folder for packets: whether it exists, its free bytes, and why nothing can be written; empty if it
    can."""

    path: str
    exists: bool
    free_bytes: int | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackReading:
    """What reading the stacks of processes depends on.

    Attributes:
        refusal: why the stacks of a rank cannot be read through a signal; empty if they can.
        py_spy: path of py-spy; None without it.
        ptrace_scope: of the Yama security module; None without it.
        may_trace: whether this process may trace every process.
    """

    refusal: str = ""
    py_spy: str | None = None
    ptrace_scope: int | None = None
    may_trace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReading:
    """A stream as the environment asks for it.

    Attributes:
        address: value of ``SFAPP_STREAM``; empty if recorders do not stream.
        has_zmq: whether pyzmq is installed. has_keys: whether keys are set.
        fault: why the keys or the address cannot be used; empty if they can.
        silence: why nothing answers at the address; empty if something does, or the address is none of TCP.
    """

    address: str = ""
    has_zmq: bool = False
    has_keys: bool = False
    fault: str = ""
    silence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """All that the checks judge.

    Attributes:
        environ: the variables of the environment.
        system: as ``sys.platform``.
        compiled: by compiled module ``ok``, ``absent`` or ``stale``.
        compiler: path of a C compiler; None without one. has_headers: whether Python's C headers are there.
        torch: None if its import took too long. gpus: None if the driver did not answer.
        place: this process's place in its job, or why it is contradictory.
        ports: by port, why it cannot be listened on; empty if it can.
        evidence: by kind of host evidence, why it is not recorded; empty if it is.
        missing: by extra, its modules that are not installed.
    """

    environ: Mapping[str, str]
    system: str
    compiled: Mapping[str, str]
    compiler: str | None
    has_headers: bool
    torch: TorchReading | None
    gpus: GpuReading | None
    place: RankPlace | str
    folder: FolderReading
    ports: Mapping[int, str]
    stream: StreamReading
    stacks: StackReading
    evidence: Mapping[str, str]
    missing: Mapping[str, tuple[str, ...]]


def read_environment(output: Path, seconds: float) -> Readings:
    """Read this environment.

    Args:
        output: folder for packets.
        seconds: time limit of each process, in which torch is imported and the driver is asked.
    """
    environ = dict(os.environ)
    children = {name: _start_child(name) for name in ("torch", "gpu")}
    deadline = time.monotonic() + seconds
    try:
        return Readings(
            environ=environ,
            system=sys.platform,
            compiled=_compiled_modules(),
            compiler=next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None),
            has_headers=Path(sysconfig.get_path("include"), "Python.h").exists(),
            place=_place(environ),
            folder=within(lambda: read_folder(output), _noanswer_of(output), _FILE_SECONDS),
            ports={port: _refusal_of_port(port) for port in PORTS},
            stream=_read_stream(environ),
            stacks=_read_stacks(),
            evidence=_read_evidence(),
            missing=missing_modules(),
            torch=answer_of(children["torch"], TorchReading, deadline),
            gpus=answer_of(children["gpu"], GpuReading, deadline),
        )
    finally:
        for child in children.values():
            child.kill()
            child.communicate()


def about() -> dict[str, str]:
    """Return the versions of sfapp, Python and the base packages, and the machine."""
    names = ("click", "msgspec", "numpy", "pyarrow")
    return {
        "sfapp": _version("sfapp"),
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "host": platform.node(),
        **{name: _version(name) for name in names},
    }


def within(call: Callable[[], Value], otherwise: Value, seconds: float) -> Value:
    """Return the result of a call, or ``otherwise`` if it takes longer; its thread is then abandoned."""
    found: list[Value] = []
    thread = threading.Thread(target=lambda: found.append(call()), name="sfapp-doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else otherwise


def _noanswer_of(output: Path) -> FolderReading:
    return FolderReading(
        path=str(output), exists=True, refusal=f"the file system does not answer within {_FILE_SECONDS:g} s"
    )


def read_folder(output: Path) -> FolderReading:
    """Write to a folder, or to the nearest one above it that exists, and read its free space."""
    exists = output.exists()
    try:
        place = output.absolute()
        while not place.exists() and place != place.parent:
            place = place.parent
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
        with tempfile.TemporaryFile(dir=place, buffering=0) as file:
            file.write(bytes(_TRIED_BYTES))
            os.fsync(file.fileno())  # A network file system says only then that a quota is used up.
        return FolderReading(path=str(output), exists=exists, free_bytes=shutil.disk_usage(place).free)
    except OSError as error:
        return FolderReading(path=str(output), exists=exists, refusal=describe_error(error))


def _compiled_modules() -> dict[str, str]:
    from sfapp.accounting import kernels
    from sfapp.packets import page_sizes
    from sfapp.recorder.timing import hooks, timers

    found = {}
    for name, source in (("timers", timers), ("hooks", hooks), ("page checks", page_sizes)):
        package, _, module = source.__name__.rpartition(".")
        is_built = _is_installed(f"{package}._{module}")
        found[name] = "absent" if not is_built else "stale" if compiled_from(source) is None else "ok"
    is_built = _is_installed("sfapp.accounting._kernels")
    found["kernels"] = "absent" if not is_built else "stale" if kernels.compiled is None else "ok"
    return found


def _place(environ: Mapping[str, str]) -> RankPlace | str:
    try:
        return resolve_place(environ, None, socket.gethostname())
    except SfappError as error:
        return str(error)


def _refusal_of_port(port: int) -> str:
    with socket.socket() as listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
        except OSError as error:
            return error.strerror or str(error)
    return ""


def _read_stream(environ: Mapping[str, str]) -> StreamReading:
    address = environ.get(STREAM_VARIABLE, "")
    if not _is_installed("zmq"):
        return StreamReading(address=address)
    from sfapp.stream.encryption import Keys, check_endpoint

    keys, fault, silence = None, "", ""
    try:
        keys = Keys.from_environment()
        if address:
            check_endpoint(address, keys)
    except SfappError as error:
        fault = str(error)
    if address.startswith("tcp://") and not fault:
        late = f"no answer within {_CONNECT_SECONDS:g} s"
        silence = within(lambda: _refusal_of_connection(address), late, _CONNECT_SECONDS)
    has_keys = keys is not None
    return StreamReading(address=address, has_zmq=True, has_keys=has_keys, fault=fault, silence=silence)


def _refusal_of_connection(address: str) -> str:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        return describe_error(error)
    return ""


def _read_stacks() -> StackReading:
    from sfapp.packets.stack_signal import refusal

    scope = _proc("/proc/sys/kernel/yama/ptrace_scope").strip()
    lines = _proc("/proc/self/status").splitlines()
    capabilities = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return StackReading(
        refusal=refusal(),
        py_spy=shutil.which("py-spy"),
        ptrace_scope=int(scope) if scope in ("0", "1", "2", "3") else None,
        may_trace=bool(int(capabilities, 16) >> _PTRACE_CAPABILITY & 1),
    )


def _proc(path: str) -> str:
    try:
        return read_regular(path, _MAX_PROC_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _read_evidence() -> dict[str, str]:
    """Start every kind of host evidence as a recorder does, and stop it."""
    from sfapp.recorder.side_channels.host_evidence import HostEvidence
    from sfapp.recorder.timing.timer_backend import new_state

    def ignore(*_: object) -> None:
        pass

    state = new_state(time.perf_counter_ns, ignore, lambda: None, ignore)
    evidence = HostEvidence(state, EVIDENCE_KINDS, ignore)
    try:
        return {kind: evidence.unavailable.get(kind, "") for kind in EVIDENCE_KINDS}
    finally:
        evidence.close()


def missing_modules() -> dict[str, tuple[str, ...]]:
    """Return the modules of each extra that are not installed; none of them is loaded."""
    found: dict[str, list[str]] = {extra: [] for extra in EXTRA_OF_MODULE.values()}
    for module, extra in EXTRA_OF_MODULE.items():
        if not _is_installed(module):
            found[extra].append(module)
    return {extra: tuple(modules) for extra, modules in found.items()}


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


# ---- processes of their own ---------------------------------------------------------------------


def _start_child(name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "sfapp.doctor.child_readings", name]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


Reading = TypeVar("Reading", TorchReading, GpuReading)


def answer_of(child: subprocess.Popen[bytes], kind: type[Reading], deadline: float) -> Reading | None:
    """Return what a child has read; None if it takes too long."""
    try:
        output, log = child.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    try:
        return msgspec.json.decode(output[-_MAX_ANSWER_BYTES:].splitlines()[-1], type=kind)
    except (IndexError, *UNREADABLE_JSON):
        last = log.decode(errors="replace").strip().rpartition("\n")[2]
        return kind(error=first_line(last) or f"the process ended with {child.returncode}")
