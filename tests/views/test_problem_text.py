"""Problems in words: their cost, and whether they are ongoing."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from sfapp.accounting import diagnose_runs
from sfapp.accounting.problems import problems_of
from sfapp.model.problems import Problem, ProblemStatus, TimedDiagnosis
from sfapp.views.text.problem_evidence import episode_rows
from sfapp.views.text.problems import (
    count_problems,
    problem_facts,
    problem_text,
    problems_headline,
    rank_time,
)
from tests.accounting.test_problems import SECONDS, START
from tests.builders import DATA, MS, ddp_job, window_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 rank-seconds"),
        (1, "1 rank-second"),
        (1.4, "1 rank-second"),
        (-1, "−1 rank-second"),
        (25, "25 rank-seconds"),
        (186, "3.1 rank-minutes"),
        (14_400, "4.0 rank-hours"),
    ],
)
def test_lost_time_is_singular_for_one(seconds: float, text: str) -> None:
    assert rank_time(seconds / 3600) == text


def open_problem() -> tuple[Problem, datetime]:
    """A problem that the last of three windows of 40 s has, and the end of that window."""
    windows = [
        window_of(
            ddp_job(extra={(DATA, 3): 30 * MS} if number == 2 else None, seed=number),
            window=number,
            first_step=40 * number,
        )
        for number in range(3)
    ]
    verdicts = [
        TimedDiagnosis(one, START + number * SECONDS, START + (number + 1) * SECONDS)
        for number, one in enumerate(diagnose_runs(windows))
    ]
    (problem,) = problems_of(verdicts, [0, 1, 2])
    return problem, START + 3 * SECONDS


def test_a_problem_is_ongoing_only_while_packets_still_arrive() -> None:
    problem, recorded = open_problem()
    # Given a page a minute after the latest window, and one a day later
    soon = problem_text(problem, now=recorded + timedelta(minutes=1))
    later = problem_text(problem, now=recorded + timedelta(days=1))
    assert (soon.status, soon.until) == ("ongoing", "the run's latest window has it")
    assert soon.total.endswith(" so far")
    assert (later.status, later.until) == ("not ended", "not ended when recording stopped")
    assert later.total.endswith(" lost")
    titles = [problem_facts(problem, None, recorded + timedelta(days=days))[1].title for days in (0, 1)]
    assert titles == ["Cost so far", "Total cost"]
    assert [episode_rows(problem, recorded + timedelta(days=days))[0]["ended"] for days in (0, 1)] == [
        "ongoing",
        "not ended",
    ]


def test_the_next_window_of_a_slow_job_is_not_overdue_after_ten_minutes() -> None:
    problem, recorded = open_problem()
    assert not problem.is_stale(recorded + timedelta(minutes=9))
    assert problem.is_stale(recorded + timedelta(minutes=10))


def test_what_ended_cost_no_more_than_it_did() -> None:
    problem, recorded = open_problem()
    ended = replace(problem, ended=problem.began, stale_from=None)
    assert problem_text(ended, now=recorded).total.endswith(" lost")
    assert problem_facts(ended, None, recorded)[1].title == "Total cost"


def test_the_headline_counts_apart_what_had_not_ended_when_recording_stopped() -> None:
    problem, recorded = open_problem()
    ended = replace(problem, ended=problem.began, stale_from=None)
    listed: list[tuple[Problem, ProblemStatus]] = [(problem, "ongoing"), (ended, "ended")]
    assert count_problems(listed, recorded) == (1, 1, 0)
    assert count_problems(listed, recorded + timedelta(days=1)) == (0, 1, 1)
    assert problems_headline(0, 1, 1) == "2 problems, 1 not ended when recording stopped"
    assert problems_headline(1, 1, 1) == "3 problems, 1 ongoing, 1 not ended when recording stopped"
    assert problems_headline(0, 0, 1) == "1 problem, not ended when recording stopped"
    assert problems_headline(0, 0, 2) == "2 problems, all not ended when recording stopped"
    assert problems_headline(0, 2) == "2 problems, none of them ongoing"
