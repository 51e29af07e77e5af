"""Live state of ranks: their newest steps, in bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest

import sfapp.stream
from sfapp.stream import Aggregator, live_state
from sfapp.stream.live_state import KEPT_STEPS, LiveSnapshot, RankSnapshot, RankStates
from sfapp.stream.messages import VERSION, StreamHello

STAGES = ("data.next_wait", "step.other_cpu_wall")


def hello(incarnation: str = "a") -> StreamHello:
    return StreamHello(v=VERSION, rank=0, incarnation=incarnation, run_id="run", attempt="0", world_size=1)


def rows(first: int, count: int) -> np.ndarray:
    """Return rows of these steps as parsed from a message."""
    step_N = np.arange(first, first + count)
    return np.frombuffer(np.column_stack([step_N] * 4).astype(np.int64).tobytes(), dtype="<i8").reshape(-1, 4)


def opened() -> RankStates:
    """Return the state of one rank that has begun a window."""
    live = RankStates(lambda: 0.0)
    live.add_rank(hello())
    live.open_window(hello(), 0, STAGES, None)
    return live


@pytest.mark.parametrize("portion", [1, 7, KEPT_STEPS - 1, KEPT_STEPS, KEPT_STEPS + 1, 3 * KEPT_STEPS])
def test_the_newest_steps_are_kept_in_order_for_any_batch_size(portion: int) -> None:
    live = opened()
    for first in range(0, 4 * KEPT_STEPS, portion):
        live.add_steps(hello(), rows(first, portion))
        (rank,) = live.snapshot().ranks
        end = first + portion
        assert rank.row_NC[:, 0].tolist() == list(range(max(0, end - KEPT_STEPS), end))


def test_steps_added_one_by_one_take_no_more_memory() -> None:
    live = opened()
    tracemalloc.start()
    try:
        for step in range(KEPT_STEPS):
            live.add_steps(hello(), rows(step, 1))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < KEPT_STEPS * 4 * 8


def test_late_rows_of_a_replaced_process_are_dropped() -> None:
    live = opened()
    live.add_rank(hello("b"))
    live.add_steps(hello("a"), rows(0, 1))
    live.open_window(hello("b"), 0, STAGES[1:], None)
    live.add_steps(hello("a"), rows(1, 1))
    (rank,) = live.snapshot().ranks
    assert len(rank.row_NC) == 0


def test_the_end_of_a_process_does_not_end_its_successor() -> None:
    """As of a job that goes on for a while after the next attempt at the run has begun."""
    live = opened()
    live.add_rank(hello("b"))
    live.open_window(hello("b"), 4, STAGES, None)
    live.open_window(hello("a"), 7, STAGES, None)
    live.add_steps(hello("a"), rows(0, 1))
    live.count_steps(hello("a"), lost=1)
    live.set_left(hello("a"))
    (rank,) = live.snapshot().ranks
    assert (rank.has_left, rank.window, rank.lost_steps, len(rank.row_NC)) == (False, 4, 0, 0)


def test_ranks_that_are_silent_for_long_are_removed() -> None:
    seconds = [0.0]
    live = RankStates(lambda: seconds[0])
    for rank, run in enumerate(("old", "new")):
        greeting = msgspec.structs.replace(hello(), run_id=run)
        live.add_rank(greeting)
        seconds[0] += 100.0 * rank
    live.touch(greeting)
    assert live.remove_silent(50.0) == {"new"}
    assert [rank.run_id for rank in live.snapshot().ranks] == ["new"]


@pytest.mark.parametrize(("old", "new"), [("Now", LiveSnapshot), ("RankNow", RankSnapshot)])
def test_a_former_public_name_works_and_warns(old: str, new: type) -> None:
    with pytest.warns(DeprecationWarning, match=f"sfapp.stream.{old} is now {new.__name__}"):
        assert getattr(sfapp.stream, old) is new


def test_the_former_name_of_the_snapshot_works_and_warns(tmp_path: Path) -> None:
    with Aggregator(tmp_path, "tcp://127.0.0.1:*") as aggregator:
        with pytest.warns(DeprecationWarning, match="now snapshot"):
            state = aggregator.now()
        assert state == aggregator.snapshot()


def test_wide_windows_of_many_ranks_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_state, "MOST_BYTES", 1 << 20)
    stages = tuple(f"stage {number:04}" for number in range(1000))
    live = RankStates(lambda: 0.0)
    for rank in range(30):
        greeting = msgspec.structs.replace(hello(f"{rank}"), rank=rank, world_size=30)
        live.add_rank(greeting)
        live.open_window(greeting, 0, stages, None)
        live.add_steps(greeting, np.full((KEPT_STEPS, 1002), 7))
    ranks = live.snapshot().ranks
    size = sum(rank.row_NC.nbytes + 74 * len(rank.stages) for rank in ranks)
    assert 1 << 19 < size <= 1 << 20
    assert len(ranks[0].row_NC) == KEPT_STEPS
    assert (len(ranks[-1].row_NC), ranks[-1].stages) == (0, ())
    live.remove_run("run", range(1, 30))
    live.open_window(hello("0"), 0, STAGES, None)
    live.add_steps(hello("0"), rows(0, KEPT_STEPS))
    assert len(live.snapshot().ranks[0].row_NC) == KEPT_STEPS, "there is room again"
