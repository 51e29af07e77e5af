"""The experiment behind docs/evidence/why.md, in small: real causes on one rank of a real job."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from benchmarks.experiments.__main__ import why_experiment
from benchmarks.experiments.why_page import HOW, why_bars, why_document
from benchmarks.experiments.why_plan import FAMILIES, WhyFault, WhyJob, full_why, small_why
from benchmarks.experiments.why_score import WhySeen, judge_why
from sfapp.model.explanation import CauseKind
from tests.accounting.simulated_hosts import LATE, host_job

JOB = WhyJob("by hand", 0, 8, 40, (WhyFault(is_warm_up=True), WhyFault(), WhyFault("lock", LATE), WhyFault()))


def by_hand(cause: CauseKind = "blocked") -> list[WhySeen]:
    """Return the windows of ``JOB`` as judged: in the third, rank 3 is late for this cause."""
    windows = [
        host_job(cause if number == 2 else None, seed=number, run_id="by hand", window=number)
        for number in range(len(JOB.faults))
    ]
    return judge_why(JOB, windows)


@pytest.mark.torchrun
@pytest.mark.quiet  # which rank is late is a matter of milliseconds
def test_a_collector_and_a_lock_are_distinguished_on_real_ranks(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rows, _ = why_experiment(small_why(), tmp_path_factory.mktemp("packets"))
    planted = [row for row in rows if row.fault.family is not None]
    assert {row.fault.family for row in planted} == {"garbage collector", "lock"}
    assert all(row.is_right for row in planted), [(row.fault, row.first) for row in planted]


def test_the_class_that_a_verdict_names_first_is_compared_with_the_planted_one() -> None:
    healthy, right, after = by_hand()
    assert (right.is_right, right.first) == (True, "blocked")
    assert replace(right, fault=WhyFault("garbage collector", LATE)).is_right is False
    assert replace(right, fault=WhyFault("lock", 1)).first == "rank not named"
    assert healthy.claims == after.claims == ()
    page = why_document(
        [healthy, right, after], "the command", "the machine", {"slow storage": "no /dev/fuse"}
    )
    assert "| lock | " in page
    assert "skipped: no /dev/fuse" in page
    assert all(bar.holds for bar in why_bars([healthy, right, after]))


def test_a_wrong_class_misses_the_bar() -> None:
    first, *_ = why_bars(by_hand("gc"))
    assert (first.measured, first.holds) == ("0 of 1 families × 1 seeds", False)


def test_every_family_has_right_classes_and_a_description() -> None:
    assert set(HOW) == set(FAMILIES)
    assert {kind for right in FAMILIES.values() for kind in right} <= set(get_args(CauseKind))


def test_each_window_with_a_cause_is_followed_by_a_healthy_one_and_has_a_rank_of_its_own() -> None:
    for job in full_why():
        planted = [place for place, fault in enumerate(job.faults) if fault.family is not None]
        assert all(job.faults[place + 1].family is None for place in planted)
        assert len({job.faults[place].rank for place in planted}) == len(planted)
