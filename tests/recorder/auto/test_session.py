"""Reports of the hooks, called by hand with the test's clock."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
import torch.distributed as dist

from sfapp.model import BETWEEN, Window
from sfapp.packets import read_window, read_windows
from sfapp.recorder.auto.session import Session
from sfapp.recorder.auto.settings import Settings
from sfapp.recorder.auto.steps import BATCH, EXHAUSTED, Kind
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER

NOTHING = "sfapp: nothing was recorded: the process's main thread took no step\n"


class SessionClock:
    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


class Optimizer:
    """All that a session knows of one is which it is."""


class Loop:
    """A training loop of which the session sees what hooks would tell it."""

    def __init__(self, root: Path) -> None:
        self.clock = SessionClock()
        self.session = Session(Settings(output=root, run_id="run", window_steps=100), self.clock)
        self.optimizer = Optimizer()

    def spend(self, kind: Kind, ns: int, mark: int | None = None) -> None:
        entered = self.session.enter(kind, 1, mark)
        self.clock.now += ns
        if entered:
            self.session.leave(kind, BATCH if kind == "data" else None)

    def micro_step(self) -> None:
        self.spend("data", 100, EXHAUSTED)
        self.spend("forward", 200, 1)
        self.spend("backward", 300)

    def update(self) -> None:
        self.session.optimizer_step_begins(self.optimizer)
        self.clock.now += 50
        self.session.optimizer_step_ends(self.optimizer)

    def steps(self, count: int, micro_steps: int = 1) -> None:
        for _ in range(count):
            for _ in range(micro_steps):
                self.micro_step()
            self.update()
            self.clock.now += 7


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(tmp_path)


def recorded(root: Path) -> list[Window]:
    return [found.window for found in read_windows([root]).windows]


def test_steps_are_recorded_to_the_nanosecond(tmp_path: Path, loop: Loop) -> None:
    loop.steps(5)
    loop.session.close()
    window = read_window(tmp_path)
    assert window.step_N.tolist() == [0, 1, 2, 3, 4]
    spent = dict(zip(window.stages, window.duration_SNR[:, 4, 0].tolist(), strict=True))
    assert [spent[name] for name in (CALLBACKS, DATA, FORWARD, BACKWARD, OPTIMIZER)] == [7, 100, 200, 300, 50]
    assert window.wall_NR[:, 0].tolist() == [650, *[657] * 4]


def between_of(root: Path) -> list[int]:
    """The time between steps of each step; every row adds up to the wall time."""
    window = read_window(root)
    assert window.duration_SNR.sum(axis=0).tolist() == window.wall_NR.tolist()
    between: list[int] = window.duration_SNR[window.stages.index(BETWEEN), :, 0].tolist()
    return between


def test_steps_follow_each_other_and_leave_no_time_between_them(tmp_path: Path, loop: Loop) -> None:
    loop.steps(4)
    loop.session.close()
    assert between_of(tmp_path) == [0, 0, 0, 0]


def test_an_optimizer_step_without_backward_lies_between_the_steps(tmp_path: Path, loop: Loop) -> None:
    loop.steps(3)
    loop.spend("forward", 30, 1)
    loop.update()  # 80 ns since the step before
    loop.clock.now += 5
    loop.steps(2)
    loop.session.close()
    assert between_of(tmp_path) == [0, 0, 0, 7 + 80, 0]


class TickingClock(SessionClock):
    """A clock on which every reading takes a nanosecond."""

    def __call__(self) -> int:
        self.now += 1
        return self.now


def test_the_recorder_s_own_time_lies_between_the_steps(tmp_path: Path, loop: Loop) -> None:
    loop.clock = TickingClock()
    loop.session = Session(Settings(output=tmp_path, run_id="run"), loop.clock)
    loop.steps(4)
    loop.session.close()
    assert between_of(tmp_path) == [0, 1, 1, 1]


def test_the_time_between_steps_is_left_out_on_request(tmp_path: Path, loop: Loop) -> None:
    loop.session = Session(
        Settings(output=tmp_path, run_id="run", window_steps=100, between=False), loop.clock
    )
    loop.steps(3)
    loop.spend("forward", 30, 1)
    loop.update()
    loop.steps(2)
    loop.session.close()
    window = read_window(tmp_path)
    assert BETWEEN not in window.stages
    assert window.wall_NR[:, 0].tolist() == [650, 657, 657, 650, 657]


def test_a_job_of_fewer_steps_than_are_learned_from_is_recorded(tmp_path: Path, loop: Loop) -> None:
    loop.steps(2, micro_steps=2)
    loop.session.close()
    window = read_window(tmp_path)
    assert window.manifest.accumulation.factor == 2
    assert len(window.step_N) == 2


def test_a_number_of_micro_steps_that_changes_for_good_is_followed(tmp_path: Path, loop: Loop) -> None:
    loop.steps(4, micro_steps=2)
    loop.steps(5, micro_steps=4)
    loop.session.close()
    first, second = recorded(tmp_path)
    assert (first.manifest.accumulation.factor, second.manifest.accumulation.factor) == (2, 4)
    assert first.manifest.faults == ("accumulation_mixed",)  # the two steps until it was clear
    assert second.manifest.faults == ()
    assert (len(first.step_N), len(second.step_N)) == (6, 3)


def test_one_step_of_another_length_is_flagged_and_the_window_goes_on(tmp_path: Path, loop: Loop) -> None:
    loop.steps(4, micro_steps=2)
    loop.steps(1, micro_steps=1)
    loop.steps(4, micro_steps=2)
    loop.session.close()
    (window,) = recorded(tmp_path)
    assert window.manifest.faults == ("accumulation_mixed",)
    assert len(window.step_N) == 9


def test_more_micro_steps_than_columns_are_added_up(tmp_path: Path, loop: Loop) -> None:
    loop.steps(3, micro_steps=40)
    loop.session.close()
    window = read_window(tmp_path)
    assert (window.manifest.accumulation.factor, window.manifest.accumulation.ordered) == (40, False)
    assert int(window.duration_SNR[window.stages.index(BACKWARD), 1, 0]) == 40 * 300


def test_an_optimizer_within_another_is_part_of_it(tmp_path: Path, loop: Loop) -> None:
    """As ZeroRedundancyOptimizer has one."""
    inner = Optimizer()
    for _ in range(3):
        loop.micro_step()
        loop.session.optimizer_step_begins(loop.optimizer)
        loop.session.optimizer_step_begins(inner)
        loop.clock.now += 50
        loop.session.optimizer_step_ends(inner)
        loop.session.optimizer_step_ends(loop.optimizer)
    loop.session.close()
    assert loop.session.optimizer_steps == 3
    assert read_window(tmp_path).manifest.faults == ()


def test_an_optimizer_steps_again_after_its_step_raised(tmp_path: Path, loop: Loop) -> None:
    loop.micro_step()
    loop.session.optimizer_step_begins(loop.optimizer)  # and never ends
    loop.steps(3)
    loop.session.close()
    assert len(read_window(tmp_path).step_N) == 3


def test_other_optimizers_go_on_after_a_step_of_one_raised(tmp_path: Path, loop: Loop) -> None:
    """Its step never ends, so none of theirs lies within it."""
    loop.steps(1)
    loop.session.optimizer_step_begins(Optimizer())  # and never ends
    loop.steps(3)
    loop.session.close()
    assert len(read_window(tmp_path).step_N) == 4


def test_training_inside_a_module_s_forward_is_seen(tmp_path: Path, loop: Loop) -> None:
    for _ in range(3):
        loop.spend("data", 100, EXHAUSTED)
        loop.session.enter("forward", 0, 1)
        loop.clock.now += 200
        loop.spend("backward", 300)
        loop.update()
        loop.session.leave("forward")
    loop.session.close()
    window = read_window(tmp_path)
    assert [int(window.duration_SNR[window.stages.index(name), 1, 0]) for name in (FORWARD, BACKWARD)] == [
        200,
        300,
    ]


def test_a_very_long_evaluation_does_not_pile_up(tmp_path: Path, loop: Loop) -> None:
    loop.steps(3)
    for _ in range(40_000):
        loop.spend("forward", 10, 0)
    loop.steps(2)
    loop.session.close()
    window = read_window(tmp_path)
    assert int(window.duration_SNR[window.stages.index(CALLBACKS), 3, 0]) == 7 + 400_000
    assert window.manifest.faults == ()


def test_nothing_is_recorded_of_an_optimizer_on_another_thread(
    tmp_path: Path, loop: Loop, capsys: pytest.CaptureFixture[str]
) -> None:
    loop.micro_step()
    thread = threading.Thread(target=loop.update)
    thread.start()
    thread.join()
    loop.steps(3)
    loop.session.close()
    assert capsys.readouterr().err == "sfapp: the optimizer steps on a thread other than the main one\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("rank", "expected"), [("0", NOTHING), ("1", "")])
def test_only_rank_0_reports_that_a_job_does_not_train(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: str,
    expected: str,
) -> None:
    monkeypatch.setenv("RANK", rank)
    session = Session(Settings(output=tmp_path))
    session.close()
    session.close()
    assert capsys.readouterr().err == expected


def test_an_error_of_ours_ends_the_recording_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readings = iter(range(10))
    session = Session(Settings(output=tmp_path), lambda: next(readings))  # a clock that stops
    for _ in range(20):
        session.enter("forward")
        session.leave("forward")
    session.add_optimizer_step(Optimizer())
    session.close()
    assert not session.active
    assert capsys.readouterr().err == "sfapp: recording stopped: StopIteration: \n"


def test_what_a_signal_handler_raises_in_a_hook_reaches_the_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def late(*arguments: object) -> None:
        raise TimeoutError("the job's time is up")

    before = signal.signal(signal.SIGUSR1, late)
    try:
        session = Session(Settings(output=tmp_path), lambda: signal.raise_signal(signal.SIGUSR1) or 0)
        with pytest.raises(TimeoutError, match="time is up"):
            session.enter("forward")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not session.active
    assert capsys.readouterr().err == "sfapp: recording stopped: TimeoutError: the job's time is up\n"


def test_a_recorder_made_late_waits_for_no_other_rank(tmp_path: Path, loop: Loop) -> None:
    """Where torch.distributed was initialised without the hooks, other ranks may never take a step."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        loop.steps(3)
        loop.session.close()
    finally:
        dist.destroy_process_group()
    assert read_window(tmp_path).manifest.recorder.backend == "none"  # no group was made


@pytest.mark.parametrize("before", [1, 2, 3, 5])
def test_steps_before_a_group_was_made_are_not_among_those_of_the_group(
    tmp_path: Path, loop: Loop, before: int
) -> None:
    """Only one rank may have taken them: its steps in the group would be compared with other steps."""
    loop.steps(before)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        loop.session.process_group_created()
        loop.optimizer = Optimizer()
        loop.steps(4, micro_steps=2)
        loop.session.close()
    finally:
        dist.destroy_process_group()
    alone, together = recorded(tmp_path)
    assert alone.step_N.tolist() == list(range(before))
    assert together.step_N.tolist() == list(range(before, before + 4))
    assert together.manifest.accumulation.factor == 2
    assert not together.manifest.faults


def test_a_forked_child_records_nothing(tmp_path: Path, loop: Loop) -> None:
    loop.session.disable_in_child()
    loop.steps(5)
    loop.session.close()
    assert not list(tmp_path.iterdir())
