"""Sentences on a job that stands still agree with its groups of ranks."""

from __future__ import annotations

from sfapp.model.standstill import RankGroup, RollCall
from sfapp.views.text.standstill import (
    standstill_action,
    standstill_details,
    standstill_sentence,
    standstill_title,
)

DATA, BACKWARD, CALLBACKS = "data.next_wait", "model.backward_cpu_wall", "callbacks.cpu_wall"


def at(stage: str, first: int, last: int | None = None, *, holds: bool = True, step: int = 100) -> RankGroup:
    spans = ((first, first if last is None else last),)
    return RankGroup(spans=spans, state="stage", holds=holds, step=step, stage=stage, still_s=40.0)


def call_of(*groups: RankGroup) -> RollCall:
    held = any(group.holds for group in groups)
    return RollCall(
        kind="rank" if held else "together",
        certainty="shown" if held else "possible",
        step=100,
        idle_s=50.0,
        limit_s=30.0,
        world_size=sum(group.size for group in groups),
        groups=groups,
    )


def test_ranks_that_hold_a_job_at_several_places_are_titled_without_one() -> None:
    several = call_of(at(DATA, 6), at(CALLBACKS, 7), at(BACKWARD, 0, 5, holds=False))
    assert standstill_title(several, False) == "The job stands still: ranks 6–7 hold it"
    assert "rank 6 is in data since 40 s; rank 7 is in callbacks since 40 s" in standstill_sentence(several)
    assert standstill_action(several) == "Look at the stacks of these ranks, and at their logs."
    same = call_of(at(DATA, 6), at(DATA, 7, step=101), at(BACKWARD, 0, 5, holds=False))
    assert standstill_title(same, True) == "The job stood still: ranks 6–7 hold it in data"


def test_more_groups_that_hold_a_job_than_are_named_are_counted() -> None:
    held = call_of(*(at(DATA, rank, step=rank) for rank in range(9)), at(BACKWARD, 9, 19, holds=False))
    assert "rank 5 is in data since 40 s; and 3 further groups: they hold the job" in standstill_sentence(
        held
    )


def test_ranks_at_different_places_of_which_none_can_be_named_are_not_at_the_same_place() -> None:
    apart = call_of(at(DATA, 0, 1, holds=False), at(BACKWARD, 2, 3, holds=False))
    assert standstill_sentence(apart) == (
        "Step 100: 2 of 4 ranks are in data since 40 s, and 1 other group elsewhere: none can be named"
    )
    assert "same place" not in " ".join(standstill_details(apart))


def test_pipeline_stages_at_the_same_place_are_all_ranks_there() -> None:
    together = call_of(at(BACKWARD, 0, holds=False), at(BACKWARD, 1, holds=False))
    assert standstill_sentence(together) == (
        "Step 100: all 2 ranks are in backward since 40 s: none can be named"
    )
    (detail,) = standstill_details(together)
    assert detail.startswith("All ranks are at the same place.")


def test_a_rank_that_ended_early_is_named_with_what_to_compare() -> None:
    early = RankGroup(spans=((7, 7),), state="left", holds=True, has_place=False, still_s=40.0)
    ended = call_of(early, at(BACKWARD, 0, 6, holds=False))
    assert standstill_sentence(ended) == (
        "Step 100: 7 of 8 ranks wait in backward since 40 s; rank 7 has closed its recorder: it holds the job"
    )
    assert standstill_title(ended, False) == "The job stands still: rank 7 has closed its recorder"
    assert standstill_action(ended).startswith("Look at its log, and compare how many batches it has")
