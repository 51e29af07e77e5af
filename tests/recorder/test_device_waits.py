"""Waits on the device: which calls are timed, in which steps, and when their times are stored.

The events are stand-ins, the rest is what runs beside a CUDA device; test_gpu.py has the same with one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from sfapp import Recorder
from sfapp.model import Accumulation
from sfapp.model.host_evidence import EVIDENCE_PREFIX
from sfapp.packets import read_windows
from sfapp.packets.window_rows import (
    FIRST_STAGE_COLUMN,
    MAX_CHANNELS,
    Values,
    WindowSchema,
    is_sampled,
    unsampled,
)
from sfapp.recorder.side_channels import recorded_channels
from sfapp.recorder.side_channels.channels import EventSampler
from sfapp.recorder.side_channels.communication import COMMUNICATION
from sfapp.recorder.side_channels.device_waits import DeviceCalls, DeviceWaits, device_wait_channel
from sfapp.recorder.side_channels.stage_waits import WatchedWaits
from sfapp.recorder.timing.timer_backend import new_state
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD
from tests.recorder.device_standins import DeviceStandIn, Event, HostDevice, collective, data_parallel

pytestmark = [pytest.mark.usefixtures("hot_path"), pytest.mark.usefixtures("group")]

STAGES = (DATA, FORWARD, BACKWARD, CALLBACKS)
STEPS = 20


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("store") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class TimedCalls:
    """Steps whose calls of torch.distributed are timed on a stand-in for a device, one row each."""

    def __init__(
        self, fraction: float = 1.0, pairs: int = 64, backend: str = "gloo", model: Any = None
    ) -> None:
        schema = WindowSchema.of(STAGES, Accumulation(), None)
        self.state = new_state(lambda: 0, self._finish_step, lambda: None, lambda *seen: None)
        self.state.use(schema.column_of, len(STAGES))
        self.state.next_page(STEPS)
        self.state.report_due = 0
        self.device = DeviceStandIn()
        self.values: dict[str, Values] = {}
        self.sampler = EventSampler(fraction, self.device, pairs)
        self.calls = DeviceCalls(self.sampler, self.state, self._open_column, backend)
        self.waits = DeviceWaits(self.sampler, self._values_of)
        self.watched = WatchedWaits(self.state, model, lambda name: True, pytest.fail, self.calls)
        self.watched.next_page(len(self.state.page))
        self._step = self.state.new_step()

    def __enter__(self) -> TimedCalls:
        return self

    def __exit__(self, *error: object) -> None:
        self.watched.close()

    def step(self, stage: str, *bodies: Callable[[], object]) -> None:
        with self._step, self.state.find_stage(stage):
            for body in bodies:
                body()

    def happen(self) -> None:
        """Let all happen that was recorded, and end the window's next look at it."""
        for begin, end, _, _ in self.sampler._waiting:
            begin.happened = end.happened = True
        self.waits._poll(self._stages)

    def of(self, stage: str) -> list[float | None]:
        """Return the values of a stage in the steps so far: None where nothing was sampled."""
        values = self.values.get(device_wait_channel(stage), unsampled(STEPS))[: self.state.number]
        sampled = is_sampled(values.view("int64"))
        return [float(value) if seen else None for value, seen in zip(values, sampled, strict=True)]

    @property
    def _stages(self) -> Sequence[str]:
        return (*STAGES, "step.other_cpu_wall")

    def _open_column(self) -> int:
        stage = self.state.open_stage
        assert stage is not None
        return stage.index - FIRST_STAGE_COLUMN

    def _values_of(self, name: str) -> Values:
        return self.values.setdefault(name, unsampled(STEPS))

    def _finish_step(self, begin: int, end: int, completed: bool) -> None:
        if completed:
            step = self.calls.take()
            column_of = () if step is None else step.places
            self.waits.finish_step(step, column_of, self.state.base // self.state.width, self._stages)
            self.watched.end_step()
            self.state.add_row(end - begin)
        else:
            self.calls.take()
            self.state.clear_row()
        self.state.number += 1


def compute(ms: float) -> Callable[[], None]:
    """Return work of the stream that is no wait."""

    def call() -> None:
        Event.now += ms

    return call


def test_a_call_that_holds_up_the_stream_is_timed_in_its_stage() -> None:
    with TimedCalls() as job:
        job.step(FORWARD, compute(3.0), collective(2.0), compute(3.0), collective(5.0))
        job.step(FORWARD, collective(1.0))
        job.happen()
        assert job.of(FORWARD) == [7.0, 1.0]
        assert list(job.values) == [device_wait_channel(FORWARD)]


def test_only_steps_that_are_sampled_are_timed() -> None:
    with TimedCalls(fraction=0.25) as job:
        for _ in range(8):
            job.step(FORWARD, collective(2.0))
        job.happen()
        assert job.of(FORWARD) == [None, None, None, 2.0, None, None, None, 2.0]
        assert job.sampler.ended_pairs == 2


def test_a_column_is_zero_in_sampled_steps_in_which_nothing_was_waited_for() -> None:
    with TimedCalls() as job:
        job.step(DATA, compute(1.0))
        job.step(FORWARD, collective(2.0))
        job.step(BACKWARD, collective(4.0))
        job.step(DATA, compute(1.0))
        job.happen()
        assert job.of(FORWARD) == [None, 2.0, 0.0, 0.0]
        assert job.of(BACKWARD) == [None, None, 4.0, 0.0]


def test_calls_on_groups_of_another_backend_are_not_timed() -> None:
    with TimedCalls(backend="nccl") as job:
        job.step(FORWARD, collective(2.0))
        assert job.sampler.ended_pairs == 0
        assert not job.calls.times_group(None)


def test_the_group_of_a_call_is_found_among_its_arguments() -> None:
    other = dist.new_group([0], backend="gloo")
    with TimedCalls() as job:
        job.step(FORWARD, collective(2.0, group=other))
        job.step(FORWARD, lambda: dist.all_reduce(torch.ones(1), dist.ReduceOp.SUM, other))
        assert job.sampler.ended_pairs == 2
    dist.destroy_process_group(other)
    assert not job.calls.times_group(other)
    assert not job.calls.times_group(dist.GroupMember.NON_GROUP_MEMBER)


def test_a_step_has_no_value_before_all_its_events_have_happened() -> None:
    with TimedCalls() as job:
        job.step(FORWARD, collective(2.0), collective(3.0))
        first, second = job.sampler._waiting
        for event in first[:2]:
            event.happened = True
        job.step(DATA)
        assert [math.isnan(value) for value in job.of(FORWARD) if value is not None] == [True, True]
        for event in second[:2]:
            event.happened = True
        job.step(DATA)
        assert job.of(FORWARD) == [5.0, 0.0, 0.0]


def test_events_that_have_not_happened_by_the_end_of_the_window_are_sampled_and_missing() -> None:
    with TimedCalls() as job:
        job.step(FORWARD, collective(2.0))
        job.waits.end_window(job._stages)
        job.happen()
        (value,) = job.of(FORWARD)
        assert value is not None
        assert math.isnan(value)
        assert not job.sampler.waiting_pairs
        assert len(job.sampler._free) == 1


def test_calls_of_a_step_that_has_not_ended_belong_to_the_next_window() -> None:
    with TimedCalls() as job:
        job.step(FORWARD, collective(2.0))
        job.step(FORWARD, collective(3.0), lambda: job.waits.end_window(job._stages), collective(4.0))
        job.happen()
        first, second = job.of(FORWARD)
        assert first is not None
        assert math.isnan(first)
        assert second == 7.0


def test_pairs_of_events_that_have_happened_are_used_again_within_a_step() -> None:
    with TimedCalls(pairs=2) as job:
        job.step(FORWARD, *[collective(1.0), job.happen] * 5)
        job.happen()
        assert job.of(FORWARD) == [5.0]


def test_a_step_with_more_calls_than_pairs_has_no_value() -> None:
    with TimedCalls(pairs=4) as job:
        job.step(FORWARD, *[collective(1.0)] * 4)
        job.step(FORWARD, collective(1.0))  # no pair is free yet
        job.happen()
        job.step(FORWARD, *[collective(1.0)] * 3)
        job.happen()
        assert job.of(FORWARD) == [4.0, None, 3.0]


def test_a_step_that_raised_leaves_nothing_to_the_next() -> None:
    def fail() -> None:
        raise ValueError

    with TimedCalls() as job:
        with pytest.raises(ValueError):
            job.step(FORWARD, collective(2.0), fail)
        job.step(FORWARD, collective(3.0))
        job.happen()
        assert job.values[device_wait_channel(FORWARD)][:2].tolist()[0] == 3.0


def test_no_event_is_recorded_while_a_graph_is_captured_and_the_step_has_no_value() -> None:
    with TimedCalls() as job:
        job.device.capturing = True
        job.step(FORWARD, collective(2.0))
        job.device.capturing = False
        job.step(FORWARD, collective(3.0))
        job.happen()
        assert job.of(FORWARD) == [None, 3.0]


def test_a_device_that_refuses_ends_the_sampling_and_nothing_else() -> None:
    with TimedCalls() as job:
        job.device.broken = True
        job.step(FORWARD, collective(2.0))
        job.step(FORWARD, collective(2.0))
        assert job.waits.error.startswith("RuntimeError: CUDA error")
        assert job.values == {}
        assert job.state.number == 2


def test_nothing_is_timed_once_the_recorder_is_closed() -> None:
    with TimedCalls() as job:
        pass
    job.step(FORWARD, collective(2.0))
    assert not COMMUNICATION._threads
    assert job.sampler.ended_pairs == 0


# ---- DistributedDataParallel ---------------------------------------------------------------------------


def test_backward_waits_from_the_last_gradient_until_the_stream_has_all_buckets() -> None:
    model = data_parallel()
    with TimedCalls(model=model) as job:
        for _ in range(6):  # the first three find the last gradient
            loss = model(torch.ones(1, 2)).sum()
            job.step(BACKWARD, loss.backward)
        job.happen()
        assert job.of(BACKWARD) == [4.0] * 6


def test_a_backward_pass_that_raised_has_no_wait_and_the_next_one_has() -> None:
    def fail(_: torch.Tensor) -> None:
        raise ValueError

    def backward(job: TimedCalls, *hooks: Callable[[torch.Tensor], None]) -> Callable[[], None]:
        leaf = torch.ones(1, requires_grad=True)
        inner = leaf * 1.0
        for hook in hooks:
            leaf.register_hook(hook)
        loss = inner * 1.0
        loss.register_hook(lambda _: job.calls.gradient_is_ready())
        return loss.backward

    with TimedCalls() as job:
        with contextlib.suppress(ValueError):
            job.step(BACKWARD, backward(job, fail))
        job.step(BACKWARD, backward(job))
        job.happen()
        assert job.sampler.ended_pairs == 1
        assert job.of(BACKWARD)[0] == 0.0
        assert len(job.sampler._free) == 1


def test_a_packet_holds_them_as_a_side_channel_in_ms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_channels, "cuda_device", lambda: (HostDevice(), ""))
    monkeypatch.setattr(dist, "get_backend_config", lambda group=None: "cuda:nccl")
    model = data_parallel()
    with Recorder(tmp_path, run_id="run", window_steps=8, event_fraction=0.5, gather="local") as perf:
        perf.watch_waits(model)
        for _ in range(8):
            loss = model(torch.ones(1, 2)).sum()
            with perf.step(), perf.stage(BACKWARD):
                loss.backward()
    (found,) = read_windows([tmp_path]).windows
    channel = found.window.side["device_wait.model.backward_cpu_wall_ms"]
    assert channel.sampled_NR[:, 0].tolist() == [False, True] * 4
    wait_N = found.window.waits[BACKWARD][:, 0] / 1e6
    # Here the device does everything at once, so that it waits no longer than the host.
    assert (channel.value_NR[1::2, 0] > 4.0).all()
    assert (channel.value_NR[1::2, 0] <= wait_N[1::2] + 0.5).all()
    assert "side_faults" not in found.window.manifest.extra


def test_waits_of_the_host_come_first_where_channels_are_scarce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_channels, "cuda_device", lambda: (HostDevice(), ""))
    monkeypatch.setattr(dist, "get_backend_config", lambda group=None: "cuda:nccl")
    micro_steps, stages = 8, (FORWARD, BACKWARD)
    with Recorder(
        tmp_path,
        run_id="run",
        window_steps=2,
        event_fraction=1.0,
        gather="local",
        accumulation=Accumulation(factor=micro_steps),
    ) as perf:
        perf.watch_waits()
        for _ in range(2):
            with perf.step():
                for micro in range(micro_steps):
                    with perf.micro_step(micro):
                        for stage in stages:
                            with perf.stage(stage):
                                dist.barrier()
    (found,) = read_windows([tmp_path]).windows
    host = {f"{stage}[{micro}]" for stage in stages for micro in range(micro_steps)}
    assert found.window.waits.keys() == host
    own = [name for name in found.window.side if not name.startswith(EVIDENCE_PREFIX)]
    assert len(own) == MAX_CHANNELS - len(host)
    assert set(own) < {device_wait_channel(stage) for stage in host}
