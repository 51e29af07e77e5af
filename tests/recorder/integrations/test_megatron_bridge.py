"""The callback for Megatron-Bridge, called in the order in which its training loop calls callbacks.

Megatron-Bridge needs CUDA. The loop below has the calls of ``megatron/bridge/training/train.py`` and
``gpt_step.py`` (0.7) that the callback uses; the clock moves only when the loop moves it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sfapp.errors import RecorderError
from sfapp.model import BETWEEN, Window
from sfapp.packets import read_windows
from sfapp.recorder.integrations.megatron_bridge import MegatronBridgeRecorderCallback
from tests.builders import BACKWARD, DATA, FORWARD, OPTIMIZER, OTHER
from tests.recorder.clocked_recorder import Clock


class Timer:
    """Megatron's timer, as a loop uses it; ``calls`` holds its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.enabled = True

    def __call__(self, bdata: bool = False) -> Timer:
        self.calls.append("batch" if bdata else "work")
        return self

    def __enter__(self) -> Timer:
        self.calls.append("begin")
        return self

    def __exit__(self, *error: object) -> None:
        self.calls.append("end")


class State:
    """Megatron-Bridge's ``GlobalState``."""

    def __init__(self) -> None:
        self._straggler_timer = Timer()
        self.train_state = type("TrainState", (), {"step": 0})()

    @property
    def straggler_timer(self) -> Timer:
        return self._straggler_timer


class UpdatedModel:
    """Megatron's optimizer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def step(self) -> tuple[bool, float, None]:
        self._clock.tick(50)
        return True, 1.0, None


class Job:
    """A training job of Megatron-Bridge on one rank.

    Attributes:
        state, optimizer: as in its ``CallbackContext``.
        micro_batches: what ``get_num_microbatches`` returns.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.state = State()
        self.optimizer = UpdatedModel(clock)
        self.micro_batches = 1

    def train(self, callback: Any, steps: int) -> None:
        callback.on_train_start(self)
        for _ in range(steps):
            callback.on_train_step_start(self)
            self._train_step()
            callback.on_train_step_end(self)
            self.state.train_state.step += 1
            self.clock.tick(400)  # logs
        callback.on_train_end(self)

    def _train_step(self) -> None:
        self.clock.tick(5)  # zeroes the gradients
        for _ in range(self.micro_batches):
            with self.state.straggler_timer(bdata=True):
                self.clock.tick(100)
            self.clock.tick(1)
            with self.state.straggler_timer:
                self.clock.tick(200)
            self.clock.tick(300)  # backward
        assert self.optimizer.step() == (True, 1.0, None)
        self.clock.tick(7)  # scheduler, reductions


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def job(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job(clock)
    module: Any = ModuleType("megatron.core.num_microbatches_calculator")
    module.get_num_microbatches = lambda: made.micro_batches
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


@pytest.fixture
def callback_of(tmp_path: Path, clock: Clock) -> Callable[..., MegatronBridgeRecorderCallback]:
    fixed = {"run_id": "run", "clock": clock, "evidence": False, "window_steps": 3}
    return lambda **options: MegatronBridgeRecorderCallback(tmp_path, **{**fixed, **options})


def recorded(root: Path) -> list[Window]:
    return [found.window for found in read_windows([root]).windows]


def stages_of(window: Window, step: int) -> dict[str, int]:
    return dict(zip(window.stages, window.duration_SNR[:, step, 0].tolist(), strict=True))


def test_every_part_of_a_step_is_in_a_stage(
    tmp_path: Path, job: Job, callback_of: Callable[..., MegatronBridgeRecorderCallback]
) -> None:
    job.train(callback_of(), 3)
    (window,) = recorded(tmp_path)
    assert window.manifest.faults == ()
    assert stages_of(window, 1) == {
        BETWEEN: 400, DATA: 100, FORWARD: 5 + 1 + 200, BACKWARD: 300, OPTIMIZER: 50 + 7, OTHER: 0,
    }  # fmt: skip


def test_micro_batches_are_added_up_and_may_grow(
    tmp_path: Path, job: Job, callback_of: Callable[..., MegatronBridgeRecorderCallback]
) -> None:
    job.micro_batches = 2
    callback = callback_of()
    callback.on_train_start(job)
    for micro_batches in (2, 2, 4):
        job.micro_batches = micro_batches
        callback.on_train_step_start(job)
        job._train_step()
        callback.on_train_step_end(job)
    callback.on_train_end(job)
    first, second = recorded(tmp_path)
    assert [window.manifest.accumulation.factor for window in (first, second)] == [2, 4]
    assert not first.manifest.accumulation.ordered
    assert stages_of(first, 0)[DATA] == 2 * 100
    assert stages_of(second, 0)[BACKWARD] == 4 * 300


def test_megatron_s_own_timer_still_sees_every_section_and_is_left_as_it_was(
    job: Job, callback_of: Callable[..., MegatronBridgeRecorderCallback]
) -> None:
    timer = job.state.straggler_timer
    job.train(callback_of(), 1)
    assert timer.calls == ["batch", "begin", "end", "begin", "end"]
    assert job.state.straggler_timer is timer
    assert type(job.optimizer.step).__name__ == "method"


def test_a_step_left_by_a_rerun_is_not_recorded_and_numbers_continue(
    tmp_path: Path, job: Job, callback_of: Callable[..., MegatronBridgeRecorderCallback]
) -> None:
    job.state.train_state.step = 70
    callback = callback_of()
    callback.on_train_start(job)
    callback.on_train_step_start(job)  # Megatron-Bridge leaves it
    for _ in range(2):
        callback.on_train_step_start(job)
        job._train_step()
        callback.on_train_step_end(job)
    callback.on_train_end(job)
    (window,) = recorded(tmp_path)
    assert window.step_N.tolist() == [71, 72]


def test_an_option_that_does_not_exist_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(RecorderError, match="windowsteps"):
        MegatronBridgeRecorderCallback(tmp_path, windowsteps=3)
