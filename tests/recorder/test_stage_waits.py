"""Waits inside stages, stored with the rows of a window; in one process, with the test's clock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

from sfapp import Recorder
from sfapp.model import Accumulation
from sfapp.model.stages import RECORDED_STAGES
from sfapp.model.window import NOT_MEASURED
from sfapp.packets import read_window, read_windows
from tests.builders import BACKWARD, DATA, FORWARD
from tests.recorder.clocked_recorder import Clock, recorder

pytestmark = pytest.mark.usefixtures("hot_path")

BACKWARD_AT = RECORDED_STAGES.index(BACKWARD)

ACCUMULATION = Accumulation(factor=2, ordered=False)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("store") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Computing(torch.autograd.Function):
    """Identity whose gradient takes 30 ns to compute."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, clock: Clock) -> torch.Tensor:
        ctx.clock = clock
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.clock.tick(30)
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: ctx.clock.tick(12))  # as DistributedDataParallel waits at the end
        return gradients[0], None


class BackwardModel(torch.nn.Module):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.clock = clock

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Computing.apply(self.linear(x), self.clock)


def backward(perf: Recorder, clock: Clock, model: torch.nn.Module) -> None:
    """Pass backward: 30 ns until the last gradient, 12 ns until its end."""
    loss = model(torch.ones(1, 2)).sum()
    with perf.stage(BACKWARD):
        loss.backward()


@pytest.mark.usefixtures("group")
def test_what_follows_the_last_gradient_is_a_wait_in_every_step(tmp_path: Path, clock: Clock) -> None:
    model = DistributedDataParallel(BackwardModel(clock))
    with recorder(tmp_path, clock, window_steps=4) as perf:
        perf.watch_waits(model)
        for _ in range(10):
            with perf.step():
                backward(perf, clock, model)
    for found in read_windows([tmp_path]).windows:
        steps = len(found.window.step_N)
        assert found.window.duration_SNR[BACKWARD_AT, :, 0].tolist() == [42] * steps
        assert found.window.waits[BACKWARD][:, 0].tolist() == [12] * steps
        assert set(found.window.waits) == {BACKWARD}


@pytest.mark.usefixtures("group")
def test_own_time_of_an_earlier_micro_step_in_the_same_stage_is_no_wait(tmp_path: Path, clock: Clock) -> None:
    """Micro-steps that are not kept apart add up in one stage; only the last one exchanges gradients."""
    model = DistributedDataParallel(BackwardModel(clock))
    with recorder(tmp_path, clock, window_steps=5, accumulation=ACCUMULATION) as perf:
        perf.watch_waits(model)
        for _ in range(5):
            with perf.step():
                with model.no_sync():
                    loss = model(torch.ones(1, 2)).sum()
                    with perf.stage(BACKWARD):
                        loss.backward()
                backward(perf, clock, model)
    window = read_window(tmp_path)
    assert window.duration_SNR[BACKWARD_AT, :, 0].tolist() == [84] * 5
    assert window.waits[BACKWARD][:, 0].tolist() == [12] * 5


@pytest.mark.usefixtures("group")
def test_a_step_that_raised_leaves_no_wait_to_the_next(tmp_path: Path, clock: Clock) -> None:
    model = DistributedDataParallel(BackwardModel(clock))
    with recorder(tmp_path, clock) as perf:
        perf.watch_waits(model)
        with contextlib.suppress(ValueError), perf.step():
            backward(perf, clock, model)
            raise ValueError
        with perf.step(), perf.stage(FORWARD):
            clock.tick(5)
        with perf.step():
            backward(perf, clock, model)
    wait_N = read_window(tmp_path).waits[BACKWARD][:, 0]
    assert wait_N.tolist() in ([0, 12], [NOT_MEASURED, 12])


def exchanged(function: str, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    if function == "functional":
        reduced: torch.Tensor = functional.all_reduce(y, "sum", [0])
        return reduced
    if function == "gathered":
        gathered = [torch.empty_like(y)]
        dist.all_gather(gathered, y)
        return gathered[0]
    if function == "defined elsewhere":
        dist.distributed_c10d.all_reduce(y, op=dist.ReduceOp.MAX)
    else:
        dist.all_reduce(y, op=dist.ReduceOp.MAX)
    return y


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("function", ["usual", "defined elsewhere", "gathered", "functional"])
def test_code_with_collectives_is_compiled_to_one_graph_as_without_a_recorder(
    tmp_path: Path, function: str
) -> None:
    """``fullgraph`` raises where the compiler meets what it does not know, such as a clock."""
    torch.compiler.reset()
    graphs = []

    def compile_graph(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    run = torch.compile(lambda x: exchanged(function, x) + 1, backend=compile_graph, fullgraph=True)
    for run_id in ("first", "second"):
        with Recorder(tmp_path, run_id=run_id) as perf:
            perf.watch_waits()
            for _ in range(3):
                with perf.step(), perf.stage(FORWARD):
                    assert run(torch.ones(2)).tolist() == [2, 2]
        assert run(torch.ones(2)).tolist() == [2, 2]
    assert len(graphs) <= 2  # with and without a recorder


@pytest.mark.usefixtures("group")
def test_a_function_that_training_replaces_meanwhile_stays_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dist.broadcast, dist.Work.wait
    calls = []

    def replacement(tensor: torch.Tensor) -> None:
        calls.append(tensor)

    monkeypatch.setattr(dist, "all_reduce", dist.all_reduce)  # It is put back after the test.
    for run_id in ("first", "second"):
        with Recorder(tmp_path, run_id=run_id) as perf:
            perf.watch_waits()
            assert dist.Work.wait is not before[1]
            if run_id == "first":
                dist.__dict__["all_reduce"] = replacement
            dist.all_reduce(torch.ones(1))
        dist.all_reduce(torch.ones(1))
    assert len(calls) == 4
    assert dist.all_reduce is replacement
    assert (dist.broadcast, dist.Work.wait) == before


@pytest.mark.usefixtures("group")
def test_two_recorders_of_a_thread_each_have_their_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def barrier() -> None:
        time.sleep(0.001)

    def wait_in(perf: Recorder) -> None:
        with perf.step(), perf.stage(BACKWARD):
            dist.barrier()

    monkeypatch.setattr(dist, "barrier", barrier)
    with Recorder(tmp_path, run_id="outer") as outer:
        outer.watch_waits()
        wait_in(outer)
        with Recorder(tmp_path, run_id="inner") as inner:
            inner.watch_waits()
            wait_in(outer)
            wait_in(inner)
        wait_in(outer)
    waits = {found.window.run_id: found.window.waits[BACKWARD] for found in read_windows([tmp_path]).windows}
    assert {run_id: len(wait_NR) for run_id, wait_NR in waits.items()} == {"outer": 3, "inner": 1}
    assert all((wait_NR >= 1_000_000).all() for wait_NR in waits.values())


def add(perf: Recorder, waits: dict[str, int], clock: Clock) -> None:
    clock.tick(100)
    perf.add_step(100, [{DATA: 10, FORWARD: 20, BACKWARD: 70}], waits=[waits])


def test_waits_are_known_from_the_first_one_in_their_stage_on(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, window_steps=3) as perf:
        for waits in ({}, {BACKWARD: 7}, {}, {}, {BACKWARD: 9, FORWARD: 500}, {}):
            add(perf, waits, clock)
    first, second = (found.window for found in read_windows([tmp_path]).windows)
    assert first.waits[BACKWARD][:, 0].tolist() == [NOT_MEASURED, 7, 0]
    assert set(first.waits) == {BACKWARD}
    assert second.waits[BACKWARD][:, 0].tolist() == [0, 9, 0]
    # A stage waits no longer than it lasts.
    assert second.waits[FORWARD][:, 0].tolist() == [NOT_MEASURED, 20, 0]


def test_waits_of_a_stage_with_a_long_name_are_left_out_with_a_reason(tmp_path: Path, clock: Clock) -> None:
    name = "a" * 80
    with recorder(tmp_path, clock, stages=(name, BACKWARD)) as perf:
        clock.tick(50)
        perf.add_step(50, [{name: 20, BACKWARD: 30}], waits=[{name: 5, BACKWARD: 6}])
    window = read_window(tmp_path)
    assert set(window.waits) == {BACKWARD}
    assert f"wait.{name}" in window.manifest.extra["side_faults"]


def test_other_stages_take_over_no_waits(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf:
        add(perf, {BACKWARD: 7}, clock)
        perf.reconfigure(stages=("other", BACKWARD))
        clock.tick(50)
        perf.add_step(50, [{"other": 20, BACKWARD: 30}], waits=[{"other": 3}])
        add(perf, {}, clock)
    first, second = (found.window for found in read_windows([tmp_path]).windows)
    assert {name: wait_NR[:, 0].tolist() for name, wait_NR in first.waits.items()} == {BACKWARD: [7]}
    assert {name: wait_NR[:, 0].tolist() for name, wait_NR in second.waits.items()} == {"other": [3, 0]}
