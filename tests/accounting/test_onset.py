"""Where in a run effects begin and end (§17)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.ensemble.scores import onsets
from benchmarks.ensemble.simulated_jobs import Fault, SimulatedJob, simulate
from sfapp.accounting import diagnose_runs
from sfapp.accounting.episodes import episodes_of
from sfapp.accounting.onset import located
from sfapp.model import Diagnosis, Window
from sfapp.model.diagnosis import Culprit
from sfapp.model.findings import Finding
from sfapp.model.onsets import Episode, StepEstimate
from tests.builders import BACKWARD, CALLBACKS, DATA

JOB = SimulatedJob(
    seed=1, ranks=8, sync_stages=(BACKWARD,), noise=0.01,
    tails=False, memory=0.0, common=0.0, bias=0.0, drift=0.0,
    windows=6,
)  # fmt: skip


def located_in(windows: list[Window], *, unread: tuple[int, ...] = ()) -> list[Episode]:
    readable = {window.number: window for window in windows if window.number not in unread}
    return [located(found, readable) for found in episodes_of(diagnose_runs(windows))]


def with_fault(kind: str, stage: str, size: float, first: int, until: int = 240) -> list[Window]:
    fault = Fault(kind, stage, 3, size, first, until)
    return simulate(replace(JOB, faults=(fault,)), waits=True)


# ---- episodes -----------------------------------------------------------------------------------------


def verdict(like: Diagnosis, window: int, *findings: Finding) -> Diagnosis:
    return replace(like, window=window, first_step=40 * window, last_step=40 * window + 39, findings=findings)


def late(*ranks: int, stage: str = DATA, attention: bool = True) -> Finding:
    return Finding("rank", stage, ranks, "node-0", 0.1, 0.09, 0.11, 1e-6, needs_attention=attention)


GROWTH = Finding("growth", BACKWARD, (), None, 0.2, 0.1, 0.3, 1e-6, needs_attention=True)


@pytest.fixture(scope="module")
def like() -> Diagnosis:
    return diagnose_runs(simulate(replace(JOB, windows=1), waits=True))[0]


def spans(verdicts: list[Diagnosis]) -> list[tuple[str, tuple[int, ...], int, int]]:
    made = [found.episode() for found in episodes_of(verdicts)]
    return [(one.stage, one.ranks, one.first_window, one.last_window) for one in made]


def test_neighbouring_windows_with_the_same_finding_are_one_episode(like: Diagnosis) -> None:
    verdicts = [verdict(like, number, *(late(3),) * (number in (1, 2, 4))) for number in range(6)]
    assert spans(verdicts) == [(DATA, (3,), 1, 2), (DATA, (3,), 4, 4)]
    first, second = episodes_of(verdicts)
    assert [edge.window for edge in first.edges] == [0, 1, 2, 3]
    assert [edge.window for edge in second.edges] == [3, 4, 5]


def test_another_larger_finding_does_not_end_an_episode(like: Diagnosis) -> None:
    verdicts = [verdict(like, 0), verdict(like, 1, late(3)), verdict(like, 2, GROWTH, late(3))]
    assert spans(verdicts) == [(DATA, (3,), 1, 2), (BACKWARD, (), 2, 2)]


def test_an_episode_goes_on_while_half_of_the_ranks_are_the_same(like: Diagnosis) -> None:
    verdicts = [verdict(like, 0, late(3, 5)), verdict(like, 1, late(5)), verdict(like, 2, late(3))]
    assert spans(verdicts) == [(DATA, (5,), 0, 1), (DATA, (3,), 2, 2)]
    assert spans([verdict(like, 0, late(3)), verdict(like, 1, late(1, 2, 3, 4))]) == [
        (DATA, (3,), 0, 0),
        (DATA, (1, 2, 3, 4), 1, 1),
    ]


def test_ranks_that_take_turns_are_one_episode_whichever_are_named(like: Diagnosis) -> None:
    turns = [replace(late(*ranks), steps=(40 * place + 3, 40 * place + 9)) for place, ranks in
             enumerate([(1, 2), (5, 6), (1, 7)])]  # fmt: skip
    verdicts = [verdict(like, number, finding) for number, finding in enumerate(turns)]
    assert spans(verdicts) == [(DATA, (1, 2, 5, 6, 7), 0, 2)]


def test_growth_goes_on_with_the_rank_that_leads_its_stage(like: Diagnosis) -> None:
    leads = replace(
        verdict(like, 1, replace(GROWTH, stage=DATA)), culprits=(Culprit(DATA, "chronic", rank=3),)
    )
    none = replace(leads, culprits=())
    assert spans([verdict(like, 0, late(3)), leads]) == [(DATA, (3,), 0, 1)]
    assert spans([verdict(like, 0, late(3)), none]) == [(DATA, (3,), 0, 0), (DATA, (), 1, 1)]


def test_findings_that_need_no_attention_make_no_episode(like: Diagnosis) -> None:
    assert spans([verdict(like, 0, late(3, attention=False))]) == []


def test_without_windows_to_read_an_episode_is_known_to_the_window(like: Diagnosis) -> None:
    (found,) = episodes_of([verdict(like, 0), verdict(like, 1, late(3)), verdict(like, 2)])
    assert located(found, {}) == found.episode()
    assert found.episode().began == StepEstimate(None, 0, 79)
    assert found.episode().ended == StepEstimate(None, 40, 119)


# ---- steps --------------------------------------------------------------------------------------------


def test_a_late_rank_is_located_to_the_step() -> None:
    (found,) = located_in(with_fault("persistent", DATA, 0.2, 93, 171))
    assert (found.kind, found.stage, found.ranks) == ("rank", DATA, (3,))
    assert (found.first_window, found.last_window) == (2, 4)
    assert found.began == StepEstimate(93, 93, 93)
    assert found.ended == StepEstimate(170, 170, 170)


def test_growth_is_located_by_the_exposed_time() -> None:
    (found,) = located_in(with_fault("all", BACKWARD, 0.2, 93, 171))
    assert found.kind == "growth"
    assert found.began == StepEstimate(93, 93, 93)
    assert found.ended == StepEstimate(170, 170, 170)


def test_an_effect_within_one_window_begins_and_ends_there() -> None:
    (found,) = located_in(with_fault("persistent", DATA, 0.4, 90, 104))
    assert (found.first_window, found.last_window) == (2, 2)
    assert found.began == StepEstimate(90, 90, 90)
    assert found.ended == StepEstimate(103, 103, 103)


def test_what_the_last_window_has_has_not_ended() -> None:
    (found,) = located_in(with_fault("persistent", DATA, 0.2, 93))
    assert found.ended is None


def test_what_comes_every_tenth_step_may_have_begun_up_to_nine_steps_before() -> None:
    (found,) = located_in(with_fault("periodic", CALLBACKS, 1.0, 93, 175))
    assert found.began == StepEstimate(93, 84, 93)
    assert found.ended == StepEstimate(173, 173, 182)


def test_a_single_late_step_in_the_window_before_belongs_to_them() -> None:
    windows = with_fault("periodic", CALLBACKS, 0.5, 75, 175)
    (found,) = located_in(windows)
    assert found.began.step == 75


def test_what_lasts_from_the_first_step_began_with_the_run() -> None:
    (found,) = located_in(with_fault("persistent", DATA, 0.2, 0, 100))
    assert found.first_window == 0
    assert found.began == StepEstimate(0, 0, 0)


@pytest.mark.parametrize("kind", ["persistent", "all", "periodic"])
def test_a_window_that_is_not_read_widens_the_interval(kind: str) -> None:
    windows = with_fault(kind, DATA, 0.2 if kind != "periodic" else 1.0, 80, 160)
    (found,) = located_in(windows, unread=(1, 4))
    assert found.began.low <= 41
    assert found.began.high in (80, 89)
    assert found.ended is not None
    assert found.ended.low in (150, 159)
    assert found.ended.high >= 190


def test_steps_that_were_not_recorded_widen_the_interval() -> None:
    windows = with_fault("persistent", DATA, 0.2, 80)
    (found,) = located_in([window for window in windows if window.number != 1])
    assert found.began == StepEstimate(80, 40, 80)


def test_an_effect_that_another_one_follows_at_once_is_not_mixed_up_with_it() -> None:
    faults = (Fault("all", DATA, 0, 0.3, 80, 120), Fault("persistent", DATA, 3, 0.3, 120, 160))
    first, second = located_in(simulate(replace(JOB, faults=faults), waits=True))
    assert (first.kind, first.began) == ("growth", StepEstimate(80, 80, 80))
    assert first.ended is not None
    assert first.ended.low <= 119 <= first.ended.high
    assert (second.ranks, second.began.step, second.ended) == ((3,), 120, StepEstimate(159, 159, 159))


def test_what_is_planted_in_the_ensemble_is_within_its_interval() -> None:
    for score in onsets(60, seed=4):
        assert score.within.total() >= 20
        assert score.within[True] >= 0.95 * score.within.total() - 1
        assert np.median(score.widths) <= 3
