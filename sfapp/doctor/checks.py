"""Judge what was read of an environment: pure functions of ``Readings``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sfapp.doctor.readings import PORTS, Readings
from sfapp.doctor.results import CheckResult, CheckStatus
from sfapp.recorder.identity import RankPlace

LEAST_TORCH = (2, 4)
"""Oldest version of torch that the recorder is tested with."""

LEAST_FREE_BYTES = 1 << 30

_EVIDENCE_REMEDIES: Mapping[str, str] = {
    "cpu": "record on Linux",
    "runnable": "use a kernel with CONFIG_SCHED_INFO",
    "switches": "record on Linux",
    "faults": "record on Linux",
    "block_io": "run `sysctl kernel.task_delayacct=1` as root",
    "throttled": "none is needed where the control group has no quota of CPU time",
    "pressure": "boot with psi=1, and let the container read /proc/pressure",
}

_OFF = "off"


def results_of(readings: Readings) -> list[CheckResult]:
    """Return the result of every check, in the order in which they are shown."""
    return [result for check in _CHECKS for result in check(readings)]


def _result(area: str, name: str, status: CheckStatus, found: str, remedy: str = "") -> CheckResult:
    return CheckResult(area=area, name=name, status=status, found=found, remedy=remedy)


# ---- recording ----------------------------------------------------------------------------------


def check_timers(readings: Readings) -> Iterator[CheckResult]:
    """Check the compiled modules, without which steps are timed in Python."""
    area = "Recording"
    if readings.environ.get("SFAPP_COMPILED", "").lower() == _OFF:
        yield _result(area, "timers", "limited", "in Python: SFAPP_COMPILED=off", "unset SFAPP_COMPILED")
        return
    for name, state in readings.compiled.items():
        if state == "ok":
            yield _result(area, name, "ok", "compiled")
        else:
            why = "not compiled" if state == "absent" else "compiled from another version of the source"
            yield _result(area, name, "limited", f"in Python, which takes longer: {why}", _rebuild(readings))


def _rebuild(readings: Readings) -> str:
    if readings.system != "linux":
        return f"none: they are written for Linux, not {readings.system}"
    needs = []
    if readings.compiler is None:
        needs.append("a C compiler")
    if not readings.has_headers:
        needs.append("Python's headers (python3-dev)")
    before = f"install {' and '.join(needs)}, then " if needs else ""
    return f"{before}pip install --force-reinstall --no-deps --no-binary sfapp sfapp"


def check_folder(readings: Readings) -> Iterator[CheckResult]:
    """Check that packets can be written to the folder."""
    folder = readings.folder
    if folder.refusal:
        yield _result(
            "Recording",
            "folder",
            "failed",
            f"{folder.path}: {folder.refusal}",
            "name a folder that every rank may write to: `sfapp run --out`, `Recorder(output)`",
        )
        return
    free = folder.free_bytes or 0
    found = f"{folder.path}: {'can be written' if folder.exists else 'can be made'}, {_size(free)} free"
    is_full = free < LEAST_FREE_BYTES
    remedy = "free some space, or name another folder" if is_full else ""
    yield _result("Recording", "folder", "limited" if is_full else "ok", found, remedy)


def _size(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB"


def check_place(readings: Readings) -> Iterator[CheckResult]:
    """Check that the launcher's variables say which rank this is."""
    place = readings.place
    if isinstance(place, RankPlace):
        of = "started by no launcher: one rank" if place.source == "default" else f"from {place.source}"
        yield _result("Recording", "rank", "ok", f"rank {place.rank} of {place.world_size}, {of}")
    else:
        yield _result("Recording", "rank", "failed", place, "start the ranks with torchrun, srun or mpirun")


# ---- torch --------------------------------------------------------------------------------------


def check_torch(readings: Readings) -> Iterator[CheckResult]:
    """Check torch, its process groups and its devices."""
    area, torch = "PyTorch", readings.torch
    install = "install your platform's build of PyTorch; sfapp never installs it"
    if torch is None:
        yield _result(
            area,
            "torch",
            "failed",
            "its import does not end in time",
            "look at the file system that it is installed on, or allow more time with --timeout",
        )
        return
    if not torch.version:
        yield _result(area, "torch", "failed", torch.error, install)
        return
    is_old = _version_of(torch.version) < LEAST_TORCH
    least = ".".join(map(str, LEAST_TORCH))
    yield _result(
        area,
        "torch",
        "limited" if is_old else "ok",
        torch.version + (f", built for CUDA {torch.cuda}" if torch.cuda else ", built without CUDA"),
        f"install torch {least} or newer: sfapp is not tested with this one" if is_old else "",
    )
    if not torch.has_distributed:
        yield _result(area, "process groups", "limited", "this build has no torch.distributed", install)
        return
    has_gloo = "gloo" in torch.backends
    yield _result(
        area,
        "process groups",
        "ok" if has_gloo else "limited",
        ", ".join(torch.backends) or "none",
        "" if has_gloo else "use Recorder(gather='nccl') or gather='local': rows are gathered over Gloo",
    )
    found = f"{torch.devices} CUDA device{'s' if torch.devices != 1 else ''}"
    remedy = "" if torch.devices else "none on a machine without GPUs; else install a build with CUDA"
    yield _result(area, "devices", "ok" if torch.devices else "limited", found, remedy)


def _version_of(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a version; vendors' builds have names such as ``2.6.0a0+ecf3bae``."""
    numbers = []
    for part in text.split(".")[:2]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        numbers.append(int(digits or 0))
    return tuple(numbers)


def check_gpus(readings: Readings) -> Iterator[CheckResult]:
    """Check that NVML answers, from which the samples of GPUs come."""
    gpus, area = readings.gpus, "Streaming"
    if gpus is None:
        remedy = "look at `nvidia-smi`: the driver hangs"
        yield _result(area, "GPU metrics", "limited", "NVML does not answer in time", remedy)
    elif gpus.names:
        yield _result(area, "GPU metrics", "ok", f"{len(gpus.names)} × {gpus.names[0]}")
    else:
        yield _result(
            area, "GPU metrics", "limited", gpus.error or "no GPU", "none on a machine without NVIDIA GPUs"
        )


# ---- streaming ----------------------------------------------------------------------------------


def check_stream(readings: Readings) -> Iterator[CheckResult]:
    """Check that recorders can stream as the environment asks."""
    area, stream = "Streaming", readings.stream
    if not stream.has_zmq:
        yield _result(
            area,
            "stream",
            "failed" if stream.address else "limited",
            f"pyzmq is not installed{', but SFAPP_STREAM is set' if stream.address else ''}",
            "pip install 'sfapp[stream]'",
        )
        return
    if stream.fault:
        remedy = "make keys with `sfapp aggregate --make-keys` (docs/stream.md)"
        yield _result(area, "keys", "failed", stream.fault, remedy)
        return
    keys = "set" if stream.has_keys else "none: only addresses of this machine can be used"
    yield _result(area, "keys", "ok", keys)
    if not stream.address:
        yield _result(area, "stream", "ok", "possible; SFAPP_STREAM is not set")
    elif stream.silence:
        remedy = "start `sfapp aggregate` or `sfapp relay` there, or open the port in the firewall"
        yield _result(area, "stream", "failed", f"{stream.address}: {stream.silence}", remedy)
    else:
        yield _result(area, "stream", "ok", f"to {stream.address}")


def check_ports(readings: Readings) -> Iterator[CheckResult]:
    """Check that the default ports are free on this machine."""
    for port, refusal in readings.ports.items():
        name, command = f"port {port}", PORTS.get(port, "sfapp")
        if refusal:
            option = "--port" if command == "sfapp serve" else "--listen"
            remedy = f"stop what listens there, or give `{command} {option}` another one"
            yield _result("Streaming", name, "limited", f"{command} cannot use it: {refusal}", remedy)
        else:
            yield _result("Streaming", name, "ok", f"free for {command}")


# ---- stacks and host evidence -------------------------------------------------------------------


def check_stacks(readings: Readings) -> Iterator[CheckResult]:
    """Check how the stacks of ranks can be read."""
    area, stacks = "Stacks", readings.stacks
    variable = readings.environ.get("SFAPP_STACKS", "").lower()
    is_off = readings.environ.get("SFAPP_CAPTURES", "").lower() == _OFF or variable == _OFF
    if is_off:
        remedy = "unset SFAPP_CAPTURES and SFAPP_STACKS"
        yield _result(area, "sfapp stacks", "limited", "switched off by a variable", remedy)
    elif stacks.refusal or variable == "python":
        why = stacks.refusal or "SFAPP_STACKS=python"
        remedy = "let TMPDIR name a folder of this user, and unset SFAPP_STACKS"
        found = f"not of a rank that holds its interpreter lock: {why}"
        yield _result(area, "sfapp stacks", "limited", found, remedy)
    else:
        yield _result(area, "sfapp stacks", "ok", "also of a rank that holds its interpreter lock")
    yield _native_stacks(readings)


def _native_stacks(readings: Readings) -> CheckResult:
    stacks, name = readings.stacks, "native stacks"
    if stacks.py_spy is None:
        return _result("Stacks", name, "limited", "py-spy is not installed", "pip install py-spy")
    if stacks.may_trace or stacks.ptrace_scope in (None, 0):
        return _result("Stacks", name, "ok", f"py-spy may read any process of this user ({stacks.py_spy})")
    return _result(
        "Stacks",
        name,
        "limited",
        f"py-spy may not read another process: kernel.yama.ptrace_scope is {stacks.ptrace_scope}",
        "run `sysctl kernel.yama.ptrace_scope=0` as root, or start the container with --cap-add SYS_PTRACE",
    )


def check_evidence(readings: Readings) -> Iterator[CheckResult]:
    """Check which kinds of host evidence are recorded (docs/why.md)."""
    for kind, why in readings.evidence.items():
        name = kind.replace("_", " ")
        if why:
            yield _result("Host evidence", name, "limited", why, _EVIDENCE_REMEDIES.get(kind, ""))
        else:
            yield _result("Host evidence", name, "ok", "recorded")
    chosen = readings.environ.get("SFAPP_EVIDENCE", "")
    if chosen:
        found = f"SFAPP_EVIDENCE={chosen} chooses among these"
        yield _result("Host evidence", "choice", "limited", found, "unset SFAPP_EVIDENCE to record all")


def check_extras(readings: Readings) -> Iterator[CheckResult]:
    """Check which extras are installed."""
    for extra, missing in readings.missing.items():
        if missing:
            found = f"lacks {', '.join(missing)}"
            yield _result("Extras", extra, "limited", found, f"pip install 'sfapp[{extra}]'")
        else:
            yield _result("Extras", extra, "ok", "installed")


_CHECKS: tuple[Callable[[Readings], Iterator[CheckResult]], ...] = (
    check_timers,
    check_folder,
    check_place,
    check_torch,
    check_evidence,
    check_stacks,
    check_stream,
    check_gpus,
    check_ports,
    check_extras,
)
