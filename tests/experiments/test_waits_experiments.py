"""The experiments behind docs/evidence/waits.md, in small: a rank that is slow inside a waiting stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.experiments import launch
from benchmarks.experiments.__main__ import waits_experiment
from benchmarks.experiments.plan import BACKWARD, DATA, FORWARD
from benchmarks.experiments.waits_page import waits_bars, waits_document
from benchmarks.experiments.waits_plan import (
    BETWEEN,
    HEALTHY_FIRST,
    PLACES,
    SHARDED,
    WARM_UP,
    WRAPPERS,
    WaitFault,
    WaitJob,
    full_waits,
    small_waits,
)
from benchmarks.experiments.waits_score import WaitSeen, judge_waits, planted
from sfapp.model import Window
from tests.builders import MS, ddp_job, window_of
from tests.forked_ranks import forked_torchrun

JOB = WaitJob(
    "by hand", "ddp", 4, 20, 1.0, (WaitFault(is_warm_up=True), WaitFault(), WaitFault(DATA, 2), WaitFault())
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[WaitSeen]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "TORCHRUN", forked_torchrun())
        found, _ = waits_experiment(small_waits(), tmp_path_factory.mktemp("packets"))
    return found


def by_hand(late_ms: int) -> list[Window]:
    """Return the four windows of ``JOB``: in the third, rank 2 loads data for so long more."""
    found = []
    for number in range(len(JOB.faults)):
        extra = {(DATA, 2): late_ms * MS} if number == 2 else {}
        found.append(window_of(ddp_job(seed=number, ranks=4, steps=20, extra=extra), window=number))
    return found


@pytest.mark.torchrun
@pytest.mark.quiet  # which rank is late is a matter of milliseconds
def test_a_rank_slow_inside_backward_and_inside_forward_is_named(rows: list[WaitSeen]) -> None:
    assert [row.fault.stage for row in rows] == [None, None, BACKWARD, FORWARD, None]
    for stage in (BACKWARD, FORWARD):
        (row,) = planted(rows, stage)
        assert row.names_both, row.suspect
        assert row.fix is not None
        assert (row.fix.stage, row.fix.rank) == (stage, row.fault.rank)
        assert row.fix.saved_ns is not None
        assert row.fix.saved_ns > 0
    page = waits_document(rows, "the command", "the machine")
    assert "Written by `the command` on the machine: 5 windows" in page
    assert "| FSDP2, slow inside forward: stage and rank named in 29 of 30 | 1/1 | holds |" in page


def test_what_a_verdict_names_is_compared_with_what_was_planted() -> None:
    _, right, _ = judge_waits(JOB, by_hand(200))
    assert right.names_both
    assert right.growth > 0.5
    wrong = replace(right, fault=WaitFault(DATA, 1))
    assert (wrong.names_stage, wrong.names_rank) == (True, False)
    assert wrong.suspect == f"{DATA}, rank 2"


def test_a_prediction_is_held_against_the_healthy_windows_on_both_sides() -> None:
    before, row, after = judge_waits(JOB, by_hand(200))
    assert row.healthy_ns == (before.step_ns + after.step_ns) / 2
    assert replace(row, around_ns=(100.0, 104.0)).drift == pytest.approx(0.04)
    assert row.fix is not None
    assert (row.fix.reason, row.miss) == ("no_waits_recorded", None)
    predicted = replace(row, fix=replace(row.fix, predicted_ns=row.healthy_ns * 1.1))
    assert predicted.miss == pytest.approx(0.1)


def test_a_stage_that_is_not_recorded_is_missed_and_not_an_error() -> None:
    pauses = replace(JOB, faults=(*JOB.faults[:2], WaitFault(BETWEEN, 1), WaitFault()))
    rows = judge_waits(pauses, by_hand(200))
    (bar,) = waits_bars(rows)
    assert (bar.measured, bar.holds) == ("0/1", False)
    assert "| 4 | rank 1 |" in waits_document(rows, "the command", "the machine")


def test_a_job_that_lacks_a_window_is_an_error() -> None:
    with pytest.raises(SystemExit, match="by hand"):
        judge_waits(JOB, by_hand(200)[:3])


def test_every_wrapper_has_many_faults_a_stage_on_many_ranks_at_every_place() -> None:
    jobs = full_waits()
    for wrapper in WRAPPERS:
        stages = (BACKWARD, FORWARD) if wrapper in SHARDED else (BACKWARD,)
        mine = [job for job in jobs if job.wrapper == wrapper and not job.name.startswith("between")]
        for stage in stages:
            faults = [fault for job in mine for fault in job.faults if fault.stage == stage]
            assert len(faults) == (23 if wrapper in SHARDED else 30)
            assert {fault.place for fault in faults} == set(PLACES)
            assert len({fault.rank for fault in faults}) > 12
    assert all(fault.rank < job.ranks for job in jobs for fault in job.faults)


def test_faults_begin_after_healthy_windows_and_have_one_on_each_side() -> None:
    for job in full_waits():
        assert all(fault.stage is None for fault in job.faults[: WARM_UP + HEALTHY_FIRST])
        assert job.faults[-1].stage is None
        longest = "".join("." if fault.stage else " " for fault in job.faults).split()
        assert max(map(len, longest)) <= 2


def test_the_layers_share_the_whole_delay() -> None:
    assert all(sum(parts) == 1 for parts in PLACES.values())
