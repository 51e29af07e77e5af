"""What is measured beside the ordered stages, and what a strict recorder refuses."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sfapp.errors import RecorderError
from sfapp.model.stages import FORWARD_EVENT
from sfapp.packets import read_window
from sfapp.packets.window_rows import MAX_CHANNELS, is_sampled, unsampled
from sfapp.recorder import Recorder
from sfapp.recorder.side_channels import recorded_channels
from sfapp.recorder.side_channels.channels import EventSample, EventSampler
from tests.builders import BACKWARD, DATA, FORWARD
from tests.recorder.clocked_recorder import Clock, recorder, train
from tests.recorder.device_standins import DeviceStandIn, Event, HostDevice

pytestmark = pytest.mark.usefixtures("hot_path")


def test_a_side_channel_adds_up_over_its_step_inside_a_stage_or_round_several(
    tmp_path: Path, clock: Clock
) -> None:
    with recorder(tmp_path, clock) as perf:
        with perf.step():
            with perf.stage(DATA), perf.side_channel("decode_ms"):
                clock.tick(2_000_000)
            with perf.side_channel("model_ms"):
                with perf.stage(FORWARD):
                    clock.tick(1_000_000)
                with perf.stage(BACKWARD), perf.side_channel("decode_ms"):
                    clock.tick(500_000)
        train(perf, clock, steps=2)
    window = read_window(tmp_path)
    assert window.side["decode_ms"].value_NR[0, 0] == 2.5
    assert window.side["model_ms"].value_NR[0, 0] == 1.5
    assert window.side["decode_ms"].sampled_NR[:, 0].tolist() == [True, False, False]
    assert math.isnan(window.side["decode_ms"].value_NR[1, 0])
    # the stages are what they are without it
    assert window.duration_SNR[1:4, 0, 0].tolist() == [2_000_000, 1_000_000, 500_000]
    assert window.manifest.faults == ()


def test_a_side_channel_inside_itself_counts_once(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf, perf.step(), perf.side_channel("x"):
        clock.tick(1_000_000)
        with perf.side_channel("x"):
            clock.tick(1_000_000)
    assert read_window(tmp_path).side["x"].value_NR[0, 0] == 2.0


def test_a_value_can_be_noted_for_a_step(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf, perf.step():
        perf.observe("memory.allocated_bytes", 1 << 34)
        perf.observe("memory.allocated_bytes", 1 << 35)
    assert read_window(tmp_path).side["memory.allocated_bytes"].value_NR[0, 0] == float(1 << 35)


def test_a_step_that_raised_leaves_nothing_to_the_next(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf:
        with contextlib.suppress(ValueError), perf.step():
            perf.observe("x", 1.0)
            raise ValueError
        train(perf, clock)
        with perf.step():
            perf.observe("x", 3.0)
    assert read_window(tmp_path).side["x"].sampled_NR[:, 0].tolist() == [False, True]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("x", math.inf, "not a finite number"),
        ("x", math.nan, "not a finite number"),
        ("x", "many", "not a finite number"),
        ("x", 10**400, "not a finite number"),
        ("x", torch.ones(2), "not a finite number"),
        ("no spaces", 1.0, "name refused"),
        ("", 1.0, "name refused"),
        ("x" * 65, 1.0, "name refused"),
    ],
)
def test_a_value_that_no_packet_can_hold_is_reported_and_limits_nothing(
    tmp_path: Path, clock: Clock, name: str, value: Any, why: str
) -> None:
    with recorder(tmp_path, clock) as perf, perf.step():
        perf.observe(name, value)
        with perf.side_channel(name):
            clock.tick(1)
    manifest = read_window(tmp_path).manifest
    assert manifest.extra["side_faults"][name].startswith(why)
    assert manifest.faults == ()


@pytest.mark.parametrize(
    ("name", "recorded_name"),
    [(["x"], "list"), (7, "int"), (None, "NoneType"), ("half \ud83d", r"half \ud83d")],
)
def test_an_invalid_name_is_reported_and_limits_nothing(
    tmp_path: Path, clock: Clock, name: Any, recorded_name: str
) -> None:
    with recorder(tmp_path, clock, event_fraction=1.0) as perf, perf.step():
        perf.observe(name, 1.0)
        perf.observe(name, math.nan)
        with perf.side_channel(name), perf.cuda_event_sample(name):
            clock.tick(1)
    window = read_window(tmp_path)
    assert window.manifest.extra["side_faults"][recorded_name].startswith("name refused")
    assert window.manifest.faults == ()
    assert window.side == {}


def test_too_many_channels_are_reported_and_the_first_ones_stay(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf, perf.step():
        for number in range(MAX_CHANNELS + 5):
            perf.observe(f"x{number}", 1.0)
    window = read_window(tmp_path)
    assert len(window.side) == MAX_CHANNELS
    assert sorted(window.manifest.extra["side_faults"]) == [
        f"x{number}" for number in range(MAX_CHANNELS, MAX_CHANNELS + 5)
    ]


def test_a_value_outside_a_step_is_reported(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf:
        perf.observe("x", 1.0)
        train(perf, clock)
    assert read_window(tmp_path).manifest.extra["side_faults"] == {"x": "outside a step"}


def test_a_nested_stage_is_dropped_and_its_time_is_reported(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf, perf.step(), perf.stage(FORWARD):
        clock.tick(100)
        with perf.stage(DATA):
            clock.tick(40)
    window = read_window(tmp_path)
    assert window.duration_SNR[1:3, 0, 0].tolist() == [0, 140]
    assert window.manifest.faults == ("nested_stages",)
    assert window.manifest.extra["nested_ns"] == 40


def test_a_strict_recorder_raises_where_a_stage_is_nested_or_outside_a_step(
    tmp_path: Path, clock: Clock
) -> None:
    with recorder(tmp_path, clock, strict=True) as perf:
        inside = pytest.raises(RecorderError, match=r"inside stage 'model.fwd_loss_cpu_wall'")
        with inside, perf.step(), perf.stage(FORWARD), perf.stage(DATA):
            pass
        with pytest.raises(RecorderError, match="outside a step"), perf.stage(DATA):
            pass
        train(perf, clock)
    window = read_window(tmp_path)
    assert window.step_N.tolist() == [1]
    assert window.manifest.faults == ()


# --- device events: the CUDA path with events whose readiness the test decides ------------------------------


def sampled(device: DeviceStandIn | None = None) -> tuple[EventSampler, EventSample, dict[str, Any]]:
    place: dict[str, Any] = {"values": unsampled(10), "row": 0}
    sampler = EventSampler(1.0, device or DeviceStandIn())
    return sampler, EventSample(sampler, "x", lambda _: (place["values"], place["row"])), place


def region(context: EventSample, ms: float) -> None:
    with context:
        Event.now += ms


def happen(sampler: EventSampler) -> None:
    """All that was recorded has happened, and is taken in."""
    for begin, end, _, _ in sampler._waiting:
        begin.happened = end.happened = True
    sampler.poll()


def test_an_event_is_taken_in_when_it_has_happened_and_never_waited_for() -> None:
    sampler, context, place = sampled()
    region(context, 5.0)
    sampler.poll()
    assert math.isnan(place["values"][0])
    happen(sampler)
    assert place["values"][0] == 5.0


def test_events_are_sampled_in_the_same_fixed_fraction_of_steps_on_every_rank() -> None:
    for fraction, count in ((0.05, 5), (0.25, 25), (1.0, 100), (0.3, 30)):
        sampler = EventSampler(fraction, DeviceStandIn())
        assert sum(sampler.samples(step) for step in range(100)) == count


@pytest.mark.parametrize("fraction", [1.0, 0.7, 0.3, 0.05, 0.0013])
def test_the_next_sampled_step_is_the_first_one_from_a_step_on(fraction: float) -> None:
    sampler = EventSampler(fraction, DeviceStandIn())
    steps = [*range(1500), *range(10**9, 10**9 + 50)]
    for step in steps:
        found = step
        while not sampler.samples(found):
            found += 1
        assert sampler.next_sample(step) == found


def test_steps_without_events_are_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_channels, "cuda_device", lambda: (HostDevice(), ""))
    due = []
    with Recorder(tmp_path, run_id="run", event_fraction=0.25, gather="local", first_step=8) as perf:
        for _ in range(12):
            with perf.step(), perf.cuda_event_sample():
                pass
            due.append(perf._state.report_due)
    assert due == [11] * 3 + [15] * 4 + [19] * 4 + [23]
    channel = read_window(tmp_path).side[FORWARD_EVENT]
    assert np.flatnonzero(np.isfinite(channel.value_NR[:, 0])).tolist() == [3, 7, 11]


def test_no_more_pairs_than_the_pool_has_are_under_way() -> None:
    sampler, context, place = sampled()
    for row in range(10):
        place["row"] = row
        for _ in range(10):
            region(context, 1.0)
    assert len(sampler._waiting) == EventSampler.MAX_PAIRS
    sampler.drop()
    assert len(sampler._free) == EventSampler.MAX_PAIRS
    # after the window, nothing is written into it any more
    assert math.isnan(place["values"][0])


def test_a_region_inside_itself_counts_once() -> None:
    sampler, context, place = sampled()
    with context:
        region(context, 2.0)
        Event.now += 3.0
    assert len(sampler._waiting) == 1
    happen(sampler)
    assert place["values"][0] == 5.0


def test_a_region_that_began_on_a_stream_that_is_behind_is_not_ready_yet() -> None:
    sampler, context, place = sampled()
    region(context, 5.0)
    sampler._waiting[0][1].happened = True
    sampler.poll()
    assert math.isnan(place["values"][0])


def test_no_event_is_touched_while_a_graph_is_captured() -> None:
    device = DeviceStandIn()
    sampler, context, place = sampled(device)
    region(context, 5.0)
    device.capturing = True
    region(context, 5.0)
    assert len(sampler._waiting) == 1
    happen(sampler)
    assert math.isnan(place["values"][0])
    device.capturing = False
    happen(sampler)
    assert place["values"][0] == 5.0


def test_a_device_that_refuses_ends_the_sampling_and_nothing_else() -> None:
    device = DeviceStandIn()
    sampler, context, place = sampled(device)
    device.broken = True
    region(context, 5.0)
    region(context, 5.0)
    sampler.drop()
    assert sampler.error == "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert not is_sampled(place["values"].view("int64")).any()


def test_without_a_device_the_channel_gives_the_reason(tmp_path: Path, clock: Clock, hot_path: str) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with recorder(tmp_path, clock, event_fraction=0.05) as perf, perf.step(), perf.cuda_event_sample():
        clock.tick(1)
    window = read_window(tmp_path)
    assert not window.side["model.fwd_loss_cuda_event_ms"].sampled_NR.any()
    extra = {"event_fraction": 0.05, "no_events": "no CUDA device", "timed_in": hot_path}
    assert window.manifest.extra == extra


def test_events_without_a_request_leave_no_channel(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf, perf.step(), perf.cuda_event_sample():
        clock.tick(1)
    assert read_window(tmp_path).side == {}
