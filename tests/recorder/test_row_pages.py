"""Rows on their way from their step to their window: taken in once, on the first request."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp import Recorder
from sfapp.model import Accumulation
from sfapp.packets.window_rows import PAGE_ROWS, WindowBuffer, WindowSchema
from sfapp.recorder.timing.batch_waits import charge
from sfapp.recorder.timing.contexts import leave_refused
from sfapp.recorder.timing.timer_backend import new_state
from sfapp.recorder.timing.timers import Stage, StepState
from tests.builders import DATA, FORWARD
from tests.recorder.clocked_recorder import Clock, only_window, recorder

pytestmark = pytest.mark.usefixtures("hot_path")

SCHEMA = WindowSchema.of((DATA, FORWARD), Accumulation(), None)


class Recording:
    """A window that is being recorded, a step at a time."""

    def __init__(self, steps: int) -> None:
        self.state = new_state(
            lambda: 0, lambda begin, end, completed: None, lambda: None, lambda *seen: None
        )
        self.state.use(SCHEMA.column_of, 2)
        self.buffer = WindowBuffer.empty(SCHEMA, 0, steps)
        self.buffer.record_from(self.state)

    def step(self, wall: int, data: int, forward: int) -> None:
        if not self.buffer.room:
            self.buffer.next_page()
        self.state.set_spent([data, forward])
        self.state.add_row(wall)
        self.state.number += 1


@given(
    steps=st.integers(1, 2 * PAGE_ROWS + 3),
    looks=st.sets(st.integers(0, 2 * PAGE_ROWS)),
    seed=st.integers(0, 99),
)
def test_rows_are_those_that_were_recorded_however_often_they_are_read(
    steps: int, looks: set[int], seed: int
) -> None:
    recording = Recording(steps)
    spent_N2 = np.random.default_rng(seed).integers(0, 1_000, (steps, 2))
    for step, (data, forward) in enumerate(spent_N2.tolist()):
        recording.step(1_500, data, forward)
        assert recording.buffer.recorded == step + 1
        if step in looks:
            assert recording.buffer.sync() == step + 1
    recording.buffer.close("full")
    rest_N = np.maximum(1_500 - spent_N2.sum(axis=1), 0)
    expected = np.column_stack([np.arange(steps), np.full(steps, 1_500), spent_N2, rest_N])
    np.testing.assert_array_equal(recording.buffer.rows(), expected)
    assert recording.buffer.train_ns == 1_500 * steps


def test_a_closed_window_takes_nothing_from_the_next() -> None:
    recording = Recording(4)
    recording.step(10, 1, 2)
    recording.buffer.close("flush")
    following = WindowBuffer.empty(SCHEMA, 1, 4)
    following.record_from(recording.state)
    recording.step(20, 3, 4)
    assert (recording.buffer.sync(), following.sync()) == (1, 1)
    assert following.rows().tolist() == [[1, 20, 3, 4, 13]]


@pytest.fixture
def switching_often() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("switching_often")
def test_a_value_stays_with_its_step_while_another_thread_takes_rows_in() -> None:
    steps = 20_000
    recording, over = Recording(steps), threading.Event()

    def take_in() -> None:
        while not over.is_set():
            recording.buffer.sync()

    reader = threading.Thread(target=take_in)
    reader.start()
    for step in range(steps):
        recording.buffer.add_side({"loss": step})
        recording.step(10, 1, 2)
    over.set()
    reader.join()
    assert recording.buffer.sync() == steps
    np.testing.assert_array_equal(recording.buffer.row_NC[:, 0], np.arange(steps))
    np.testing.assert_array_equal(recording.buffer.side["loss"], np.arange(steps))


def test_a_stage_that_was_kept_from_before_a_change_of_stages_times_nothing(
    tmp_path: Path, clock: Clock
) -> None:
    with recorder(tmp_path, clock, stages=(DATA, FORWARD), between=False) as perf:
        kept = perf.stage(FORWARD)
        perf.reconfigure(stages=(DATA,))
        for _ in range(2):
            with perf.step():
                with perf.stage(DATA):
                    clock.tick(5)
                with kept:
                    clock.tick(7)
    window = only_window(tmp_path)
    assert window.step_N.tolist() == [0, 1]
    assert window.duration_SNR[:, :, 0].tolist() == [[5, 5], [7, 7]]


def test_so_does_one_that_was_kept_from_before_a_capture(clock: Clock) -> None:
    """A capture puts stages of its own in the others' place while it runs."""
    state = new_state(clock, lambda *step: None, lambda: None, lambda *seen: None)
    state.use([{DATA: 0, FORWARD: 1}], 2)
    kept = state.find_stage(FORWARD)
    state.use_timers([{name: Stage(state, name, kept.index) for name in (DATA, FORWARD)}, {}])
    state.use([{DATA: 0}], 1)
    for _ in range(2):
        state.next_page(1)
        with state.new_step(), kept:
            clock.tick(7)
        assert list(state.page)[1:] == [7, 0, 0, 0, 0]


def test_a_step_without_a_row_leaves_nothing_and_raises_nothing(clock: Clock) -> None:
    """Pages are turned in time; but where several threads step one recorder, a step may come before that."""
    recorded: list[tuple[int, int, bool]] = []
    state = new_state(clock, lambda *step: recorded.append(step), lambda: None, lambda *seen: None)
    state.use([{DATA: 0}], 2, between=1)
    state.held_column = 0
    state.ended = 990
    page = state.next_page(2)
    state.base = len(page)
    state.held_ns = 3
    with state.new_step():
        charge(state, DATA, 0, 4, 0)
        with state.find_stage(DATA):
            clock.tick(5)
        with state.new_step():  # a step in a step: the outer one is left out
            clock.tick(2)
    assert recorded == [(1_005, 1_007, True)]
    assert list(page) == [0] * len(page)
    with pytest.raises(IndexError, match="several threads"):
        state.add_row(5)


@pytest.mark.usefixtures("switching_often")
@pytest.mark.parametrize("window_steps", [1, 7])
def test_several_threads_that_step_one_recorder_are_no_error_of_training_s(
    tmp_path: Path, window_steps: int
) -> None:
    def train(perf: Recorder) -> None:
        for batch in perf.batches(range(300)):
            with perf.step():
                for name in (DATA, FORWARD):
                    with perf.stage(name):
                        perf.observe("batch", batch)

    with (
        Recorder(tmp_path, run_id="run", stages=(DATA, FORWARD), window_steps=window_steps) as perf,
        ThreadPoolExecutor(3) as threads,
    ):
        for trained in [threads.submit(train, perf) for _ in range(3)]:
            trained.result()


def test_leaving_a_context_that_another_thread_has_left_is_no_error() -> None:
    class Emptied(list[int]):
        """A stack that another thread empties between a look at it and the removal."""

        def __bool__(self) -> bool:
            return True

    state = StepState(lambda: 0, lambda *_: None, lambda: None, lambda *_: None)
    with state.new_step():
        state.refused = Emptied()
        assert leave_refused(state, 100)
        assert state.nested_ns == 0
        state.refused, state.has_refused = [], False
