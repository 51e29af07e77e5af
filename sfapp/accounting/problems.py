"""Problems of a run: episodes with the same cause, and missing data (accounting.md §18)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import blake2b

from sfapp.accounting.episodes import EpisodeWindows, episodes_of, takes_turns
from sfapp.accounting.shared_attributes import LateInWindow, shared_over_windows
from sfapp.model import Diagnosis, RankTable
from sfapp.model.findings import Finding
from sfapp.model.onsets import Episode, StepEstimate
from sfapp.model.problems import Cost, Problem, ProblemKind, TimedDiagnosis

NS_PER_HOUR = 3.6e12

Locate = Callable[[EpisodeWindows], Episode]
"""Returns an episode with the steps at which it began and ended."""

RanksOf = Callable[[Diagnosis], RankTable | None]
"""Returns the ranks of the window of a verdict; None if it cannot be read."""

OVERDUE = timedelta(minutes=10)
OVERDUE_WINDOWS = 3
"""The next window of a run is overdue after this time, and after that of so many windows."""

MOST_LOCATED = 20
"""Maximum number of episodes of a run whose windows are read: the first and latest of the costliest
problems."""


def problems_of(
    verdicts: Sequence[TimedDiagnosis],
    windows: Sequence[int],
    locate: Locate | None = None,
    ranks_of: RanksOf | None = None,
    is_wanted: Callable[[Problem], bool] = lambda problem: True,
    each: int = MOST_LOCATED,
) -> list[Problem]:
    """Return the problems of one run: missing data first, then by rank-hours lost.

    Every window that needs attention belongs to at least one problem. Episodes with the same stage and the
    same late rank are one problem, however far apart they are.

    Args:
        verdicts: on windows of the run in order, under the same gates: at least those that need attention,
            their neighbours, and those that lack ranks.
        windows: numbers of all windows of the run, ascending.
        locate: finds where an episode began and ended; without it these are known to the nearest window. It
            is called for about ``MOST_LOCATED`` episodes at most.
        ranks_of: reads the ranks of a window, once for each of as many problems in which several ranks are
            late; without it, what these share is not known.
        is_wanted: chooses problems; episodes of others are not located.
        each: maximum number of episodes of one problem that are located.
    """
    by_id: dict[str, list[EpisodeWindows]] = {}
    for found in episodes_of([one.diagnosis for one in verdicts]):
        by_id.setdefault(_id_of_episode(found), []).append(found)
    every = [*_missing_data(verdicts, windows), *(_problem(one, verdicts, windows) for one in by_id.values())]
    problems = by_cost(filter(is_wanted, every))
    left = 0 if locate is None else MOST_LOCATED
    if ranks_of is not None:
        for place, problem in enumerate(problems[:MOST_LOCATED]):
            problems[place] = _with_shared(problem, by_id.get(problem.id, ()), ranks_of)
    for place, problem in enumerate(problems):
        if locate is not None and problem.episodes and left > 0:
            problems[place] = _located(problem, by_id[problem.id], verdicts, locate, min(left, each))
            left -= min(len(problem.episodes), each)
    return problems


def by_cost(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems of several runs in order: jobs that stand still, then missing data, then by rank-hours
    lost."""
    return sorted(
        problems,
        key=lambda one: (
            one.kind != "standstill" or one.ended is not None,
            one.cost is not None,
            -(one.cost.rank_hours if one.cost else 0.0),
            one.run_id,
        ),
    )


def _problem(
    episodes: Sequence[EpisodeWindows],
    verdicts: Sequence[TimedDiagnosis],
    windows: Sequence[int],
) -> Problem:
    first, last = episodes[0], episodes[-1]
    seen = [one for found in episodes for one in zip(found.seen, found.findings, strict=True)]
    numbers = tuple(sorted({diagnosis.window for diagnosis, _ in seen}))
    found_episodes = tuple(found.episode() for found in episodes)
    began, ended = found_episodes[0].began, found_episodes[-1].ended
    problem_id = _id_of_episode(first)
    causes = {(_kind_of_finding(finding), finding.stage, finding.ranks) for _, finding in seen}
    single = {_id(first.first.run_id, *cause) for cause in causes}
    hosts = {found.finding.hostname for found in episodes}
    kind = _kind_of_episode(first)
    return Problem(
        id=problem_id,
        other_ids=tuple(sorted(single - {problem_id})),
        run_id=first.first.run_id,
        kind=kind,
        stage=first.finding.stage,
        ranks=tuple(sorted({rank for found in episodes for rank in found.ranks})),
        hostname=hosts.pop() if kind == "rank" and len(hosts) == 1 else None,
        steps_late=_steps_late(last),
        windows=numbers,
        world=_world(last.last),
        episodes=found_episodes,
        began=began,
        ended=ended,
        began_at=_began_at(began, first, verdicts),
        ended_at=_ended_at(ended, last, verdicts),
        stale_from=_stale_from(numbers[-1], verdicts) if ended is None else None,
        recovered=sum(number > numbers[-1] for number in windows),
        cost=_cost(seen),
    )


def _located(
    problem: Problem,
    found: Sequence[EpisodeWindows],
    verdicts: Sequence[TimedDiagnosis],
    locate: Locate,
    most: int,
) -> Problem:
    """Return a problem with the steps at which its first and its latest episodes began and ended."""
    latest = len(found) - max(1, most - 1)
    episodes = tuple(
        locate(one) if place == 0 or place >= latest else one.episode() for place, one in enumerate(found)
    )
    began, ended = episodes[0].began, episodes[-1].ended
    return replace(
        problem,
        episodes=episodes,
        began=began,
        ended=ended,
        began_at=_began_at(began, found[0], verdicts),
        ended_at=_ended_at(ended, found[-1], verdicts),
    )


def _with_shared(problem: Problem, episodes: Sequence[EpisodeWindows], ranks_of: RanksOf) -> Problem:
    """Return a problem with what its late ranks share; unchanged if only one is late, or none.

    Attributes are read from its latest window and hold for all of them: a rank keeps its place in a run.
    """
    seen = [one for found in episodes for one in zip(found.seen, found.findings, strict=True)]
    if problem.kind not in ("ranks", "turns") or (ranks := ranks_of(seen[-1][0])) is None:
        return problem
    late = [LateInWindow(problem.run_id, ranks, frozenset(finding.ranks)) for _, finding in seen]
    alpha = seen[-1][0].gates.alpha
    shared = tuple(one for one in shared_over_windows(late) if one.chance <= alpha)
    return replace(problem, shared=shared)


def _missing_data(verdicts: Sequence[TimedDiagnosis], windows: Sequence[int]) -> list[Problem]:
    """Return the problem of the windows from which ranks are missing; empty if there is no such window."""
    seen = [one.diagnosis for one in verdicts if one.diagnosis.lacks_data]
    if not seen:
        return []
    first, last = seen[0], seen[-1]
    began = StepEstimate(first.first_step, first.first_step, first.first_step)
    ended = StepEstimate(last.last_step, last.last_step, last.last_step)
    is_over = last.window != windows[-1]
    return [
        Problem(
            id=_digest(first.run_id, "missing"),
            run_id=first.run_id,
            kind="missing",
            stage=None,
            ranks=tuple(sorted({rank for one in seen for rank in one.missing_ranks})),
            hostname=None,
            windows=tuple(one.window for one in seen),
            world=_world(last),
            began=began,
            ended=ended if is_over else None,
            began_at=_time_of(first.first_step, (first,), verdicts),
            ended_at=_time_of(last.last_step, (last,), verdicts) if is_over else None,
            stale_from=None if is_over else _stale_from(last.window, verdicts),
            recovered=sum(number > last.window for number in windows),
        )
    ]


def _world(diagnosis: Diagnosis) -> int:
    return diagnosis.ranks + len(diagnosis.missing_ranks)


def _kind_of_episode(found: EpisodeWindows) -> ProblemKind:
    if len(found.ranks) == 1:
        return "rank"
    return _kind_of_finding(found.finding) if found.ranks else "growth"


def _kind_of_finding(finding: Finding) -> ProblemKind:
    if finding.kind != "rank":
        return "growth"
    if len(finding.ranks) == 1:
        return "rank"
    return "turns" if takes_turns(finding) else "ranks"


def _id_of_episode(found: EpisodeWindows) -> str:
    return _id(found.first.run_id, _kind_of_episode(found), found.finding.stage, found.ranks)


def _id(run_id: str, kind: ProblemKind, stage: str, ranks: tuple[int, ...]) -> str:
    """Return an id that does not depend on other windows. It includes the rank if there is one; of several
    ranks, another window may name others."""
    return _digest(run_id, kind, stage, *(ranks if kind == "rank" else ()))


def _digest(*parts: str | int) -> str:
    return blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def _steps_late(episode: EpisodeWindows) -> str | tuple[int, ...]:
    """Return in which steps of the latest window it is late; of several, one in which it is late throughout,
    since an episode may begin or end within a window."""
    throughout = [one for one in episode.telling if not one[1].steps]
    diagnosis, finding = (throughout or episode.telling)[-1]
    aim = diagnosis.aim
    if aim is not None and aim.stage == finding.stage and finding == diagnosis.main_finding:
        return aim.steps
    return finding.steps or "all"


def _cost(seen: Sequence[tuple[Diagnosis, Finding]]) -> Cost:
    """Add up the time that the windows lost. The ends of the intervals are added up too, so the result is
    wide enough even if the errors of the windows are correlated."""
    lost = low = high = rank_hours = 0.0
    took: dict[int, tuple[int, float]] = {}
    for diagnosis, finding in seen:
        time_ns = diagnosis.step_time.mean_ns * diagnosis.steps
        took[diagnosis.window] = (diagnosis.steps, time_ns)
        lost += finding.effect * time_ns
        low += finding.low * time_ns
        high += finding.high * time_ns
        rank_hours += finding.effect * time_ns * _world(diagnosis) / NS_PER_HOUR
    steps, times_ns = zip(*took.values(), strict=True)
    return Cost(lost, low, high, sum(steps), sum(times_ns), rank_hours)


def _began_at(
    began: StepEstimate, found: EpisodeWindows, verdicts: Sequence[TimedDiagnosis]
) -> datetime | None:
    step = found.first.first_step if began.step is None else began.step
    return _time_of(step, (found.first, found.before), verdicts)


def _ended_at(
    ended: StepEstimate | None, found: EpisodeWindows, verdicts: Sequence[TimedDiagnosis]
) -> datetime | None:
    if ended is None:
        return None
    step = found.last.last_step if ended.step is None else ended.step
    return _time_of(step, (found.last, found.after), verdicts)


def _time_of(
    step: int, windows: Iterable[Diagnosis | None], verdicts: Sequence[TimedDiagnosis]
) -> datetime | None:
    """Return when a step ran, interpolated between the beginning and end of its window; None without these.

    Args:
        windows: the first of them that has the step is its window. Others of the run may have it too: a job
            that returns to a checkpoint runs the same steps again.
    """
    for window in windows:
        if window is None or not window.first_step <= step <= window.last_step:
            continue
        one = next((one for one in verdicts if one.diagnosis.window == window.window), None)
        if one is None or one.started_at is None:
            continue
        if one.ended_at is None or window.last_step == window.first_step:
            return one.started_at
        took = (step - window.first_step) / (window.last_step - window.first_step + 1)
        return one.started_at + (one.ended_at - one.started_at) * took
    return None


def _stale_from(window: int, verdicts: Sequence[TimedDiagnosis]) -> datetime | None:
    """Return when the window after this one is overdue; None if packets hold no times."""
    for one in verdicts:
        if one.diagnosis.window == window and one.ended_at is not None:
            took = one.ended_at - (one.started_at or one.ended_at)
            return one.ended_at + max(OVERDUE, OVERDUE_WINDOWS * took)
    return None
