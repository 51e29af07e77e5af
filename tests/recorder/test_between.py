"""The time between steps is the first stage of the next step, in exact numbers (accounting.md §16)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sfapp.errors import RecorderError
from sfapp.model import BETWEEN, Accumulation, Window
from sfapp.packets import read_windows
from sfapp.recorder import Recorder
from tests.builders import BACKWARD, DATA, FORWARD, OPTIMIZER, OTHER
from tests.recorder.clocked_recorder import Clock, only_window, recorder

pytestmark = pytest.mark.usefixtures("hot_path")


def step(perf: Recorder, clock: Clock, ns: int = 10) -> None:
    with perf.step(), perf.stage(FORWARD):
        clock.tick(ns)


def windows(root: Path) -> list[Window]:
    return [found.window for found in read_windows([root]).windows]


def between_of(window: Window) -> list[int]:
    """The time between steps on rank 0, in ns; every row adds up to the wall time."""
    assert window.duration_SNR.sum(axis=0).tolist() == window.wall_NR.tolist()
    place = window.stages.index(BETWEEN)
    assert place == 0
    between: list[int] = window.duration_SNR[place, :, 0].tolist()
    return between


def test_it_lasts_from_the_end_of_the_previous_step_to_the_start_of_this_one(
    tmp_path: Path, clock: Clock
) -> None:
    with recorder(tmp_path, clock) as perf:
        clock.tick(1_000)  # before the first step: imports, the first batch, compiling
        for pause in (3, 50, 0):
            step(perf, clock)
            clock.tick(pause)
    window = only_window(tmp_path)
    assert between_of(window) == [0, 3, 50]
    assert window.wall_NR[:, 0].tolist() == [10, 13, 60]
    assert window.manifest.overhead.train_ns == 83


def test_it_takes_no_further_reading_of_the_clock(tmp_path: Path) -> None:
    read: list[int] = []

    def clock() -> int:
        read.append(len(read))
        return len(read)

    perf = Recorder(tmp_path, run_id="run", clock=clock, evidence=False)
    for _ in range(3):
        before = len(read)
        with perf.step(), perf.stage(FORWARD):
            pass
        assert len(read) - before == 4  # start and end of the step, and of the stage
    perf.close()
    assert between_of(only_window(tmp_path)) == [0, 1, 1]


class SlowLoader:
    """Batches that take 100 ns each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __iter__(self) -> Iterator[int]:
        for number in range(4):
            self._clock.tick(100)
            yield number


def fetch_before_the_step(perf: Recorder, clock: Clock) -> None:
    for _ in perf.batches(SlowLoader(clock)):
        step(perf, clock)
        clock.tick(7)


def fetch_in_the_step(perf: Recorder, clock: Clock) -> None:
    batches = iter(perf.batches(SlowLoader(clock)))
    for _ in range(4):
        with perf.step():
            next(batches)
            with perf.stage(FORWARD):
                clock.tick(10)
        clock.tick(7)


def fetch_one_step_ahead(perf: Recorder, clock: Clock) -> None:
    batches = iter(perf.batches(SlowLoader(clock)))
    batch = next(batches, None)
    while batch is not None:
        with perf.step():
            with perf.stage(FORWARD):
                clock.tick(10)
            batch = next(batches, None)
        clock.tick(7)


@pytest.mark.parametrize("loop", [fetch_before_the_step, fetch_in_the_step, fetch_one_step_ahead])
def test_a_wait_for_a_batch_is_charged_to_data_alone(
    tmp_path: Path, clock: Clock, loop: Callable[[Recorder, Clock], None]
) -> None:
    with recorder(tmp_path, clock, window_steps=4) as perf:
        loop(perf, clock)
    window = only_window(tmp_path)
    assert between_of(window) == [0, 7, 7, 7]
    assert window.duration_SNR[window.stages.index(DATA), :, 0].tolist() == [100] * 4
    assert window.wall_NR[:, 0].tolist() == [110, 117, 117, 117]


def test_a_wait_for_a_batch_stays_in_the_residual_where_there_is_no_data_stage(
    tmp_path: Path, clock: Clock
) -> None:
    with recorder(tmp_path, clock, window_steps=4, stages=(FORWARD,)) as perf:
        fetch_before_the_step(perf, clock)
    window = only_window(tmp_path)
    assert between_of(window) == [0, 7, 7, 7]
    assert window.duration_SNR[-1, :, 0].tolist() == [100] * 4


def test_it_belongs_to_the_next_step_whatever_closes_the_window(tmp_path: Path, clock: Clock) -> None:
    changes: list[Callable[[Recorder], None]] = [
        lambda perf: None,  # full after two steps
        lambda perf: perf.flush(),
        lambda perf: perf.reconfigure(role="expert"),
        lambda perf: perf.reconfigure(stages=(DATA, FORWARD)),
        lambda perf: perf.reconfigure(accumulation=Accumulation(factor=2)),
        lambda perf: perf.rejoin(),
    ]
    with recorder(tmp_path, clock, window_steps=2, max_pending=16) as perf:
        step(perf, clock)
        for number, change in enumerate(changes):
            step(perf, clock)
            clock.tick(number + 1)
            change(perf)
            clock.tick(10)
            with perf.step(), perf.micro_step(0), perf.stage(FORWARD):
                clock.tick(10)
    found = windows(tmp_path)
    assert [ns for window in found for ns in between_of(window)] == [
        0, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15, 0, 16,
    ]  # fmt: skip
    assert {window.stages[0] for window in found} == {BETWEEN}
    assert found[-1].stages[1:3] == (f"{DATA}[0]", f"{FORWARD}[0]")  # changed without naming it


def test_it_is_measured_from_the_end_of_a_step_that_failed(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, window_steps=5) as perf:
        step(perf, clock)
        clock.tick(5)
        with contextlib.suppress(MemoryError), perf.step():
            clock.tick(70)
            raise MemoryError
        clock.tick(9)
        step(perf, clock)
    window = only_window(tmp_path)
    assert window.step_N.tolist() == [0, 2]
    assert between_of(window) == [0, 9]


def test_it_is_kept_once_for_all_micro_steps_and_across_a_change_of_their_pattern(
    tmp_path: Path, clock: Clock
) -> None:
    accumulation = Accumulation(factor=2, sync="every")
    with recorder(tmp_path, clock, window_steps=4, accumulation=accumulation) as perf:
        for last_only in (False, True, True):
            with perf.step():
                for micro in range(2):
                    with perf.micro_step(micro, sync=micro == 1 or not last_only), perf.stage(BACKWARD):
                        clock.tick(10)
            clock.tick(6)
    first, second = windows(tmp_path)
    assert [stage for stage in first.stages if stage.startswith(BETWEEN)] == [BETWEEN]
    assert (between_of(first), between_of(second)) == ([0], [6, 6])


def test_a_step_in_a_step_has_none(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, window_steps=3) as perf:
        step(perf, clock)
        clock.tick(5)
        with perf.step():
            clock.tick(40)
            step(perf, clock)
            clock.tick(3)  # what is left of the outer step
        clock.tick(4)
        step(perf, clock)
    window = only_window(tmp_path)
    assert between_of(window) == [0, 0, 7]
    assert window.wall_NR[:, 0].tolist() == [10, 10, 17]


def test_a_clock_that_goes_back_between_steps_leaves_none(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, window_steps=2) as perf:
        step(perf, clock)
        clock.tick(-50)
        step(perf, clock)
    assert between_of(only_window(tmp_path)) == [0, 0]


@pytest.mark.parametrize("stages", [(DATA, FORWARD), (BETWEEN, DATA, FORWARD), (DATA, BETWEEN, FORWARD)])
@pytest.mark.parametrize("between", [True, False])
def test_it_is_first_however_stages_are_given_or_left_out(
    tmp_path: Path, clock: Clock, stages: tuple[str, ...], between: bool
) -> None:
    with recorder(tmp_path, clock, stages=stages, between=between, window_steps=2) as perf:
        for _ in range(2):
            step(perf, clock)
            clock.tick(30)
        perf.reconfigure(stages=(*perf.stages, OPTIMIZER))
        step(perf, clock)
    expected = (BETWEEN, DATA, FORWARD) if between else (DATA, FORWARD)
    first, second = windows(tmp_path)
    assert first.stages == (*expected, OTHER)
    assert second.stages == (*expected, OPTIMIZER, OTHER)
    assert first.wall_NR[:, 0].tolist() == ([10, 40] if between else [10, 10])
    assert second.wall_NR[:, 0].tolist() == ([40] if between else [10])


def test_nothing_but_the_time_between_steps_is_no_list_of_stages(tmp_path: Path, clock: Clock) -> None:
    for stages in ((), (BETWEEN,)):
        with pytest.raises(RecorderError, match="different names"):
            recorder(tmp_path, clock, stages=stages)


def test_it_may_be_named_and_counts_once(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, window_steps=2, strict=True) as perf:
        step(perf, clock)
        with perf.stage(BETWEEN):
            clock.tick(8)
        with perf.step(), perf.stage(BETWEEN):
            clock.tick(5)
    window = only_window(tmp_path)
    assert between_of(window) == [0, 8]
    assert window.duration_SNR[-1, :, 0].tolist() == [0, 5]
    assert window.manifest.faults == ()


def test_steps_that_were_timed_elsewhere_bring_their_own(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, window_steps=4) as perf:
        step(perf, clock)
        clock.tick(500)
        perf.add_step(120, [{BETWEEN: 20, FORWARD: 90}])
        clock.tick(4)
        step(perf, clock)
    assert between_of(only_window(tmp_path)) == [0, 20, 4]
