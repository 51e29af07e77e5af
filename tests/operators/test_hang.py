"""Which ranks hold a job: simulated jobs that stand still, with broken ranks that the simulator knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sfapp.model.calls import PendingCall
from sfapp.operators.hang import CERTAINTIES, Hang, find_hang
from tests.operators.hang_jobs import (
    HangJob,
    Op,
    grid_job,
    hangs,
    read,
    run,
    with_other_call,
    with_skipped_call,
)

SIZES = st.integers(1, 3)
KINDS = ("all_reduce", "all_to_all", "_all_gather_base", "send", "recv")
DUMPS = st.builds(
    # Dumps of pending calls only hold all of them; others may have lost even those to newer calls.
    lambda only_pending, status, buffer: {
        "only_pending": only_pending,
        "status": status,
        "buffer": 2000 if only_pending else buffer,
    },
    st.booleans(),
    st.booleans(),
    st.sampled_from((12, 2000)),
)


@st.composite
def jobs(draw: st.DrawFn) -> HangJob:
    """Jobs of 2 to 27 ranks; hosts wait for some kinds of calls, and receives may be posted ahead."""
    tensor, data, stages = draw(SIZES), draw(SIZES), draw(SIZES)
    assume(tensor * data * stages > 1)
    blocking = draw(st.one_of(st.just(frozenset(KINDS)), st.frozensets(st.sampled_from(KINDS))))
    return grid_job(tensor, data, stages, blocking=blocking, ahead=draw(st.booleans()))


def a_rank(data: st.DataObject, job: HangJob) -> int:
    return data.draw(st.sampled_from(sorted(job.programs)))


def a_place(data: st.DataObject, job: HangJob, rank: int) -> int:
    return data.draw(st.integers(0, len(job.programs[rank]) - 1))


def suspected(hang: Hang) -> list[tuple[int, str]]:
    return [(suspect.rank, suspect.certainty) for suspect in hang.suspects]


def collective_of(data: st.DataObject, job: HangJob, rank: int) -> int:
    places = [at for at, op in enumerate(job.programs[rank]) if op.peer is None]
    return data.draw(st.sampled_from(places))


@settings(max_examples=150)
@given(jobs(), DUMPS, st.data())
def test_a_stopped_rank_is_suspected_alone(job: HangJob, dumps: dict[str, Any], data: st.DataObject) -> None:
    broken = a_rank(data, job)
    ranks = run(job, {broken: a_place(data, job, broken)})
    assume(hangs(ranks, [broken]))

    hang = find_hang(read(job, ranks, **dumps))

    assert suspected(hang) == [(broken, "shown")]
    assert not hang.lags


@settings(max_examples=100)
@given(jobs(), DUMPS, st.data())
def test_two_stopped_ranks_and_no_other_are_suspected(
    job: HangJob, dumps: dict[str, Any], data: st.DataObject
) -> None:
    broken = {rank: a_place(data, job, rank) for rank in (a_rank(data, job), a_rank(data, job))}
    ranks = run(job, broken)
    assume(hangs(ranks, list(broken)))

    found = suspected(find_hang(read(job, ranks, **dumps)))

    # The other one may have stopped where no rank has got to yet; without entries it is possible then.
    assert found[0][1] == "shown"
    assert {rank for rank, _ in found} <= broken.keys()


@settings(max_examples=100)
@given(jobs(), DUMPS, st.data())
def test_a_watchdog_that_stopped_does_not_hide_the_stopped_rank(
    job: HangJob, dumps: dict[str, Any], data: st.DataObject
) -> None:
    broken, unseeing = a_rank(data, job), a_rank(data, job)
    assume(broken != unseeing)
    ranks = run(job, {broken: a_place(data, job, broken)})
    assume(hangs(ranks, [broken]))
    since = data.draw(st.integers(0, len(ranks[unseeing].posted)))
    ranks[unseeing].completed -= set(range(since, len(ranks[unseeing].posted)))

    hang = find_hang(read(job, ranks, **dumps | {"buffer": 2000}))

    # What that rank waits in may have completed without its notice; then both may be likely.
    certainties = dict(suspected(hang))
    assert certainties[broken] == hang.suspects[0].certainty != "possible"
    assert certainties.keys() <= {broken, unseeing}
    assert {lag.rank for lag in hang.lags} <= {unseeing}


@settings(max_examples=60)
@given(jobs(), DUMPS, st.data())
def test_a_stopped_rank_without_a_dump_is_the_only_suspect(
    job: HangJob, dumps: dict[str, Any], data: st.DataObject
) -> None:
    broken = a_rank(data, job)
    ranks = run(job, {broken: a_place(data, job, broken)})
    assume(hangs(ranks, [broken]))

    hang = find_hang(read(job, ranks, without=[broken], **dumps))

    assert suspected(hang) == [(broken, "likely")]
    assert hang.ranks_without_dump == (broken,)


@settings(max_examples=100)
@given(jobs(), DUMPS, st.data())
def test_a_rank_that_makes_another_call_is_suspected_and_alone_in_a_group_of_three(
    job: HangJob, dumps: dict[str, Any], data: st.DataObject
) -> None:
    broken = a_rank(data, job)
    at = collective_of(data, job, broken)
    members = job.groups[job.programs[broken][at].group][1]
    other = with_other_call(job, broken, at)
    ranks = run(other, {})
    assume(hangs(ranks, [broken]))

    hang = find_hang(read(other, ranks, **dumps))

    certainties = dict(suspected(hang))
    assert certainties[broken] == hang.suspects[0].certainty
    if len(members) > 2 and hang.suspects[0].certainty == "shown":
        assert list(certainties) == [broken]


@settings(max_examples=100)
@given(jobs(), DUMPS, st.data())
def test_a_rank_that_skips_a_call_is_suspected(
    job: HangJob, dumps: dict[str, Any], data: st.DataObject
) -> None:
    broken = a_rank(data, job)
    other = with_skipped_call(job, broken, collective_of(data, job, broken))
    ranks = run(other, {})
    assume(hangs(ranks, [broken]))

    hang = find_hang(read(other, ranks, **dumps))

    # Ranks that wait for each other are all listed. None is called shown but the broken one.
    certainties = dict(suspected(hang))
    assert broken in certainties
    assert {rank for rank, certainty in certainties.items() if certainty == "shown"} <= {broken}


@settings(max_examples=40)
@given(jobs())
def test_a_job_that_ends_has_no_suspects(job: HangJob) -> None:
    ranks = run(job, {})

    assert not hangs(ranks, [])
    hang = find_hang(read(job, ranks))
    assert not hang.suspects
    assert not hang.waits


def small_job(*programs: list[Op], groups: dict[str, tuple[str, tuple[int, ...]]] | None = None) -> HangJob:
    everyone = tuple(range(len(programs)))
    return HangJob(groups or {"0": ("default_pg", everyone)}, dict(enumerate(programs)))


ALL = Op("0", "all_reduce")


def test_a_wrong_size_is_a_mismatch_of_the_fewer_ranks() -> None:
    job = small_job([ALL, ALL], [ALL, replace(ALL, size=9)], [ALL, ALL])

    hang = find_hang(read(job, run(job, {})))

    assert suspected(hang) == [(1, "shown")]
    (evidence,) = hang.suspects[0].evidence
    assert evidence.kind == "mismatch"
    assert evidence.wait is not None
    assert (evidence.wait.sequence, evidence.wait.waiting, evidence.wait.other_call) == (
        2,
        (0, 2),
        "all_reduce (9 elements Float)",
    )


def test_two_ranks_that_differ_are_both_possible() -> None:
    job = small_job([ALL], [replace(ALL, kind="all_gather")])

    assert suspected(find_hang(read(job, run(job, {})))) == [(0, "possible"), (1, "possible")]


def test_a_rank_out_of_step_leads_those_it_waits_with() -> None:
    # Rank 3 skips a call of its pair. It waits for rank 2 in the call of all, and rank 2 for it in the pair.
    groups = {"0": ("default_pg", (0, 1, 2, 3)), "1": ("TENSOR", (0, 1)), "2": ("TENSOR", (2, 3))}
    first, second = Op("1", "all_reduce"), Op("2", "all_reduce")
    job = small_job(
        [first, first, ALL], [first, first, ALL], [second, second, ALL], [second, ALL], groups=groups
    )

    hang = find_hang(read(job, run(job, {})))

    assert suspected(hang) == [(3, "likely"), (2, "possible")]
    assert [each.kind for each in hang.suspects[0].evidence][:2] == ["out_of_step", "waits_itself"]


def test_ranks_in_a_call_that_all_made_are_possible_only_where_nothing_else_is_found() -> None:
    job = small_job([ALL], [ALL], [ALL])
    calls = read(job, run(job, {}))
    stuck = replace(
        calls,
        ranks={
            rank: replace(
                each,
                pending=tuple(replace(call, started=rank != 1) for call in _pending(each.called)),
                completed={},
            )
            for rank, each in calls.ranks.items()
        },
    )

    assert suspected(find_hang(stuck)) == [(1, "likely")]
    unstarted = replace(
        stuck,
        ranks={
            rank: replace(each, pending=tuple(replace(call, started=False) for call in each.pending))
            for rank, each in stuck.ranks.items()
        },
    )
    assert suspected(find_hang(unstarted)) == [(rank, "possible") for rank in range(3)]


def _pending(called: Mapping[int, int]) -> list[PendingCall]:
    return [PendingCall(group, sequence, "all_reduce") for group, sequence in called.items()]


def test_a_call_pending_on_one_rank_and_complete_on_others_is_a_lag_and_not_a_wait() -> None:
    job = small_job([ALL, ALL], [ALL, ALL], [ALL, ALL])
    ranks = run(job, {2: 1})
    ranks[0].completed.clear()  # rank 0's watchdog saw nothing complete

    hang = find_hang(read(job, ranks))

    assert suspected(hang) == [(2, "shown")]
    assert [(lag.rank, lag.sequence, lag.completed_on) for lag in hang.lags] == [(0, 1, (1, 2))]


def test_certainties_are_listed_from_the_strongest() -> None:
    assert CERTAINTIES == ("shown", "likely", "possible")
