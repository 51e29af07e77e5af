"""The last steps of a running job: the rank that delays it, silent ranks, and whether steps still arrive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfapp.accounting import diagnose, reference_of, rolling_verdict, rolling_window
from sfapp.accounting.measures import measure
from sfapp.model.live_rows import LiveRows
from tests.builders import BACKWARD, DATA, MS, STEP_NS, ddp_job, late_in_data
from tests.live_rows import live_rows


def test_a_rank_late_in_data_holds_the_job_there_in_every_step() -> None:
    found = rolling_verdict(live_rows(late_in_data(2, part=0.2)))
    assert found.kind == "late"
    assert found.finding is not None
    assert (found.finding.stage, found.finding.ranks) == (DATA, (2,))
    assert (found.late_steps, found.steps) == (20, 20)
    assert found.step_ns is not None
    # it costs what it is late, less what the next latest rank would have cost
    assert found.finding.effect * found.step_ns == pytest.approx(0.2 * STEP_NS, abs=MS)
    assert 0 < found.finding.high - found.finding.low < 0.02
    assert found.since_step is None  # it began before the steps that were looked at
    assert found.until_step is None


def test_the_verdict_is_that_of_the_same_steps_as_a_window() -> None:
    rows = live_rows(late_in_data(1))
    window = rolling_window(rows, 20)
    assert window is not None
    expected = diagnose(window, frontier="carry_over")
    assert rolling_verdict(rows).diagnosis == expected


@settings(max_examples=25, deadline=None)
@given(
    rank=st.integers(0, 3),
    since=st.integers(0, 15),
    part=st.floats(0.2, 1.0),
    seed=st.integers(0, 1000),
)
def test_five_late_steps_of_twenty_name_the_rank_and_the_first_of_them(
    rank: int, since: int, part: float, seed: int
) -> None:
    found = rolling_verdict(live_rows(late_in_data(rank, part=part, since=since, seed=seed)))
    assert found.finding is not None
    assert (found.finding.stage, found.finding.ranks) == (DATA, (rank,))
    assert found.late_steps == 20 - since
    assert found.since_step == (100 + since if since else None)


def test_a_rank_that_recovered_held_the_job_until_a_step() -> None:
    duration = late_in_data(3, steps=20)
    duration[:, 12:] = ddp_job(ranks=4, steps=20)[:, 12:]
    found = rolling_verdict(live_rows(duration))
    assert found.finding is not None
    assert found.finding.ranks == (3,)
    assert (found.late_steps, found.until_step) == (12, 111)


def test_healthy_jobs_need_no_attention_more_often_than_alpha_allows() -> None:
    kinds = [rolling_verdict(live_rows(ddp_job(ranks=4, steps=20, seed=seed))).kind for seed in range(60)]
    assert kinds.count("healthy") >= 58


def test_growth_of_all_ranks_is_found_against_healthy_windows() -> None:
    healthy = ddp_job(ranks=4, steps=40)
    window = rolling_window(live_rows(healthy), 40)
    assert window is not None
    reference = reference_of(measure(window))
    slower = ddp_job(ranks=4, steps=20, extra={(BACKWARD, "all"): 20 * MS}, seed=1)
    found = rolling_verdict(live_rows(slower), reference=reference)
    assert found.kind == "growth"
    assert found.finding is not None
    assert found.finding.stage == BACKWARD


def test_a_rank_missing_from_the_start_makes_the_data_incomplete_and_not_healthy() -> None:
    rows = live_rows(ddp_job(ranks=4, steps=20), without=[3])
    found = rolling_verdict(rows)
    assert found.kind == "incomplete"
    assert found.roll.absent == (3,)
    # what the others show is still judged
    assert found.steps == 20
    late = rolling_verdict(live_rows(late_in_data(2), without=[3]))
    assert late.kind == "incomplete"
    assert late.finding is not None
    assert late.finding.ranks == (2,)


def test_a_rank_that_stopped_reporting_is_called_and_the_others_go_on() -> None:
    rows = live_rows(ddp_job(ranks=4, steps=60), stopped={1: 10}, silent={1: 30.0})
    found = rolling_verdict(rows)
    assert found.kind == "incomplete"
    assert found.roll.silent == ((1, 30.0),)
    assert found.roll.behind == ((1, 109),)
    assert found.diagnosis is not None
    assert (found.diagnosis.first_step, found.diagnosis.last_step) == (140, 159)


def test_a_stalled_job_lists_the_ranks_that_lack_the_newest_step() -> None:
    rows = live_rows(ddp_job(ranks=4, steps=30), stopped={2: 29, 0: 0}, idle_s=12.0)
    found = rolling_verdict(rows)
    assert found.kind == "standing"
    assert found.roll.newest_step == 129
    assert found.roll.behind == ((0, None), (2, 128))
    assert found.roll.idle_s == 12.0


def test_what_was_collected_long_ago_is_silent_by_now() -> None:
    found = rolling_verdict(live_rows(ddp_job(ranks=4, steps=30)), older_s=20.0)
    assert found.kind == "incomplete"
    assert len(found.roll.silent) == 4


def test_a_job_of_which_no_rank_reports_is_not_called_standing() -> None:
    silent = dict.fromkeys(range(4), 12.0)
    rows = live_rows(ddp_job(ranks=4, steps=30), idle_s=12.0, silent=silent)
    assert rolling_verdict(rows).kind == "incomplete"
    del silent[2]
    rows = live_rows(ddp_job(ranks=4, steps=30), idle_s=12.0, silent=silent)
    assert rolling_verdict(rows).kind == "standing"


def test_long_steps_are_not_a_standstill() -> None:
    minutes = 1000 * ddp_job(ranks=4, steps=20)  # steps of a minute
    assert rolling_verdict(live_rows(minutes, idle_s=90.0)).kind == "healthy"


def test_too_few_steps_are_not_judged() -> None:
    assert rolling_verdict(live_rows(ddp_job(ranks=4, steps=4))).kind == "starting"
    assert rolling_verdict(LiveRows("run", 0, 2, ())).kind == "incomplete"


def test_a_job_has_ended_once_its_ranks_have_left() -> None:
    assert rolling_verdict(live_rows(ddp_job(ranks=2, steps=9), left=[0, 1])).kind == "ended"


def test_ranks_with_other_stages_stand_apart() -> None:
    rows = live_rows(ddp_job(ranks=4, steps=20))
    other = live_rows(ddp_job(ranks=4, steps=20)[:2], stages=(DATA, BACKWARD))
    mixed = LiveRows("run", 0, 4, (*rows.ranks[:3], other.ranks[3]))
    found = rolling_verdict(mixed)
    assert (found.kind, found.roll.apart) == ("incomplete", (3,))
    assert found.diagnosis is not None
    assert found.diagnosis.ranks == 3


def test_ranks_are_compared_at_the_steps_that_all_have_finished() -> None:
    rows = live_rows(ddp_job(ranks=4, steps=30), stopped={0: 28, 1: 29})
    window = rolling_window(rows, 20)
    assert window is not None
    assert window.step_N.tolist() == list(range(108, 128))
    assert rolling_verdict(rows).kind == "healthy"


def test_a_late_rank_is_behind_though_all_take_equally_long() -> None:
    duration = late_in_data(2, part=0.3)
    assert np.ptp(duration.sum(axis=0).mean(axis=0)) < 2 * MS  # they wait for each other
    delays = rolling_verdict(live_rows(duration)).delays
    assert delays is not None
    assert delays.behind_R[2] == pytest.approx(0.3 * STEP_NS, rel=0.2)
    assert np.delete(delays.behind_R, 2).max() < 0.05 * STEP_NS
    assert delays.late_BR[0, 2] == pytest.approx(0.3 * STEP_NS, rel=0.2)
