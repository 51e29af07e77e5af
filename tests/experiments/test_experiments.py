"""The experiments behind docs/evidence, in small: real processes, faults put in, the tables that come out."""

from __future__ import annotations

import pytest

from benchmarks.experiments import launch
from benchmarks.experiments.__main__ import experiment
from benchmarks.experiments.acceptance import bars
from benchmarks.experiments.plan import (
    AFTERWARDS,
    BEYOND,
    DATA,
    HIDDEN_RANK,
    KEPT_ON,
    PlannedFault,
    full,
    small,
)
from benchmarks.experiments.routing_page import document
from benchmarks.experiments.score import RULES, Seen, count, of
from sfapp import diagnose
from tests.builders import CALLBACKS, MS, ddp_job, window_of
from tests.forked_ranks import forked_torchrun

pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "TORCHRUN", forked_torchrun())
        found, launches = experiment(small(), tmp_path_factory.mktemp("packets"))
    assert all(each.seconds > 1 and 0 <= each.others <= 1 for each in launches)
    return found


def test_a_fault_on_a_hidden_rank_is_routed_to_its_stage_and_named_with_its_rank(rows: list[Seen]) -> None:
    found = of(rows, "routing")
    assert len(found) == 2
    assert (count(found).top_2, count(found).hit) == (2, 2)
    assert all(row.aims_at_stage and row.aims_at_rank for row in found)


def test_a_callback_without_a_barrier_is_named_too(rows: list[Seen]) -> None:
    (row,) = of(rows, "beyond", "callback/host")
    assert row.aims_at_stage
    assert row.aims_at_rank


def test_the_page_holds_every_rule_and_how_it_was_made(rows: list[Seen]) -> None:
    page = document(rows, "the command", "the machine")
    assert "Written by `the command` on the machine: 7 windows" in page
    assert "bars hold" in page
    for rule in RULES[1:]:
        assert rule.replace("_", " ") in page
    assert "| data | 4 |" in page


def test_a_count_is_what_one_counts_by_hand() -> None:
    slow = window_of(ddp_job(seed=0, ranks=4, steps=20, extra={(DATA, 2): 200 * MS}))
    row = Seen("by hand", PlannedFault("routing", "data", 200, rank=2), diagnose(slow))
    assert row.ranked()[0] == DATA
    assert (count([row, row]).rows, count([row, row]).top_1) == (2, 2)
    # blamed for something else, the same window is a miss
    miss = Seen("by hand", PlannedFault("routing", "callback/host", 200, rank=2), row.diagnosis)
    assert miss.fault.stage == CALLBACKS
    assert (count([miss]).top_1, count([miss]).top_2) == (0, 0)


def test_the_full_plan_has_the_paper_s_fifty_rows_on_ranks_that_seeds_choose() -> None:
    faults = [fault for job in full() for fault in job.faults if fault.experiment == "routing"]
    assert len(faults) == 50
    assert {fault.family for fault in faults} == set(HIDDEN_RANK)
    assert len({fault.rank for fault in faults}) > 8
    assert all(fault.rank < job.ranks for job in full() for fault in job.faults)


def test_a_host_only_fault_stays_for_two_windows_and_is_followed_by_a_healthy_one() -> None:
    for job in full():
        places = [place for place, fault in enumerate(job.faults) if fault.experiment.endswith(KEPT_ON)]
        for place in places:
            before, here, after = job.faults[place - 1 : place + 2]
            assert here.family in BEYOND
            assert (before.family, before.rank, before.delay_ms) == (here.family, here.rank, here.delay_ms)
            assert after == PlannedFault(AFTERWARDS)
    assert sum(fault.experiment.endswith(KEPT_ON) for job in full() for fault in job.faults) == 18


def test_healthy_windows_stand_among_the_faults_of_every_job() -> None:
    for job in full():
        longest = "".join("." if fault.family else " " for fault in job.faults).split()
        assert max(map(len, longest)) <= 3


def test_a_missed_bar_is_reported_as_missed() -> None:
    slow = diagnose(window_of(ddp_job(seed=0, ranks=4, steps=20, extra={(DATA, 2): 200 * MS})))
    hit = Seen("by hand", PlannedFault("routing", "data", 200, rank=2), slow)
    miss = Seen("by hand", PlannedFault("routing", "callback/host", 200, rank=2), slow)
    found = {bar.target: bar for bar in bars([hit, hit, hit, hit, miss])}
    top_1 = found["hidden rank, step-aligned: top-1 in 40 of 50, as the paper"]
    assert (top_1.measured, top_1.holds) == ("4/5", True)
    top_2 = found["hidden rank, step-aligned: top-2 in all"]
    assert (top_2.measured, top_2.holds) == ("4/5", False)
    page = document([hit, hit, hit, hit, miss], "the command", "the machine")
    assert "| hidden rank, step-aligned: top-2 in all | 4/5 | **missed** |" in page
    # what no row speaks of is not among the bars
    assert not any("A/B/A" in target or "no fault" in target for target in found)
