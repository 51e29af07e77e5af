"""Why a rank is late: the planted cause is named, and none where nothing was planted (accounting.md §21)."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, get_args

import msgspec
import numpy as np
import pytest

from sfapp.accounting import diagnose, measure
from sfapp.accounting.explanation import explain
from sfapp.accounting.host_channels import CAUSE_OF, MOST_PEERS, HostChannel, HostRecord, host_record
from sfapp.model import SideChannel
from sfapp.model.explanation import CAUSES, CauseKind, Explanation
from sfapp.model.host_evidence import GC, RUNNABLE, VOLUNTARY, cpu_channel
from sfapp.views.text.host_evidence import reason_sentences, shared_sentences
from tests.accounting.simulated_hosts import LATE, host_job
from tests.builders import BACKWARD, DATA, FORWARD, MS, ddp_job, window_of
from tests.hostile_text import HOSTILE_TEXT


def explained(cause: CauseKind, **job: Any) -> Explanation:
    """Return why rank 3 is late according to the verdict."""
    diagnosis = diagnose(host_job(cause, **job))
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
def test_a_delay_that_is_the_same_in_every_step_is_found_by_the_peers(cause: CauseKind) -> None:
    found = explained(cause, varies=0.0)
    assert found.causes[0].kind == cause


def test_causes_account_for_no_more_than_the_delay_where_cpu_time_was_not_recorded() -> None:
    collected = host_job("gc", unrecorded=(cpu_channel(DATA),))
    runnable = host_job("no_core").side[RUNNABLE]
    found = diagnose(replace(collected, side={**collected.side, RUNNABLE: runnable})).aim_explanation
    assert found is not None
    assert found.causes[0].kind == "gc"
    assert {one.cause for one in found.evidence if one.chance <= 0.01} >= {"gc", "no_core"}
    assert sum(one.accounts_ns for one in found.causes) <= found.delay_ns * 1.0001


def test_faults_that_never_vary_account_for_nothing_since_no_step_shows_their_cost() -> None:
    found = explained("page_faults", varies=0.0)
    assert found.causes[0].kind == "computing"


def test_classes_without_evidence_are_separate_from_classes_that_were_not_recorded() -> None:
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


def test_one_collection_outside_the_stage_does_not_hide_the_others() -> None:
    # As measured on a real rank that collects in forward; the first step has a collection before it, too.
    collected = [462, 187, 144, 169, 166, 150, 169, 166, 143, 166, 167, 167, 152, 152, 172, 179]
    late = [136, 184, 140, 168, 163, 148, 169, 164, 139, 166, 168, 171, 154, 154, 169, 177]
    value_NR, own_NR = np.zeros((16, 8)), np.full((16, 8), 20.0)
    value_NR[:, 0], own_NR[:, 0] = collected, np.add(late, 20.0)
    record = HostRecord(own_NR, (HostChannel(GC, "gc", value_NR, True),))
    found = explain(FORWARD, 0, record, (), alpha=0.005)  # half, as for two channels
    assert [cause.kind for cause in found.causes] == ["gc"]


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


def test_single_late_steps_are_explained_by_what_is_different_in_them() -> None:
    found = single_steps((7, 19, 31))
    assert found.steps == 3
    assert found.causes[0].kind == "gc"
    assert found.causes[0].accounts_ns == pytest.approx(200 * MS, rel=0.1)


def single_steps(steps: tuple[int, ...]) -> Explanation:
    """Return why rank 3 is late in some steps, in which it collects garbage for 200 ms."""
    number, ranks = 40, 16
    random = np.random.default_rng(0)
    late_NR = np.zeros((number, ranks))
    late_NR[list(steps), 0] = 200.0
    own_NR = 2.0 + random.normal(0.0, 0.1, (number, ranks)) + late_NR
    values = {
        "host.gc_ms": random.exponential(0.1, (number, ranks)) + late_NR,
        "host.runnable_ms": random.exponential(0.5, (number, ranks)),
    }
    channels = tuple(HostChannel(name, CAUSE_OF[name], value_NR, True) for name, value_NR in values.items())
    return explain(DATA, LATE, HostRecord(own_NR, channels), steps, 0.01)


def test_readings_from_time_to_time_are_tested_by_interval() -> None:
    """Throttling is read in every third step: the increase counts for the steps since the last reading."""
    window = host_job("throttled", steps=60)
    throttled = window.side["host.throttled_ms"]
    read_NR = np.full(throttled.value_NR.shape, np.nan)
    read_NR[2::3] = throttled.value_NR.reshape(20, 3, -1).sum(axis=1)
    side = {**window.side, "host.throttled_ms": SideChannel(read_NR, ~np.isnan(read_NR))}
    found = diagnose(replace(window, side=side)).aim_explanation
    assert found is not None
    assert found.causes[0].kind == "throttled"
    assert found.causes[0].accounts_ns == pytest.approx(found.delay_ns, rel=0.25)


def test_a_wide_window_is_explained_from_an_even_sample_of_peers() -> None:
    ranks, steps = 4_096, 12
    late_NR = np.full((steps, ranks), 2 * MS)
    late_NR += np.random.default_rng(0).integers(0, MS // 4, (steps, ranks))
    late_NR[:, LATE] += 30 * MS
    stages = np.stack([late_NR, np.full((steps, ranks), 20 * MS)])
    cpu = SideChannel(np.full((steps, ranks), 1.0), np.ones((steps, ranks), dtype=bool))
    window = window_of(stages, side={f"host.cpu.{DATA}_ms": cpu})
    record = host_record(measure(window), 0, LATE)
    assert record.own_NR.shape[1] <= MOST_PEERS + 1
    found = diagnose(window).aim_explanation
    assert found is not None
    assert found.causes[0].kind == "blocked"


def test_the_json_of_a_window_has_its_explanation() -> None:
    (found,) = diagnose(host_job("gc")).document()["explanations"]
    assert (found["rank"], found["causes"][0]["kind"], found["reason"]) == (LATE, "gc", None)


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 5e-324, 1e300, np.nan, -0.0])
def test_no_value_of_evidence_breaks_or_spoils_the_verdict(value: float) -> None:
    """Evidence comes from packets: a value that no counter has counts as unknown."""
    window = host_job("gc", late_ms=30.0)
    for place, name in ((0, GC), (1, cpu_channel(DATA)), (2, VOLUNTARY)):
        window.side[name].value_NR[place::7, LATE] = value
        window.side[name].value_NR[place::5, 0] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        diagnosis = diagnose(window)
    found = diagnosis.aim_explanation
    assert found is not None
    assert found.causes[0].kind == "gc"
    numbers = [
        number for one in found.evidence for number in (one.value, one.peers, one.accounts_ns, one.chance)
    ]
    assert all(math.isfinite(number) for number in numbers)
    assert reason_sentences(diagnosis)


def test_numbers_and_names_of_periods_and_attributes_can_be_any() -> None:
    extra = {"periods": {HOSTILE_TEXT: 2**63, "x": 10**40, "y": -1, "z": 1e300, "": 7}, "num_workers": True}
    late = ddp_job(ranks=16, extra={(DATA, rank): 40 * MS for rank in (4, 5, 6, 7)})
    names = [HOSTILE_TEXT if rank in (4, 5, 6, 7) else "other" for rank in range(16)]
    window = window_of(late, extra=extra, attributes={"host": names, HOSTILE_TEXT: names})
    diagnosis = diagnose(window)
    assert diagnosis.shared is not None
    assert {one.name for one in diagnosis.shared if one.value == HOSTILE_TEXT} == {HOSTILE_TEXT}
    (sentence,) = shared_sentences(diagnosis)
    assert "\n" not in sentence
    msgspec.json.encode(diagnosis.document())
