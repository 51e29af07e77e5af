"""Why a rank is late: the planted cause is named, and none where nothing was planted (accounting.md §21)."""

from __future__ import annotations

from typing import get_args

import pytest

from sfapp.accounting import diagnose
from sfapp.model.explanation import CAUSES, CauseKind, Explanation
from tests.accounting.simulated_hosts import LATE, host_job
from tests.builders import BACKWARD, DATA, MS, ddp_job, window_of


def explained(cause: CauseKind, **job: object) -> Explanation:
    """Return why rank 3 is late according to the verdict."""
    diagnosis = diagnose(host_job(cause, **job))  # type: ignore[arg-type]
    found = diagnosis.aim_explanation
    assert found is not None, diagnosis.aim
    assert (found.stage, found.rank) == (DATA, LATE)
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cause", get_args(CauseKind))
def test_the_planted_cause_is_named_first_and_accounts_for_the_delay(cause: CauseKind, seed: int) -> None:
    found = explained(cause, seed=seed)
    assert found.causes[0].kind == cause, found
    assert found.causes[0].accounts_ns == pytest.approx(found.delay_ns, rel=0.2)
    assert found.causes[0].chance <= 0.01
    assert sum(one.accounts_ns for one in found.causes) <= found.delay_ns * 1.0001


@pytest.mark.parametrize("cause", ["computing", "gc", "no_core", "blocked"])
def test_a_delay_that_is_the_same_in_every_step_is_told_from_the_peers(cause: CauseKind) -> None:
    found = explained(cause, varies=0.0)
    assert found.causes[0].kind == cause


def test_faults_that_never_vary_account_for_nothing_since_no_step_shows_their_cost() -> None:
    found = explained("page_faults", varies=0.0)
    assert found.causes[0].kind == "computing"


def test_classes_without_evidence_are_told_from_classes_that_were_not_recorded() -> None:
    found = explained("blocked", unrecorded=("host.gc_ms", "host.block_io_ms"))
    assert found.causes[0].kind == "blocked"
    assert set(found.unrecorded) == {"gc", "storage"}
    assert "throttled" in found.unaffected


def test_a_window_without_host_evidence_has_no_explanation() -> None:
    late = ddp_job(extra={(DATA, LATE): 30 * MS})
    diagnosis = diagnose(window_of(late))
    assert diagnosis.aim is not None
    assert diagnosis.aim.rank == LATE
    assert diagnosis.explanations is None
    assert "explanations" not in diagnosis.document()


def test_where_evidence_does_not_follow_the_delay_nothing_explains_it() -> None:
    found = explained("gc", recorded=False, unrecorded=(f"host.cpu.{DATA}_ms",))
    assert found.causes == ()
    assert "gc" in found.unaffected


def test_healthy_windows_claim_no_cause() -> None:
    claimed = [
        one for seed in range(60) for one in diagnose(host_job(seed=seed)).explanations or () if one.causes
    ]
    assert len(claimed) <= 2  # 60 windows at alpha 0.01: 3 have a chance of 0.02


def test_evidence_without_relation_to_the_delay_is_claimed_at_most_as_often_as_alpha() -> None:
    names = (f"host.cpu.{DATA}_ms",)
    wrong = sum(bool(explained("gc", recorded=False, unrecorded=names, seed=s).causes) for s in range(60))
    assert wrong <= 2


def test_a_wait_for_other_ranks_is_no_blocking_of_its_own() -> None:
    """Rank 3 is late in data; the others wait for it in backward, where none of them is late."""
    window = host_job("blocked")
    assert all(one.stage != BACKWARD for one in diagnose(window).explanations or ())


def test_every_class_has_a_meaning() -> None:
    assert set(CAUSES) == set(get_args(CauseKind))
