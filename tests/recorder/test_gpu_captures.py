"""A capture beside a CUDA device has the device's events, and a trace with them can be imported."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import sfapp
from sfapp.importers import ImportOptions, read_traces
from sfapp.model.capture import CaptureLimits
from sfapp.model.operators import CATEGORIES, Operators
from sfapp.model.stages import BACKWARD, FORWARD
from sfapp.packets import read_operators
from sfapp.packets.captures import ask_for_capture, new_request, state_of
from sfapp.packets.paths import operators_path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]

SECONDS = 60.0


def step(model: torch.nn.Module, batch: torch.Tensor) -> None:
    model(batch).square().mean().backward()
    torch.cuda.synchronize()


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(3))).cuda()


@pytest.fixture(scope="module")
def batch() -> torch.Tensor:
    return torch.ones(32, 256, device="cuda")


def counts(events: Operators) -> Counter[str]:
    return Counter(CATEGORIES[category] for category in events.category_E.tolist())


def check_device_events(events: Operators) -> None:
    """Kernels lie on a stream, in the step of their launch, and are tied to it."""
    assert counts(events)["kernel"] > 0
    assert counts(events)["runtime"] > 0
    kernels = [place for place, kind in enumerate(events.category_E) if CATEGORIES[kind] == "kernel"]
    assert all(events.lanes[events.lane_E[place]].is_device for place in kernels)
    launches = {
        correlation
        for correlation, kind in zip(events.correlation_E.tolist(), events.category_E, strict=True)
        if CATEGORIES[kind] == "runtime"
    }
    assert any(int(events.correlation_E[place]) in launches for place in kernels)


def test_a_capture_contains_kernels_and_host_operators(
    tmp_path: Path, model: torch.nn.Module, batch: torch.Tensor
) -> None:
    request = new_request("run", [0], steps=3, first_step=4)
    ask_for_capture(tmp_path, request)
    limits = CaptureLimits(cooldown_seconds=0.0)
    deadline = time.monotonic() + SECONDS
    with sfapp.Recorder(tmp_path, run_id="run", window_steps=10, captures=limits) as perf:
        while not state_of(tmp_path, request).ranks:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for _ in range(10):
            with perf.step():
                with perf.stage(FORWARD):
                    loss = model(batch).square().mean()
                with perf.stage(BACKWARD):
                    loss.backward()
        while not (state := state_of(tmp_path, request)).is_over:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert state.status == "done", state.ranks
    events = read_operators(operators_path(tmp_path, "run", 0, 0))
    assert set(events.step_E[events.step_E >= 0].tolist()) == {4, 5, 6}
    check_device_events(events)


def test_a_trace_with_the_device_s_activity_is_imported(
    tmp_path: Path, model: torch.nn.Module, batch: torch.Tensor
) -> None:
    step(model, batch)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for number in range(4):
            with record_function(f"ProfilerStep#{number}"):
                step(model, batch)
    trace = tmp_path / "rank0.json"
    profiler.export_chrome_trace(str(trace))
    found = read_traces("kineto", [trace], ImportOptions())
    assert found.refused == ()
    (window,) = found.windows
    assert len(window.draft.step_N) == 4
    assert window.operators is not None
    check_device_events(window.operators)
