"""Merging the stacks of many ranks: equal ones once, the odd ones first."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from sfapp.model.stacks import MAX_FRAMES, RankStacks, StackFrame, StackSource, ThreadStack
from sfapp.operators.stacks import MAX_GROUPS, merge_stacks
from sfapp.views.text.stacks import stack_lines, stacks_headline

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MAIN = StackFrame("/job/train.py", "main", 90)
REDUCE = (
    StackFrame(
        "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "all_reduce", 2810
    ),
    StackFrame("/job/train.py", "step", 41),
    MAIN,
)
SLEEP = StackFrame("/job/data.py", "load", 7), StackFrame("/job/train.py", "batches", 30), MAIN


def of_rank(
    rank: int, frames: tuple[StackFrame, ...], *others: ThreadStack, source: StackSource = "interpreter"
) -> RankStacks:
    threads = (ThreadStack("MainThread", frames, is_training=True), *others)
    return RankStacks(rank=rank, taken_at=NOW, source=source, threads=threads)


def test_the_stack_of_the_fewest_ranks_comes_first_and_ranks_are_folded() -> None:
    found = merge_stacks(
        of_rank(rank, SLEEP if rank == 3 else REDUCE, source="signal" if rank == 3 else "interpreter")
        for rank in range(8)
    )
    assert [group.ranks for group in found.groups] == [(3,), (0, 1, 2, 4, 5, 6, 7)]
    assert found.shared_frames == 1
    lines = list(stack_lines(found, [("the process has ended", (8, 9))]))
    assert lines[0] == (
        "Rank 3 in load (data.py:7); Ranks 0–2 and 4–7 in all_reduce (distributed_c10d.py:2810), "
        "called by step (train.py:41)."
    )
    assert lines[2:6] == [
        "Rank 3 (read by signal: interpreter lock held, or too busy to answer)",
        "  load (/job/data.py:7)",
        "  batches (/job/train.py:30)",
        "  … 1 outer frame as in all stacks",
    ]
    assert lines[-1] == "Ranks 8–9: no stacks: the process has ended"


def test_other_threads_follow_the_training_threads_on_request() -> None:
    workers = [ThreadStack(f"pin-{number}", (MAIN,)) for number in range(2)]
    stacks = [of_rank(0, REDUCE, *workers), of_rank(1, REDUCE, workers[0])]
    assert [group.thread for group in merge_stacks(stacks).groups] == [""]
    found = merge_stacks(stacks, all_threads=True)
    assert [(group.thread, group.ranks) for group in found.groups] == [
        ("", (0, 1)),
        ("pin-1", (0,)),
        ("pin-0", (0, 1)),
    ]


def test_one_stack_shows_all_its_frames() -> None:
    assert merge_stacks([of_rank(0, REDUCE)]).shared_frames == 0
    assert stacks_headline(merge_stacks([])) == "No stacks of training threads."
    assert "no Python code" in stacks_headline(merge_stacks([of_rank(0, ())]))


@given(st.lists(st.tuples(st.integers(0, 20), st.lists(st.integers(1, 3), max_size=4)), max_size=30))
def test_every_rank_is_in_the_group_of_its_stack_and_the_order_of_arrival_does_not_matter(
    ranks: list[tuple[int, list[int]]],
) -> None:
    stacks = {
        rank: of_rank(rank, tuple(StackFrame("f.py", "f", line) for line in lines)) for rank, lines in ranks
    }
    found = merge_stacks(stacks.values())
    assert sorted(rank for group in found.groups for rank in group.ranks) == sorted(stacks)
    for group in found.groups:
        assert all(stacks[rank].threads[0].frames == group.frames for rank in group.ranks)
    assert [len(group.ranks) for group in found.groups] == sorted(len(group.ranks) for group in found.groups)
    assert merge_stacks(reversed(stacks.values())) == found


def test_a_thousand_different_deep_stacks_stay_bounded() -> None:
    deep = [
        tuple(StackFrame("deep.py", f"f{depth}", rank) for depth in range(MAX_FRAMES)) for rank in range(1000)
    ]
    begin = time.perf_counter()
    found = merge_stacks(of_rank(rank, frames) for rank, frames in enumerate(deep))
    assert time.perf_counter() - begin < 30, "merging must not be quadratic"
    assert (len(found.groups), found.left_out) == (MAX_GROUPS, 1000 - MAX_GROUPS)
    assert sum(map(len, stack_lines(found, []))) < 2**20
