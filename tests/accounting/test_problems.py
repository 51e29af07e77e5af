"""Windows of a run with one cause are one problem, whatever else happens and whenever packets arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.ensemble.simulated_jobs import Fault, SimulatedJob, simulate
from sfapp.accounting import diagnose_runs
from sfapp.accounting.onset import located
from sfapp.accounting.problems import by_cost, problems_of
from sfapp.model import Diagnosis
from sfapp.model.incidents import Stamp
from sfapp.model.problems import Problem, ProblemMark, TimedDiagnosis, problem_status
from tests.builders import BACKWARD, DATA, FORWARD, MS, ddp_job, window_of

JOB = SimulatedJob(
    seed=3, ranks=4, sync_stages=(BACKWARD,), noise=0.01,
    tails=False, memory=0.0, common=0.0, bias=0.0, drift=0.0,
    windows=12, faults=(),
)  # fmt: skip
"""40 steps a window."""

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECONDS = timedelta(seconds=40)


def verdicts(*faults: Fault, windows: int = 12) -> list[TimedDiagnosis]:
    """Verdicts on a job with these faults, whose windows took 40 s each."""
    found = diagnose_runs(simulate(replace(JOB, faults=faults, windows=windows), waits=True))
    return [
        TimedDiagnosis(one, START + n * SECONDS, START + (n + 1) * SECONDS) for n, one in enumerate(found)
    ]


def numbers(found: Sequence[TimedDiagnosis]) -> list[int]:
    return [one.diagnosis.window for one in found]


def problems(found: Sequence[TimedDiagnosis]) -> list[Problem]:
    return problems_of(found, numbers(found))


def attention(found: Sequence[TimedDiagnosis]) -> set[int]:
    return {one.diagnosis.window for one in found if one.diagnosis.needs_attention}


def test_a_rank_that_is_late_again_later_is_one_problem() -> None:
    found = verdicts(Fault("persistent", DATA, 3, 0.2, 80, 160), Fault("persistent", DATA, 3, 0.2, 320, 400))
    (problem,) = problems(found)
    assert (problem.kind, problem.stage, problem.ranks) == ("rank", DATA, (3,))
    assert problem.windows == (2, 3, 8, 9)
    assert [episode.windows for episode in problem.episodes] == [2, 2]
    assert problem.recovered == 2
    assert problem.ended is not None


def test_other_ranks_and_other_stages_are_other_problems() -> None:
    found = verdicts(
        Fault("persistent", DATA, 3, 0.2, 80, 160),
        Fault("persistent", DATA, 1, 0.2, 240, 320),
        Fault("persistent", FORWARD, 3, 0.2, 400, 480),
    )
    causes = {(problem.stage, problem.ranks): problem.windows for problem in problems(found)}
    assert causes == {(DATA, (3,)): (2, 3), (DATA, (1,)): (6, 7), (FORWARD, (3,)): (10, 11)}


def test_its_cost_is_what_the_fault_added_to_every_step_on_every_rank() -> None:
    found = verdicts(Fault("persistent", DATA, 3, 0.25, 80, 160))
    (problem,) = problems(found)
    healthy = found[0].diagnosis.step_time.mean_ns
    cost = problem.cost
    assert cost is not None
    assert cost.lost_ns / cost.steps == pytest.approx(0.25 * healthy, rel=0.1)
    assert cost.low_ns <= cost.lost_ns <= cost.high_ns
    assert cost.rank_hours == pytest.approx(cost.lost_ns * 4 / 3.6e12)


def test_problems_are_sorted_by_rank_hours() -> None:
    found = verdicts(Fault("persistent", DATA, 3, 0.1, 80, 160), Fault("persistent", DATA, 1, 0.4, 240, 320))
    assert [problem.ranks for problem in problems(found)] == [(1,), (3,)]
    assert by_cost(reversed(problems(found))) == problems(found)


def test_every_window_that_needs_attention_belongs_to_a_problem_and_no_healthy_one_does() -> None:
    found = verdicts(
        Fault("persistent", DATA, 3, 0.2, 80, 240), Fault("persistent", BACKWARD, 2, 0.3, 160, 320)
    )
    assert attention(found) == {window for problem in problems(found) for window in problem.windows}


def test_it_keeps_its_id_while_windows_arrive() -> None:
    found = verdicts(Fault("persistent", DATA, 3, 0.2, 80, 320), Fault("persistent", DATA, 3, 0.2, 400, 480))
    (last,) = problems(found)
    for arrived in range(4, len(found)):
        (problem,) = problems(found[:arrived])
        assert last.id in (problem.id, *problem.other_ids)
        assert (problem.ended is None) == (problem.windows[-1] == arrived - 1)


def test_windows_without_ranks_come_first_and_are_one_problem() -> None:
    found = verdicts(Fault("persistent", DATA, 3, 0.4, 80, 160))

    def without(diagnosis: Diagnosis, *ranks: int) -> Diagnosis:
        return replace(diagnosis, missing_ranks=ranks, ranks=4 - len(ranks))

    found[5] = replace(found[5], diagnosis=without(found[5].diagnosis, 2))
    found[7] = replace(found[7], diagnosis=without(found[7].diagnosis, 0, 2))
    missing, late = problems(found)
    assert (missing.kind, missing.ranks, missing.windows) == ("missing", (0, 2), (5, 7))
    assert (missing.stage, missing.cost, missing.world) == (None, None, 4)
    assert (missing.began.step, missing.ended and missing.ended.step) == (200, 319)
    assert late.ranks == (3,)


def test_it_began_when_its_first_step_ran() -> None:
    found = verdicts(Fault("persistent", DATA, 3, 0.2, 80, 160))
    (problem,) = problems(found)
    assert problem.began_at == START + 2 * SECONDS
    without_times = [TimedDiagnosis(one.diagnosis) for one in found]
    assert problems(without_times)[0].began_at is None


def returned_to_a_checkpoint(*slow: int) -> list[Problem]:
    """Problems of six windows of 40 steps and, from the checkpoint at step 120, four more; rank 3 is late in
    data in some of the ten."""
    first_steps = (*range(0, 240, 40), *range(120, 280, 40))
    windows = [
        window_of(
            ddp_job(ranks=4, seed=number, extra={(DATA, 3): 60 * MS} if number in slow else None),
            first_step=first,
            window=number,
        )
        for number, first in enumerate(first_steps)
    ]
    found = [
        TimedDiagnosis(one, START + n * SECONDS, START + (n + 1) * SECONDS)
        for n, one in enumerate(diagnose_runs(windows))
    ]
    readable = {window.number: window for window in windows}
    return problems_of(found, numbers(found), lambda episode: located(episode, readable))


@pytest.mark.parametrize(("window", "step"), [(6, 120), (7, 160)])
def test_steps_that_a_job_ran_twice_belong_to_the_windows_of_the_problem(window: int, step: int) -> None:
    (problem,) = returned_to_a_checkpoint(window)
    assert problem.ended is not None
    for estimate, expected in ((problem.began, step), (problem.ended, step + 39)):
        assert estimate.step == expected
        assert estimate.low <= expected <= estimate.high
    assert problem.began_at == START + window * SECONDS
    assert problem.ended_at == START + window * SECONDS + SECONDS * 39 / 40


def test_a_problem_that_outlasts_a_return_to_a_checkpoint_has_two_episodes() -> None:
    (problem,) = returned_to_a_checkpoint(4, 5, 6)
    assert problem.windows == (4, 5, 6)
    steps = [(one.began.step, one.ended and one.ended.step) for one in problem.episodes]
    assert steps == [(160, 239), (120, 159)]
    assert problem.began_at == START + 4 * SECONDS
    assert problem.ended_at == START + 6 * SECONDS + SECONDS * 39 / 40


def test_a_window_with_too_few_steps_to_know_noise_is_a_problem_of_the_suspect() -> None:
    job = ddp_job(ranks=4, steps=3, extra={(DATA, 3): 80 * MS})
    (diagnosis,) = diagnose_runs([window_of(job)])
    assert not diagnosis.knows_noise
    assert diagnosis.needs_attention
    (problem,) = problems_of([TimedDiagnosis(diagnosis)], [0])
    assert (problem.stage, problem.ranks) == (DATA, (3,))


def test_a_window_of_few_steps_loses_no_more_than_its_time() -> None:
    jobs = [ddp_job(ranks=4, steps=3, seed=number) for number in range(4)]
    slow = ddp_job(ranks=4, steps=3, extra={(BACKWARD, "all"): 300 * MS})
    found = diagnose_runs(
        window_of(job, first_step=3 * number, window=number) for number, job in enumerate([*jobs, slow])
    )
    (problem,) = problems([TimedDiagnosis(one) for one in found])
    cost = problem.cost
    assert cost is not None
    assert cost.lost_ns / cost.steps == pytest.approx(300 * MS, rel=0.05)
    assert cost.lost_ns <= cost.high_ns <= cost.steps_ns


MARK = Stamp("Ada", START)


@pytest.mark.parametrize(
    ("mark", "now", "status"),
    [
        (None, START, "ended"),
        (ProblemMark(problem="p", muted=MARK), START, "muted"),
        (ProblemMark(problem="p", muted=MARK, muted_until=START + SECONDS), START, "muted"),
        (ProblemMark(problem="p", muted=MARK, muted_until=START + SECONDS), START + SECONDS, "ended"),
        (ProblemMark(problem="p", fixed=MARK, fixed_through=5), START, "fixed"),
        (ProblemMark(problem="p", fixed=MARK, fixed_through=2), START, "ended"),
        (ProblemMark(problem="p", fixed=MARK, fixed_through=2, muted=MARK), START, "muted"),
    ],
)
def test_a_mute_ends_and_what_was_fixed_has_ended_again(
    mark: ProblemMark | None, now: datetime, status: str
) -> None:
    (problem,) = problems(verdicts(Fault("persistent", DATA, 3, 0.2, 80, 160)))
    assert problem_status(problem, mark, now) == status


def test_what_was_marked_as_fixed_has_returned_while_the_last_window_has_it() -> None:
    (problem,) = problems(verdicts(Fault("persistent", DATA, 3, 0.2, 80, 240), windows=6))
    assert (problem.ended, problem.latest_window) == (None, 5)

    marks = [ProblemMark(problem="p", fixed=MARK, fixed_through=through) for through in (2, 5)]

    assert [problem_status(problem, mark, START) for mark in marks] == ["returned", "fixed"]
