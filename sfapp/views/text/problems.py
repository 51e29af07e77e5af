"""Describe problems: effect, place, onset and cost (accounting.md §18)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sfapp.model import Diagnosis
from sfapp.model.problems import Cost, Problem, ProblemMark, ProblemStatus
from sfapp.model.search_words import is_found, search_words
from sfapp.model.standstill import RollCall
from sfapp.views import format
from sfapp.views.text.advice import look_at_all_ranks, look_at_one_rank
from sfapp.views.text.host_evidence import shared_words
from sfapp.views.text.key_numbers import Number
from sfapp.views.text.narrative import action, explanation
from sfapp.views.text.onsets import estimate_words
from sfapp.views.text.standstill import (
    standstill_action,
    standstill_details,
    standstill_sentence,
    standstill_title,
)

NOT_ENDED = "not ended"
"""Status of a problem of a run that is no longer recorded."""

_STALE = "not ended when recording stopped"

_MOST_RANKS = 4

_MOST_SEARCHED = 64
"""Ranks of a problem that a search finds by their numbers."""

_SENTENCES = 3
"""Maximum number of sentences of a window's explanation that a problem shows; the window's page shows all."""


@dataclass(frozen=True, slots=True)
class ProblemText:
    """A problem in words; plain text throughout.

    Attributes:
        title: ``Rank 3 is late in data``. steps: ``every step``; empty if data are missing.
        where: ``windows 3–4 of gpt-small``.
        since: ``began at step 120 (118–121), 12:04:18 UTC``.
        until: ``ended at step 199, after 2 windows`` or ``the run's latest window has it``; if that was
            recorded long ago, ``not ended when recording stopped``.
        cost: ``77.3 ms of 167.1 ms per step, 46.3 % (45.9–46.3 %)``, with its 95 % interval.
        total: ``3.1 rank-minutes so far``, or ``lost`` once it has ended.
        shared: ``late ranks share host node-1 (…)``; empty if nothing, or if that was not examined.
        status: ``ongoing``, with reason or author if users decided it.
    """

    title: str
    steps: str
    where: str
    since: str
    until: str
    cost: str
    total: str
    shared: str
    status: str

    @property
    def headline(self) -> str:
        """The effect with its ranks, and in which steps."""
        return f"{self.title}, {self.steps}" if self.steps else self.title

    @property
    def sentence(self) -> str:
        """All of it on one line."""
        parts = (self.headline, self.where, self.since, self.until, self.cost, self.total, self.shared)
        return " · ".join(part for part in parts if part)


def problem_text(
    problem: Problem,
    status: ProblemStatus | None = None,
    mark: ProblemMark | None = None,
    now: datetime | None = None,
) -> ProblemText:
    """Return a problem in words.

    Args:
        status: from ``problem_status``; derived from its windows alone if None.
        now: the present time, from which a problem of a run that is no longer recorded is not ongoing.
    """
    status = status or ("ongoing" if problem.ended is None else "ended")
    is_stale = problem.is_stale(now or datetime.now(UTC))
    return ProblemText(
        title=problem_title(problem),
        steps="" if problem.kind in ("missing", "standstill") else _steps(problem),
        where=f"{_windows(problem.windows)} of {format.clip(problem.run_id)}".removeprefix("of "),
        since=f"began {estimate_words(problem.began)}{_at_time(problem.began_at)}",
        until=_until(problem, is_stale),
        cost=_cost_words(problem),
        total=_total(problem, is_stale),
        shared=f"late ranks share {shared_words(problem.shared)}" if problem.shared else "",
        status=NOT_ENDED if status == "ongoing" and is_stale else _status(status, mark),
    )


def problem_title(problem: Problem) -> str:
    """Return the effect and its ranks in one clause."""
    if problem.roll_call is not None:
        return standstill_title(problem.roll_call, problem.ended is not None)
    if problem.kind == "missing":
        return missing_title(problem.ranks)
    where = format.in_stage(problem.stage or "")
    if problem.kind == "growth":
        return f"More time {where} than in healthy windows"
    if problem.kind == "turns":
        return f"One rank after the other is late {where}"
    if not problem.ranks:
        return f"Several ranks are late {where}"
    host = f" ({format.clip(problem.hostname)})" if problem.hostname and problem.kind == "rank" else ""
    return f"{_ranks(problem.ranks)}{host} {'is' if len(problem.ranks) == 1 else 'are'} late {where}"


def missing_title(ranks: Sequence[int]) -> str:
    """Return that ranks are missing or, if none is, that a gather failed."""
    if not ranks:
        return "A gather failed"
    return f"{_ranks(ranks)} {'is' if len(ranks) == 1 else 'are'} missing"


def matches(
    problem: Problem, text: str, status: ProblemStatus | None = None, mark: ProblemMark | None = None
) -> bool:
    """Return whether all words of a search occur in what is shown of a problem, in any order."""
    found = problem_text(problem, status, mark)
    ranks = " ".join(f"rank {rank}" for rank in problem.ranks[:_MOST_SEARCHED])
    names = "\n".join((problem.run_id, problem.hostname or "", problem.stage or ""))
    return is_found(search_words(text), f"{found.sentence} {found.status} {ranks}", names)


def count_problems(
    problems: Iterable[tuple[Problem, ProblemStatus]], now: datetime | None = None
) -> tuple[int, int, int]:
    """Return the numbers of problems that are ongoing, have ended, and had not when recording stopped."""
    moment, counts = now or datetime.now(UTC), [0, 0, 0]
    for problem, status in problems:
        is_open = status in ("ongoing", "returned")
        counts[1 if not is_open else 2 if problem.is_stale(moment) else 0] += 1
    ongoing, ended, stale = counts
    return ongoing, ended, stale


def problems_headline(ongoing: int, ended: int, stale: int = 0) -> str:
    """Return the number of problems that are neither muted nor fixed, in words; see ``count_problems``."""
    every = ongoing + ended + stale
    if not every:
        return "No problem found"
    found = format.counted(every, "problem")
    if every == 1:
        words = "ongoing" if ongoing else _STALE if stale else "no longer ongoing"
        return f"{found}, {words}"
    parts = [f"{'all' if ongoing == every else format.count(ongoing)} ongoing"] if ongoing else []
    if stale:
        parts.append(f"{'all' if stale == every else format.count(stale)} {_STALE}")
    return f"{found}, {', '.join(parts) or 'none of them ongoing'}"


def rank_time(hours: float) -> str:
    """Return the total time of all ranks: ``25 rank-seconds``, ``3.1 rank-minutes``, ``4.0 rank-hours``."""
    if hours * 3600 <= -0.5:
        return f"−{rank_time(-hours)}"
    for size, name in ((1.0, "rank-hours"), (1 / 60, "rank-minutes")):
        value = hours / size
        if value >= 0.95:
            return f"{value:,.0f} {name}" if value >= 9.95 else f"{value:.1f} {name}"
    seconds = f"{max(0.0, hours * 3600):.0f}"
    return f"{seconds} rank-second{'' if seconds == '1' else 's'}"


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    return f"Ranks {format.ranges(ranks, _MOST_RANKS)}"


def _windows(windows: Sequence[int]) -> str:
    if not windows:
        return ""
    return f"window{'s' if len(windows) > 1 else ''} {format.ranges(windows)}"


def _steps(problem: Problem) -> str:
    if len(problem.steps_late) > 8 and not isinstance(problem.steps_late, str):
        return f"{format.count(len(problem.steps_late))} steps of window {problem.windows[-1]}"
    return format.steps(problem.steps_late)


def _total(problem: Problem, is_stale: bool) -> str:
    """Return what it cost in all, or so far while it lasts."""
    if problem.cost is None:
        return ""
    lasts = problem.ended is None and not is_stale
    return f"{rank_time(problem.cost.rank_hours)} {'so far' if lasts else 'lost'}"


def _until(problem: Problem, is_stale: bool) -> str:
    if problem.kind == "standstill":
        lasts = _STALE if is_stale else "the job stands still"
        ended = lasts if problem.ended is None else "ended"
        return f"{ended}{_at_time(problem.ended_at, problem.began_at)}"
    if problem.ended is None:
        return _STALE if is_stale else "the run's latest window has it"
    after = format.counted(len(problem.windows), "window")
    times = f", in {format.counted(len(problem.episodes), 'stretch', 'stretches')}"
    several = times if len(problem.episodes) > 1 else ""
    ended = estimate_words(problem.ended)
    return f"ended {ended}{_at_time(problem.ended_at, problem.began_at)}, after {after}{several}"


def _at_time(moment: datetime | None, before: datetime | None = None) -> str:
    """Return a time, without its date if ``before`` has the same date."""
    if moment is None:
        return ""
    if before is not None and moment.date() == before.date():
        return f", {moment:%H:%M:%S}"
    return f", {moment:%Y-%m-%d %H:%M:%S} UTC"


def _cost_words(problem: Problem) -> str:
    if problem.cost is None:
        return "no verdict while data are missing"
    if problem.kind == "standstill":
        return f"no step for {format.lasting(problem.cost.lost_ns / 1e9)}"
    return _cost(problem.cost)


def _cost(cost: Cost) -> str:
    lost, took = (format.duration(ns / max(1, cost.steps)) for ns in (cost.lost_ns, cost.steps_ns))
    share = format.percent_interval(cost.share, *cost.interval)
    return f"{lost} of {took} per step, {share}"


def _status(status: ProblemStatus, mark: ProblemMark | None) -> str:
    if status == "muted" and mark is not None:
        until = f" until {mark.muted_until:%Y-%m-%d %H:%M} UTC" if mark.muted_until else ""
        return f"muted{until}" + (f": {mark.reason}" if mark.reason else "")
    if status in ("fixed", "returned") and mark is not None and mark.fixed is not None:
        return f"{'returned after being ' if status == 'returned' else ''}marked as fixed by {mark.fixed.by}"
    return status


def problem_explanation(problem: Problem, diagnosis: Diagnosis | None) -> tuple[str, ...]:
    """Return sentences on what happened.

    Args:
        diagnosis: of its latest window; None if that cannot be read.
    """
    if problem.roll_call is not None:
        return standstill_sentence(problem.roll_call), *standstill_details(problem.roll_call)
    if problem.kind == "missing":
        return (
            "Nothing is known about ranks while they are missing, so such a window is not called healthy.",
        )
    return explanation(diagnosis)[:_SENTENCES] if diagnosis and is_about(diagnosis, problem) else ()


def problem_action(problem: Problem, diagnosis: Diagnosis | None) -> str:
    """Return what to do next, for every problem; see ``problem_explanation``."""
    if problem.roll_call is not None:
        return standstill_action(problem.roll_call)
    if problem.kind == "missing":
        return (
            "Look at the logs of these processes; if the job stands still, let sfapp hang read the "
            "dumps of PyTorch's Flight Recorder."
        )
    if diagnosis and is_about(diagnosis, problem) and (found := action(diagnosis)):
        return found
    return _action_by_kind(problem)


def _action_by_kind(problem: Problem) -> str:
    """Return what to do about a problem of which the verdict on its latest window says nothing."""
    stage = problem.stage or ""
    if problem.kind == "growth":
        return f"Capture any rank for a few steps, and {look_at_all_ranks(stage)}."
    if problem.kind == "turns" or not problem.ranks:
        return "Capture several ranks over the same steps, and compare the slowest one with the others."
    which = format.ranges(problem.ranks, _MOST_RANKS)
    if len(problem.ranks) > 1:
        return f"Capture ranks {which} and a typical one over the same steps, and compare them."
    return f"Capture rank {which} for a few steps, and {look_at_one_rank(stage)}."


def is_about(diagnosis: Diagnosis, problem: Problem) -> bool:
    """Return whether the verdict on a window is about a problem: a larger one may hide it."""
    return diagnosis.aim is not None and diagnosis.aim.stage == problem.stage


def problem_facts(
    problem: Problem, diagnosis: Diagnosis | None, now: datetime | None = None
) -> tuple[Number, ...]:
    """Return the key numbers of a problem: cost, certainty and extent; ``now`` as in ``problem_text``."""
    cost, facts = problem.cost, []
    lasts = problem.ended is None and not problem.is_stale(now or datetime.now(UTC))
    total = "Cost so far" if lasts else "Total cost"
    if problem.roll_call is not None and cost is not None:
        return (
            Number("Without a step", format.lasting(cost.lost_ns / 1e9), _limit(problem.roll_call)),
            Number(total, rank_time(cost.rank_hours), f"on {format.counted(problem.world, 'rank')}"),
        )
    if cost is not None:
        per_step = format.duration(cost.lost_ns / max(1, cost.steps))
        share = format.percent_interval(cost.share, *cost.interval)
        facts = [
            Number("Cost per step", per_step, f"{share} of the step"),
            Number(total, rank_time(cost.rank_hours), f"on {format.counted(problem.world, 'rank')}"),
        ]
        finding = None if diagnosis is None else diagnosis.main_finding
        if finding is not None and finding.stage == problem.stage:
            chance_words = "not known" if finding.chance is None else format.chance(finding.chance)
            facts.append(Number("False alarm", chance_words, f"its chance in window {problem.windows[-1]}"))
    stretches = f"in {len(problem.episodes)} stretches" if len(problem.episodes) > 1 else "in a row"
    facts.append(Number("Windows", format.count(len(problem.windows)), stretches))
    return tuple(facts)


def _limit(roll: RollCall) -> str:
    return f"the limit is {format.lasting(roll.limit_s)}"
