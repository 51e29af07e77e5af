"""Waits on the device of an unmodified script: assigned to stages after the step, over real groups.

The events are stand-ins, and Gloo's groups say that they are NCCL's; test_gpu_waits.py has a real device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from sfapp.model import Window
from sfapp.packets import read_windows
from sfapp.recorder.auto import script_waits
from sfapp.recorder.auto.session import Session
from sfapp.recorder.auto.settings import Settings
from sfapp.recorder.side_channels.communication import COMMUNICATION
from sfapp.recorder.side_channels.device_waits import device_wait_channel
from tests.builders import BACKWARD, FORWARD, OPTIMIZER
from tests.recorder.auto.test_session import Loop
from tests.recorder.device_standins import DeviceStandIn, PromptDevice, collective, data_parallel


def init_group() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dist, "get_backend_config", lambda group=None: "cuda:nccl")
    init_group()
    yield
    dist.destroy_process_group()


class CountedDevice(PromptDevice):
    """A device that the script may not use yet, and that counts its events."""

    def __init__(self) -> None:
        super().__init__()
        self.is_used, self.events = True, 0

    def event(self) -> Any:
        self.events += 1
        return super().event()

    def is_ready(self) -> bool:
        return self.is_used and super().is_ready()


class WaitingLoop(Loop):
    """A loop whose stages hold up the stream for 2, 4 and 1 ms."""

    def __init__(self, root: Path, fraction: float, window_steps: int = 100) -> None:
        super().__init__(root)
        settings = Settings(output=root, run_id="run", window_steps=window_steps, event_fraction=fraction)
        self.session = Session(settings, self.clock)
        self.session.process_group_created()

    def micro_step(self, before: Callable[[], None] = lambda: None) -> None:
        before()
        self.spend("data", 100, 1)
        self._hold("forward", 2.0, 1)
        self._hold("backward", 4.0)

    def update(self) -> None:
        self.session.optimizer_step_begins(self.optimizer)
        collective(1.0)()
        self.clock.now += 50
        self.session.optimizer_step_ends(self.optimizer)

    def _hold(self, kind: Any, ms: float, mark: int | None = None) -> None:
        self.session.enter(kind, 0, mark)
        self.clock.now += 10
        collective(ms)()
        self.clock.now += 190
        self.session.leave(kind)


Start = Callable[..., WaitingLoop]


@pytest.fixture
def device() -> CountedDevice:
    return CountedDevice()


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: CountedDevice, group: None) -> Start:
    monkeypatch.setattr(script_waits, "CudaDevice", lambda: device)
    return lambda fraction=1.0, window_steps=100: WaitingLoop(tmp_path, fraction, window_steps)


def recorded(root: Path) -> list[Window]:
    return [found.window for found in read_windows([root]).windows]


def waits_of(window: Window, stage: str) -> list[float | None]:
    """Return a stage's waits on the device in each step; None where the step was not sampled."""
    channel = window.side[device_wait_channel(stage)]
    sampled, values = channel.sampled_NR[:, 0].tolist(), channel.value_NR[:, 0].tolist()
    return [value if seen else None for value, seen in zip(values, sampled, strict=True)]


def test_sampled_steps_have_the_waits_of_each_stage(tmp_path: Path, start: Start) -> None:
    loop = start(0.5)
    loop.steps(8)
    loop.session.close()
    (window,) = recorded(tmp_path)
    for stage, ms in ((FORWARD, 2.0), (BACKWARD, 4.0), (OPTIMIZER, 1.0)):
        assert waits_of(window, stage) == [None, ms] * 4  # also while the micro-steps were learned
    assert window.manifest.faults == ()
    assert "side_faults" not in window.manifest.extra
    assert window.manifest.extra["event_fraction"] == 0.5


def test_one_step_in_twenty_is_sampled_by_default(tmp_path: Path, start: Start) -> None:
    loop = start(Settings(output=tmp_path).event_fraction)
    loop.steps(45)
    loop.session.close()
    (window,) = recorded(tmp_path)
    assert window.side[device_wait_channel(FORWARD)].sampled_NR.nonzero()[0].tolist() == [19, 39]


def test_waits_outside_the_stages_are_left_out(tmp_path: Path, start: Start) -> None:
    loop = start()
    for _ in range(5):
        loop.micro_step(before=collective(7.0))  # an evaluation
        loop.update()
        loop.clock.now += 5
        collective(9.0)()  # a loss for the log
    loop.session.close()
    (window,) = recorded(tmp_path)
    assert {name for name in window.side if name.startswith("device_wait.")} == {
        device_wait_channel(stage) for stage in (FORWARD, BACKWARD, OPTIMIZER)
    }
    assert waits_of(window, FORWARD) == [2.0] * 5
    assert waits_of(window, OPTIMIZER) == [1.0] * 5


def test_an_optimizer_step_without_backward_takes_no_step_s_number(tmp_path: Path, start: Start) -> None:
    loop = start(0.5)
    loop.steps(2)
    loop.spend("forward", 30, 1)
    loop.update()
    loop.steps(4)
    loop.session.close()
    (window,) = recorded(tmp_path)
    assert waits_of(window, OPTIMIZER) == [None, 1.0] * 3


def test_micro_steps_have_their_own_waits(tmp_path: Path, start: Start) -> None:
    loop = start()
    loop.steps(4, micro_steps=2)
    loop.session.close()
    (window,) = recorded(tmp_path)
    for stage, ms in ((FORWARD, 2.0), (BACKWARD, 4.0)):
        assert [waits_of(window, f"{stage}[{micro}]") for micro in (0, 1)] == [[ms] * 4] * 2
    assert waits_of(window, OPTIMIZER) == [1.0] * 4


def test_a_step_that_ends_a_window_has_its_waits_in_the_next_one(tmp_path: Path, start: Start) -> None:
    loop = start()
    loop.steps(4, micro_steps=2)
    loop.steps(5, micro_steps=1)
    loop.session.close()
    mixed, single = recorded(tmp_path)
    assert waits_of(mixed, f"{BACKWARD}[0]") == [4.0] * 6
    assert waits_of(mixed, f"{BACKWARD}[1]") == [4.0] * 4 + [0.0] * 2
    assert waits_of(single, BACKWARD) == [4.0] * 3


def test_what_has_not_happened_by_the_end_of_a_window_is_sampled_and_missing(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_waits, "CudaDevice", DeviceStandIn)
    loop = start(window_steps=4)
    loop.steps(8)
    calls = loop.session._waits._device_calls
    assert calls is not None
    for begin, end, _, _ in calls.sampler._waiting:
        begin.happened = end.happened = True
    loop.session.close()
    first, second = recorded(tmp_path)
    assert all(value is not None and math.isnan(value) for value in waits_of(first, BACKWARD))
    assert waits_of(second, BACKWARD) == [4.0] * 4


def test_backward_waits_from_the_last_gradient_of_a_data_parallel_model(tmp_path: Path, start: Start) -> None:
    loop, model = start(), data_parallel()
    for _ in range(5):
        loop.session.enter("forward", 0, 1)
        loop.session.module_called(model, True)
        loss = model(torch.ones(1, 2)).sum()
        loop.clock.now += 10
        loop.session.leave("forward")
        loop.session.enter("backward")
        loss.backward()
        loop.clock.now += 10
        loop.session.leave("backward")
        loop.update()
    loop.session.close()
    (window,) = recorded(tmp_path)
    assert waits_of(window, BACKWARD) == [4.0] * 5


def test_another_process_group_is_sampled_too(tmp_path: Path, start: Start) -> None:
    loop = start(0.5)
    loop.steps(4)
    loop.session.process_group_closing()
    assert not COMMUNICATION._threads
    dist.destroy_process_group()
    init_group()
    loop.session.process_group_created()
    loop.steps(4)
    loop.session.close()
    first, second = recorded(tmp_path)
    assert (first.step_N[0], second.step_N[0]) == (0, 4)
    assert waits_of(first, BACKWARD) == waits_of(second, BACKWARD) == [None, 4.0] * 2


def test_steps_that_get_another_number_than_was_foreseen_have_no_waits(tmp_path: Path, start: Start) -> None:
    loop = start(0.5)
    loop.steps(5)
    loop.micro_step()
    recorder = loop.session._recorder
    assert recorder is not None
    recorder._windows._continue_from(6)  # as where another rank is one step ahead in a new world
    loop.update()
    loop.steps(3)
    loop.session.close()
    (window,) = recorded(tmp_path)
    by_step = dict(zip(window.step_N.tolist(), waits_of(window, OPTIMIZER), strict=True))
    assert by_step == {0: None, 1: 1.0, 2: None, 3: 1.0, 4: None, 6: None, 7: 1.0, 8: None, 9: 1.0}


@pytest.mark.parametrize("end", [Session.disable_in_child, lambda session: session.give_up("no more")])
def test_nothing_is_timed_once_recording_is_over(
    start: Start, device: CountedDevice, end: Callable[[Session], None]
) -> None:
    loop = start()
    recorder = loop.session._recorder
    assert recorder is not None
    with recorder:
        loop.steps(2)
        end(loop.session)
        before = device.events
        loop.steps(2)
        assert device.events == before
        assert not COMMUNICATION._threads


def test_a_device_that_the_script_does_not_use_is_left_alone(
    tmp_path: Path, start: Start, device: CountedDevice
) -> None:
    device.is_used = False
    loop = start()
    loop.steps(3)
    assert device.events == 0
    device.is_used = True
    loop.steps(3)
    loop.session.close()
    (window,) = recorded(tmp_path)
    assert waits_of(window, BACKWARD) == [None] * 3 + [4.0] * 3


def test_a_device_that_refuses_ends_the_sampling_and_nothing_else(
    tmp_path: Path, start: Start, device: CountedDevice
) -> None:
    device.broken = True
    loop = start()
    loop.steps(5)
    loop.session.close()
    (window,) = recorded(tmp_path)
    assert len(window.step_N) == 5
    assert not any(name.startswith("device_wait.") for name in window.side)
    assert window.manifest.extra["side_faults"]["device_wait"].startswith("RuntimeError: CUDA error")


def test_a_device_that_cannot_be_asked_is_reported(
    tmp_path: Path, start: Start, device: CountedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> bool:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(device, "is_ready", fail)
    loop = start()
    loop.steps(5)
    loop.session.close()
    (window,) = recorded(tmp_path)
    assert len(window.step_N) == 5
    assert window.manifest.extra["side_faults"]["device_wait"].startswith("RuntimeError: CUDA error")
