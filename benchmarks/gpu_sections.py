"""The sections of ``docs/evidence/gpu.md``: on a CUDA device, and on the CPU if they have such a path."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import sfapp
from benchmarks.accounting import job
from benchmarks.gpu_training import DeviceTraining, synchronise
from benchmarks.overhead import COLUMNS, KINDS, ON, OverheadEstimate, schedule
from sfapp.accounting import diagnose, frontier
from sfapp.accounting.carry_over import carry_over, steps_before
from sfapp.accounting.frontier import running_boundaries
from sfapp.accounting.kernels import first_argmax, max_last, median_last
from sfapp.model import Window
from sfapp.model.arrays import Array, to_numpy
from sfapp.model.capture import CaptureLimits
from sfapp.model.operators import CATEGORIES
from sfapp.model.rank_table import RankIdentity
from sfapp.model.stages import BACKWARD, FORWARD, FORWARD_EVENT, OPTIMIZER
from sfapp.packets import read_operators, read_window
from sfapp.packets.captures import ask_for_capture, new_request, state_of
from sfapp.packets.paths import operators_path
from sfapp.recorder.side_channels.device_waits import device_wait_channel
from sfapp.stream.system_readings import GpuSampler, NodeSampler

MS = 1e6  # ns
LAUNCH_SECONDS = 120
CAPTURE_SECONDS = 60.0


class SectionFailed(Exception):
    """A section has no result; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Device and duration of the sections.

    Attributes:
        device: ``cuda`` or ``cpu``.
        folder: an empty folder for the packets of all sections.
        is_quick: functional check; the numbers have no meaning.
    """

    device: torch.device
    folder: Path
    is_quick: bool = False

    def measure(self, call: Callable[[], object], runs: int = 9) -> float:
        """Return the median seconds of a call, including the work of the device."""
        call()
        seconds = []
        for _ in range(2 if self.is_quick else runs):
            synchronise(self.device)
            begin = time.perf_counter()
            call()
            synchronise(self.device)
            seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)


# ---- kernels of the accounting ---------------------------------------------------------------------------

KERNELS: dict[str, Callable[[Array], Any]] = {
    "largest of the ranks": lambda d: max_last(d),
    "slowest rank": lambda d: first_argmax(d),
    "median of the ranks": lambda d: median_last(d),
    "frontier": lambda d: frontier(d)[0],
    "boundaries: frontier, leader, second": lambda d: running_boundaries(d).frontier_SN,
    "carry-over": lambda d: carry_over(d, steps_before(d.sum(0))).advance_SN,
}


def kernels(setup: Setup) -> list[str]:
    """Measure the kernels against a copy of the matrix on the device; compare their results with NumPy's."""
    window = job(256 if setup.is_quick else 16_384)
    host_SNR = window.duration_SNR
    device_SNR = torch.from_numpy(host_SNR).to(setup.device)
    target_SNR = torch.empty_like(device_SNR)
    copy = setup.measure(lambda: target_SNR.copy_(device_SNR))
    rate = 2 * host_SNR.nbytes / copy
    lines = [
        f"Matrix of {'×'.join(map(str, host_SNR.shape))} int64, {host_SNR.nbytes / 1e6:.0f} MB. A copy takes "
        f"{copy * 1e3:.3f} ms: {rate / 1e9:,.0f} GB/s read and written.",
        "",
        "```text",
        f"{'kernel':<38} {'device':>10} {'copies':>8} {'host':>10}  result",
    ]
    for name, kernel in KERNELS.items():
        on_device = setup.measure(partial(kernel, device_SNR))
        on_host = setup.measure(partial(kernel, host_SNR), runs=3)
        same = np.allclose(to_numpy(kernel(device_SNR)), kernel(host_SNR), rtol=1e-9)
        lines.append(_kernel_row(name, on_device, copy, on_host, same))
    on_device = setup.measure(lambda: diagnose(window, device=setup.device.type), runs=3)
    on_host = setup.measure(lambda: diagnose(window), runs=3)
    same = _verdict(window, setup.device.type) == _verdict(window, None)
    lines.append(_kernel_row("diagnosis, with moving the window", on_device, copy, on_host, same))
    return [*lines, "```"]


def _kernel_row(name: str, on_device: float, copy: float, on_host: float, same: bool) -> str:
    times = f"{on_device * 1e3:>7.2f} ms {on_device / copy:>8.1f} {on_host * 1e3:>7.2f} ms"
    return f"{name:<38} {times}  {'the same' if same else 'DIFFERS'}"


def _verdict(window: Window, device: str | None) -> tuple[object, ...]:
    found = diagnose(window) if device is None else diagnose(window, device=device)
    return found.labels, found.advances_ns, found.aim and (found.aim.stage, found.aim.rank)


# ---- events and waits of a training loop -----------------------------------------------------------------


def waits(setup: Setup) -> list[str]:
    """Train over NCCL, one rank a device, and over Gloo, two ranks on one device, and report both."""
    lines: list[str] = []
    devices = torch.cuda.device_count() if setup.device.type == "cuda" else 0
    if devices:
        lines += _training_rows(setup, "nccl", min(2, devices))
        if devices == 1:
            lines += ["", "With one device NCCL has one rank, which waits for no other.", ""]
    else:
        lines += ["NCCL: left out, it needs a CUDA device.", ""]
    return lines + _training_rows(setup, "gloo", 2)


def _training_rows(setup: Setup, backend: str, ranks: int) -> list[str]:
    """Return lines on the forward events and waits in one window of a job."""
    root = setup.folder / f"waits-{backend}"
    steps = 12 if setup.is_quick else 100
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    script = Path(__file__).with_name("gpu_job.py")
    command += [str(script), str(root), backend, setup.device.type, str(steps)]
    run_here(command)
    window = read_window(root)
    found = diagnose(window)
    lines = [
        f"{backend}, {ranks} rank{'s' * (ranks > 1)}, {len(window.step_N)} steps; median, ms, by rank:",
        "",
        "```text",
        f"{'forward, host':<44} {_by_rank(window.duration_SNR[window.stages.index(FORWARD)] / MS)}",
        _channel_row(window, "forward, device event", FORWARD_EVENT),
    ]
    for stage in (BACKWARD, OPTIMIZER):
        lines.append(
            f"{stage + ', host':<44} {_by_rank(window.duration_SNR[window.stages.index(stage)] / MS)}"
        )
        if stage in window.waits:
            lines.append(f"{stage + ', host wait':<44} {_by_rank(window.waits[stage] / MS)}")
        lines.append(_channel_row(window, f"{stage}, device wait", device_wait_channel(stage)))
    suspect = "none" if found.aim is None else f"{found.aim.stage}, rank {found.aim.rank}"
    faults = window.manifest.extra.get("side_faults", {})
    return [
        *lines,
        f"{'likely cause':<44} {suspect}",
        "```",
        *(f"- {name}: {why}" for name, why in faults.items()),
    ]


def _by_rank(value_NR: Any) -> str:
    return "  ".join(f"{value:8.3f}" for value in np.nanmedian(value_NR, axis=0))


def _channel_row(window: Window, label: str, name: str) -> str:
    channel = window.side.get(name)
    if channel is None or not channel.sampled_NR.any():
        return f"{label:<44} not sampled"
    ready, sampled = int(np.isfinite(channel.value_NR).sum()), int(channel.sampled_NR.sum())
    if not ready:
        return f"{label:<44} sampled, none ready"
    return f"{label:<44} {_by_rank(channel.value_NR)}  ({ready} of {sampled} sampled were ready)"


# ---- NVML ------------------------------------------------------------------------------------------------


def nvml(setup: Setup) -> list[str]:
    """Sample the node's GPUs as a stream does, while this process works on the device."""
    sampler = GpuSampler(node_rank=0)
    if sampler.no_gpu_because is not None:
        raise SectionFailed(sampler.no_gpu_because)
    node = NodeSampler(RankIdentity(0, 0, 0, "here"))
    square = torch.ones(2048, 2048, device=setup.device)
    end = time.monotonic() + (0.5 if setup.is_quick else 3.0)
    while time.monotonic() < end:
        square @ square
        synchronise(setup.device)
    cost = setup.measure(lambda: sampler.sample(time.time_ns()))
    samples = sampler.sample(time.time_ns())
    sampler.close()
    lines = [
        f"One sample of {len(samples)} GPU(s) takes {cost * 1e3:.2f} ms, once a second on the node's leader."
    ]
    for sample in samples:
        readings = {name: getattr(sample, name) for name in sample.__struct_fields__}
        lines += ["", "```text", *(f"{name:<24} {value}" for name, value in readings.items()), "```"]
    memory = node.sample(time.time_ns(), sampler.no_gpu_because).memory_used_bytes
    return [*lines, "", f"The node's own sample works too: {memory or 0:,} B of memory in use."]


# ---- captures ----------------------------------------------------------------------------------------------


def capture(setup: Setup) -> list[str]:
    """Capture three steps of a running recorder, and import a profiler's trace of the same loop."""
    training = DeviceTraining(setup.device, 1.0, width=64)
    lines = _captured(setup, training)
    return lines + _imported(setup, training)


def _captured(setup: Setup, training: DeviceTraining) -> list[str]:
    root = setup.folder / "capture"
    request = new_request("capture", [0], steps=3, first_step=5)
    ask_for_capture(root, request)
    limits = CaptureLimits(cooldown_seconds=0.0)
    with sfapp.Recorder(root, run_id="capture", window_steps=20, gather="local", captures=limits) as perf:
        deadline = time.monotonic() + CAPTURE_SECONDS
        while not state_of(root, request).ranks:  # until the request has been read
            _check(deadline, "the recorder did not accept the request")
            time.sleep(0.01)
        for _ in range(20):
            training.recorded(perf)
        while not (state := state_of(root, request)).is_over:
            _check(deadline, f"the capture did not end: {state.status}")
            time.sleep(0.05)
    (rank,) = state.ranks
    if state.status != "done":
        raise SectionFailed(f"the capture was {state.status}: {rank.why}")
    events = read_operators(operators_path(root, "capture", 0, 0))
    counts = Counter(CATEGORIES[category] for category in events.category_E.tolist())
    on_device = sum(events.lanes[lane].is_device for lane in events.lane_E.tolist())
    if setup.device.type == "cuda" and not on_device:
        raise SectionFailed(f"the capture has no event of the device: {dict(counts)}")
    return [
        f"Three steps captured: {len(events.step_E):,} events, {on_device:,} of them on the device "
        f"({', '.join(f'{name} {count:,}' for name, count in sorted(counts.items()))}); trace of "
        f"{rank.trace_bytes / 1e6:.1f} MB, start and stop of the profiler {rank.stopped_ns / MS:.0f} ms.",
    ]


def _imported(setup: Setup, training: DeviceTraining) -> list[str]:
    """Import a trace written by torch.profiler, in the way users do."""
    trace, packets = setup.folder / "trace.json", setup.folder / "imported"
    kinds = [ProfilerActivity.CPU]
    if setup.device.type == "cuda":
        kinds.append(ProfilerActivity.CUDA)
    with profile(activities=kinds) as profiler:
        for step in range(5):
            with record_function(f"ProfilerStep#{step}"):
                training.plain()
    profiler.export_chrome_trace(str(trace))
    command = [sys.executable, "-c", "from sfapp.cli import main; main()", "import", "kineto", str(trace)]
    document = json.loads(run_here([*command, "-o", str(packets), "--json"]))
    window = read_window(packets)
    (found,) = document["windows"]
    shares = ", ".join(
        f"{stage} {window.duration_SNR[place].sum() / window.wall_NR.sum():.0%}"
        for place, stage in enumerate(window.stages)
    )
    return [
        "",
        f"`sfapp import kineto` of a trace of {trace.stat().st_size / 1e6:.1f} MB: {found['steps']} steps, "
        f"{found['operators']:,} operator events; parts of the step: {shares}.",
        *(f"- {note['kind']}: {note['what']} {note['where']}" for note in found["notes"]),
    ]


def _check(deadline: float, why: str) -> None:
    if time.monotonic() > deadline:
        raise SectionFailed(why)


# ---- what the recorder costs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Blocks:
    """Parameters of the measurement of a step length, as in ``benchmarks.recorder``, with one rank."""

    step_ms: float
    width: int
    rounds: int
    groups: int
    steps: int


BLOCKS = (Blocks(5.0, 512, 40, 4, 25), Blocks(20.0, 1024, 12, 4, 25), Blocks(100.0, 1024, 6, 4, 10))


def overhead(setup: Setup) -> list[str]:
    """Measure throughput with the recorder and without it, in turn, at three lengths of a step."""
    lines = ["```text", COLUMNS]
    for blocks in BLOCKS:
        if setup.is_quick:
            blocks = Blocks(blocks.step_ms / 10, 64, 2, 1, 5)
        lines.append(_measured(setup, blocks).line("sfapp"))
    return [
        *lines,
        "```",
        "",
        "One rank, an encoder of two layers, AdamW, the loss read in every step; events in a twentieth of "
        "the steps, waits watched. Columns as in [overhead.md](overhead.md).",
    ]


def _measured(setup: Setup, blocks: Blocks) -> OverheadEstimate:
    training = DeviceTraining(setup.device, blocks.step_ms, blocks.width)
    root = setup.folder / f"overhead-{blocks.step_ms:g}"
    with sfapp.Recorder(root, run_id="bench", event_fraction=0.05, gather="local") as perf:
        perf.watch_waits(training.model)
        if not setup.is_quick:  # One window, then part of a block: windows close within a block.
            training.block(100 + blocks.steps // 2, lambda: training.recorded(perf))
        return _rounds(training, perf, blocks)


def _rounds(training: DeviceTraining, perf: sfapp.Recorder, blocks: Blocks) -> OverheadEstimate:
    kinds = iter(schedule(blocks.rounds * blocks.groups))
    seconds = [[0.0 for _ in KINDS] for _ in range(blocks.rounds)]
    for second_K in seconds:
        for kind in itertools.islice(kinds, blocks.groups * len(KINDS)):
            step = (lambda: training.recorded(perf)) if kind == ON else training.plain
            second_K[kind] += training.block(blocks.steps, step)
    return OverheadEstimate.of([seconds], blocks.groups * blocks.steps, late=0)


def run_here(command: list[str]) -> str:
    """Run a command of this tree and return its output.

    Raises:
        SectionFailed: it failed, or took too long.
    """
    root = Path(__file__).resolve().parent.parent
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, timeout=LAUNCH_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise SectionFailed(f"{' '.join(command[1:4])} took longer than {LAUNCH_SECONDS} s") from error
    if done.returncode:
        raise SectionFailed(f"{' '.join(command[1:4])} failed:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout
