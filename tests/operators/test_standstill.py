"""Which rank holds a job that stands still, from where all ranks are."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from sfapp.model.standstill import (
    JobPositions,
    ProcessId,
    ProcessLook,
    RankPosition,
    ReportedPlace,
    RollCall,
    parse_roll_call,
)
from sfapp.operators.standstill import StandstillLimits, roll_call

STAGES = ("step.between_cpu_wall", "data.next_wait", "model.backward_cpu_wall", "callbacks.cpu_wall")
DATA, BACKWARD, CALLBACKS = STAGES[1:]


def at(rank: int, stage: str | None, step: int = 100, **fields: Any) -> RankPosition:
    """Return a rank that reports, and has been in a stage for 40 s."""
    own = {
        name: fields.pop(name)
        for name in ("silent_s", "look", "node_rank", "pipeline_stage", "has_left", "newest_step")
        if name in fields
    }
    place = ReportedPlace(step=step, stage=stage, **{"still_ns": 40 * 10**9, **fields})
    return RankPosition(**{"rank": rank, "node_rank": 0, "place": place, "silent_s": 0.5, **own})


def look(state: str) -> ProcessLook:
    return ProcessLook(ProcessId(1, 1, "host"), state)


def job(*ranks: RankPosition, **fields: Any) -> JobPositions:
    """Return a job that has finished no step for 40 s; its steps take 0.1 s."""
    known = {"idle_s": 40.0, "newest_step": 99, "usual_step_s": 0.1, "steps": 50, "world_size": len(ranks)}
    return JobPositions(ranks=ranks, stages=STAGES, **{**known, **fields})


def found(*ranks: RankPosition, **fields: Any) -> RollCall:
    roll = roll_call(job(*ranks, **fields))
    assert roll is not None
    return roll


def test_a_job_stands_still_after_ten_usual_steps_and_thirty_seconds() -> None:
    ranks = at(0, BACKWARD), at(1, BACKWARD), at(2, DATA)
    assert roll_call(job(*ranks, idle_s=29.0)) is None
    assert roll_call(job(*ranks, idle_s=31.0)) is not None
    assert roll_call(job(*ranks, idle_s=31.0, usual_step_s=4.0)) is None
    assert roll_call(job(*ranks, idle_s=3.0), StandstillLimits(least_s=2.0)) is not None


def test_the_rank_in_another_stage_than_most_is_likely_to_hold_the_job() -> None:
    roll = found(*(at(rank, BACKWARD) for rank in range(7)), at(7, DATA))
    assert (roll.kind, roll.holders, roll.certainty, roll.step) == ("rank", (7,), "likely", 100)
    assert [(group.ranks, group.stage, group.holds) for group in roll.groups] == [
        ((7,), DATA, True),
        (tuple(range(7)), BACKWARD, False),
    ]


def test_a_rank_outside_the_call_that_all_others_are_in_is_shown() -> None:
    ranks = [at(rank, BACKWARD, call="all_reduce") for rank in range(3)]
    roll = found(*ranks, at(3, CALLBACKS))
    assert (roll.holders, roll.certainty) == ((3,), "shown")
    roll = found(at(0, BACKWARD, call="all_reduce"), at(1, None, 101))
    assert (roll.holders, roll.certainty) == ((1,), "shown")


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (look(""), "dead"),
        (look("Z"), "dead"),
        (look("T"), "stopped"),
        (look("D"), "kernel"),
        (look("S"), "lock"),
    ],
)
def test_the_process_of_a_silent_rank_shows_its_state(seen: ProcessLook, state: str) -> None:
    waiting = [at(rank, BACKWARD, call="all_reduce") for rank in range(3)]
    roll = found(*waiting, at(3, BACKWARD, silent_s=35.0, look=seen))
    assert (roll.holders, roll.certainty, roll.held_by[0].state) == ((3,), "shown", state)
    assert roll.held_by[0].still_s == 35.0


def test_a_silent_rank_that_no_process_can_look_at_is_silent_and_a_node_of_them_is_a_silent_node() -> None:
    roll = found(at(0, BACKWARD), at(1, BACKWARD), at(2, BACKWARD, silent_s=35.0))
    assert (roll.holders, roll.certainty, roll.held_by[0].state) == ((2,), "likely", "silent")
    cut = [at(rank, BACKWARD, silent_s=35.0, node_rank=1) for rank in (2, 3)]
    roll = found(at(0, BACKWARD), at(1, BACKWARD), *cut)
    assert (roll.holders, roll.certainty, roll.held_by[0].state) == ((2, 3), "shown", "silent_node")
    cut = [at(rank, DATA, silent_s=35.0, node_rank=1, look=look("S")) for rank in (2, 3)]
    assert found(at(0, BACKWARD), *cut).held_by[0].state == "silent_node"
    assert found(at(0, BACKWARD), cut[0]).held_by[0].state == "lock"


def test_of_mismatched_calls_the_smaller_part_is_named_and_of_two_ranks_the_pair() -> None:
    ranks = [at(rank, BACKWARD, call="all_reduce") for rank in range(3)]
    roll = found(*ranks, at(3, BACKWARD, call="broadcast"))
    assert (roll.kind, roll.holders, roll.certainty) == ("mismatch", (3,), "likely")
    roll = found(at(0, BACKWARD, call="all_reduce"), at(1, BACKWARD, call="broadcast"))
    assert (roll.kind, roll.holders, roll.certainty) == ("mismatch", (0, 1), "possible")


def test_a_deadlock_between_two_groups_names_the_pair_and_none_of_its_victims() -> None:
    pair = {"group_ranks": (1, 2), "call": "all_reduce"}
    roll = found(
        at(0, BACKWARD, call="barrier"),
        at(1, BACKWARD, group="a", **pair),
        at(2, BACKWARD, group="b", **pair),
        at(3, BACKWARD, call="barrier"),
    )
    assert (roll.kind, roll.holders) == ("deadlock", (1, 2))


def test_a_rank_that_waits_for_the_culprit_in_a_small_group_is_a_victim() -> None:
    roll = found(
        at(0, BACKWARD, call="all_reduce", group="tp", group_ranks=(0, 1)),
        at(1, DATA),
        at(2, BACKWARD, call="all_reduce", group="dp", group_ranks=(0, 2)),
        at(3, BACKWARD, call="all_reduce", group="dp", group_ranks=(1, 3)),
    )
    assert (roll.holders, roll.certainty) == ((1,), "shown")


def test_ranks_are_compared_within_their_pipeline_stage() -> None:
    first = [at(rank, BACKWARD, pipeline_stage=0) for rank in range(3)]
    last = [at(rank, DATA, pipeline_stage=1) for rank in range(3, 5)]
    roll = found(*first, *last, at(5, CALLBACKS, pipeline_stage=1))
    assert roll.holders == (5,)


def test_no_rank_is_named_where_all_are_at_the_same_place() -> None:
    roll = found(*(at(rank, BACKWARD) for rank in range(4)))
    assert (roll.kind, roll.holders) == ("together", ())


def test_of_two_ranks_without_calls_the_one_that_is_behind_is_likely() -> None:
    assert found(at(0, BACKWARD), at(1, DATA)).holders == (1,)
    assert found(at(0, DATA, 101), at(1, BACKWARD)).holders == (1,)


def test_the_limit_is_longer_at_the_start_and_for_a_rank_that_moves_or_works() -> None:
    waiting = [at(rank, BACKWARD, call="barrier") for rank in range(3)]
    assert roll_call(job(*waiting, at(3, DATA), steps=2)) is None
    assert roll_call(job(*waiting, at(3, DATA), steps=2, idle_s=601.0)) is not None
    assert roll_call(job(*waiting, at(3, None, is_working=True), idle_s=60.0)) is None
    assert roll_call(job(*waiting, at(3, "checkpoint.save"), idle_s=60.0)) is None
    assert roll_call(job(*waiting, at(3, DATA, still_ns=10**9), idle_s=60.0)) is None
    assert roll_call(job(*waiting, at(3, DATA, is_working=True), idle_s=60.0)) is not None
    assert roll_call(job(*waiting, at(3, None, is_working=True), idle_s=301.0)) is not None
    assert roll_call(job(*waiting, at(3, None, silent_s=35.0, look=look("")), steps=0)) is not None


def test_ranks_that_left_or_never_reported_are_listed() -> None:
    left = RankPosition(rank=2, node_rank=0, place=None, silent_s=90.0, has_left=True)
    roll = found(at(0, BACKWARD), at(1, BACKWARD), left, world_size=4)
    assert {group.state: group.ranks for group in roll.groups} == {
        "stage": (0, 1),
        "absent": (3,),
        "left": (2,),
    }
    assert roll_call(job(left)) is None


def left(rank: int, newest_step: int) -> RankPosition:
    """Return a rank that closed its recorder after this step; its last heartbeat was sent before that."""
    return at(rank, DATA, newest_step - 1, still_ns=10**8, has_left=True, newest_step=newest_step)


def test_a_rank_that_ended_before_the_step_in_which_the_others_wait_is_likely_to_hold_the_job() -> None:
    """As where a rank has less data than the others."""
    for fields in ({}, {"call": "all_reduce"}):
        roll = found(*(at(rank, BACKWARD, newest_step=99, **fields) for rank in range(7)), left(7, 99))
        assert (roll.kind, roll.holders, roll.certainty) == ("rank", (7,), "likely")
        assert [(group.state, group.ranks, group.has_place) for group in roll.groups] == [
            ("left", (7,), False),
            ("collective" if fields else "stage", tuple(range(7)), True),
        ]
        assert roll.limit_s == 30.0
    stages = [at(rank, BACKWARD, newest_step=99, pipeline_stage=rank // 2) for rank in range(3)]
    assert found(*stages, replace(left(3, 99), pipeline_stage=1)).holders == (3,)


def test_the_rank_in_a_step_that_most_ranks_finished_before_they_ended_is_likely_to_hold_the_job() -> None:
    ended = [left(rank, 100) for rank in range(7)]
    roll = found(*ended, at(7, BACKWARD, newest_step=99), newest_step=100)
    assert (roll.kind, roll.holders, roll.certainty) == ("rank", (7,), "likely")
    assert [(group.state, group.ranks) for group in roll.groups] == [
        ("stage", (7,)),
        ("left", tuple(range(7))),
    ]
    older = RankPosition(rank=7, node_rank=0, place=None, silent_s=0.5, newest_step=99)
    assert found(*ended, older, newest_step=100).holders == ()
    working = at(7, "checkpoint.save", newest_step=99)
    assert roll_call(job(*ended, working, newest_step=100)) is None


def test_ranks_that_ended_hold_no_job_that_others_end_later_or_that_goes_on_without_them() -> None:
    ended = [left(rank, 99) for rank in range(7)]
    assert found(*ended, at(7, None, newest_step=99)).holders == ()
    assert found(*ended, at(7, CALLBACKS, newest_step=99)).holders == ()
    waiting = [at(rank, BACKWARD, newest_step=99, call="all_reduce") for rank in range(7)]
    assert found(*waiting, left(7, 10)).holders == ()


def test_ranks_that_never_reported_are_stretches_however_many_the_job_claims() -> None:
    roll = found(at(1, BACKWARD), at(2, BACKWARD), at(5, DATA), world_size=2**20)
    absent = next(group for group in roll.groups if group.state == "absent")
    assert absent.spans == ((0, 0), (3, 4), (6, 2**20 - 1))
    assert absent.size == 2**20 - 3


def test_thousands_of_ranks_that_are_all_elsewhere_take_little_time() -> None:
    """As in calls of as many groups: the aggregator looks once a second."""
    ranks = [at(rank, BACKWARD, step=rank, call="all_reduce", group=f"tp-{rank}") for rank in range(4096)]
    begin = time.process_time()
    assert found(*ranks).certainty == "possible"
    assert time.process_time() - begin < 1.0


def test_a_chain_of_many_groups_that_wait_for_each_other_ends_at_its_last() -> None:
    """Rank k waits in a call with rank k + 1 alone: 500 classes, of which only the last waits for none."""
    chain = [
        at(rank, BACKWARD, call="recv", group=f"{rank}", group_ranks=(rank, rank + 1)) for rank in range(500)
    ]
    roll = found(*chain, at(500, DATA))
    assert (roll.kind, roll.holders, roll.certainty) == ("rank", (500,), "shown")


@pytest.mark.parametrize(
    "hostile",
    [
        '"groups":[]',
        '"groups":[{"spans":[[0,2147483647]],"state":"absent"}]',
        '"groups":[{"spans":[[5,3]],"state":"absent"}]',
        '"groups":[{"spans":[[0,1048575]],"state":"absent"},{"spans":[[0,7]],"state":"left"}]',
        '"groups":[{"spans":[[0,1]],"state":"absent"}],"world_size":2147483648',
        '"groups":[{"spans":[[0,1]],"state":"absent","still_s":1e300}]',
        '"groups":[{"spans":[[0,1]],"state":"absent"}],"idle_s":1e300',
    ],
)
def test_a_roll_call_that_claims_more_than_a_job_has_is_damaged(hostile: str) -> None:
    """Samples are files that anyone with access to the folder can write: a line must not take gigabytes."""
    rest = '"kind":"rank","certainty":"shown","step":1,"idle_s":40.0,"limit_s":30.0,"world_size":8'
    assert parse_roll_call("{" + rest + "}") is None
    assert parse_roll_call("{" + rest + "," + hostile + "}") is None
    valid = parse_roll_call("{" + rest + ',"groups":[{"spans":[[0,7]],"state":"absent"}]}')
    assert valid is not None
    assert valid.groups[0].size == 8
