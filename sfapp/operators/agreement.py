"""Compare the frontier's verdict with KAIR's causes.

The frontier names the stage and the rank in which exposed time arises. KAIR names the operator that delayed
other ranks. They use different evidence, so each can see what the other cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfapp.model import BETWEEN, Diagnosis, Operators, Window, broad_stage, stage_category
from sfapp.model.arrays import to_numpy
from sfapp.model.diagnosis import HEALTHY_SEVERITY
from sfapp.model.operators import AUTOGRAD, DATA, RUNTIME, STAGE
from sfapp.operators.blame import HALF
from sfapp.operators.causes import Cause
from sfapp.operators.cohorts import MIN_COHORT
from sfapp.operators.operator_findings import Findings

Kind = Literal["agree", "same_durations", "differ", "frontier_only", "kair_only", "quiet"]

AGREEMENT_REASONS: Mapping[str, str] = {
    "too_few_ranks": "With fewer than three ranks to compare, no operator can be called late.",
    "all_ranks": "All ranks spend that time equally. KAIR compares ranks with each other, so it cannot see "
    "a delay that they share.",
    "wait_within_stage": "The other ranks wait for the late rank within the same stage, so the stage takes "
    "equally long on all of them: stage durations cannot show which rank was late, operators can.",
    "late_start": "The rank also began these steps late by about the same time. Its operators take as long "
    "as those of other ranks, and stage durations do not show when a stage began.",
    "earlier_stage": "The cause is in an earlier stage than the one in which its delay is exposed.",
    "other_steps": "The operator events cover some of the window's steps, the verdict covers all of them.",
    "few_steps": "The cause occurs in few of the steps, the verdict is on the sum of all steps.",
    "clocks_differ": "The ranks' clocks differ, so only operator durations were compared, not start times: a "
    "rank that is delayed without working longer is not detected.",
    "from_stages": "There are no operator events, so causes come from stage durations: every rank's step is "
    "assumed to begin at the same time, and nothing within a stage is visible.",
    "spread_out": "The rank falls behind gradually: no single operator explains half of the delay.",
    "transfer": "The delay lies after the last rank arrived in a collective (computing or transfer): it "
    "belongs to no single rank.",
}
"""Reasons why verdict and causes may differ, one sentence each."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Comparison of the verdict on a window with KAIR's first cause.

    Attributes:
        kind: ``agree``; ``same_durations``: both name the same place, but there are no operator events, so
            both use the same stage durations; ``differ``: they name different places; ``frontier_only``: no
            operator explains what the verdict names; ``kair_only``: the window is healthy by the verdict, but
            a cause was found; ``quiet``: neither finds a straggler.
        stage, rank: the verdict's suspect, None for a healthy window; the rank is also None if the verdict
            names no rank.
        cause: KAIR's first cause, None if it delayed no other rank or cost too little.
        cause_stage: the broad stage of the cause, None if unknown.
        first_rank: the rank with the most abnormal timing pattern, None without a rank to compare it with.
        weight: the cause's delay divided by the exposed time of the examined steps.
        reasons: why verdict and cause may differ, keys of ``AGREEMENT_REASONS``.
    """

    kind: Kind
    stage: str | None
    rank: int | None
    cause: Cause | None
    cause_stage: str | None
    first_rank: int | None
    weight: float
    reasons: tuple[str, ...]


def agreement(diagnosis: Diagnosis, findings: Findings, window: Window) -> Agreement:
    """Compare the verdict with the causes.

    A cause counts if its share of the step reaches the severity at which a window needs attention
    (accounting.md §12).

    Args:
        window: the ranks that were diagnosed.
    """
    aim = None if diagnosis.is_healthy else diagnosis.aim
    # If clocks differ, it is unknown whether other ranks waited for a cause: its own time decides the order.
    blame = findings.blame
    first = next((cause for cause in blame.causes if cause.holds_up or not blame.clocks_agree), None)
    weight = 0.0 if first is None else _weight(first, diagnosis, findings)
    cause = first if weight >= max(diagnosis.gates.min_effect, HEALTHY_SEVERITY) else None
    stage = None if cause is None else stage_of(cause.event, findings, window)
    kind: Kind
    if cause is None:
        kind = "quiet" if aim is None else "frontier_only"
    elif aim is None:
        kind = "kair_only"
    else:
        same_stage = stage is None or stage == aim.stage
        same_rank = aim.rank is None or aim.rank == cause.rank or cause.kind == "transfer"
        kind = "agree" if same_stage and same_rank else "differ"
        if kind == "agree" and findings.source == "stages":
            kind = "same_durations"
    similarity = findings.similarity
    return Agreement(
        kind=kind,
        stage=None if aim is None else aim.stage,
        rank=None if aim is None else aim.rank,
        cause=cause,
        cause_stage=stage,
        first_rank=similarity.ranks[int(similarity.order_R[0])] if findings.comparable_ranks > 1 else None,
        weight=weight,
        reasons=_reasons(diagnosis, findings, window, cause, stage, kind),
    )


def stage_of(event: int, findings: Findings, window: Window) -> str | None:
    """Return the broad stage that an event belongs to, None if it is unknown.

    Ranges that mark a stage, data loading and autograd nodes name their stage. Any other event is placed by
    its start among the rank's stage durations, laid end to end from the rank's first event of the step. A
    kernel is placed by its launch.
    """
    operators = findings.operators
    if findings.source == "stages":
        return broad_stage(operators.name(event))
    event = _launch_of(event, operators)
    rank = operators.lane(event).rank
    begin, end = np.searchsorted(operators.rank_E, (rank, rank + 1))
    around_E = np.zeros(len(operators), np.bool_)
    around_E[begin:end] = (
        (operators.lane_E[begin:end] == operators.lane_E[event])
        & (operators.start_ns_E[begin:end] <= operators.start_ns_E[event])
        & (operators.end_ns_E[begin:end] >= operators.end_ns_E[event])
    )
    for place in np.flatnonzero(around_E)[::-1].tolist():
        name, category = broad_stage(operators.name(place)), int(operators.category_E[place])
        if category == STAGE and name in window.broad_stages:
            return name
        family = {DATA: "data", AUTOGRAD: "backward"}.get(category)
        found = [stage for stage in window.broad_stages if stage_category(stage) == family]
        if len(found) == 1:
            return found[0]
    return _placed(event, operators, window)


def _placed(event: int, operators: Operators, window: Window) -> str | None:
    """Return the stage in which an event starts when the rank's stage durations are laid end to end."""
    rank, step = operators.lane(event).rank, int(operators.step_E[event])
    steps = window.step_N.tolist()
    if step not in steps or rank not in window.ranks.rank:
        return None
    here_E = (operators.rank_E == rank) & (operators.step_E == step)
    spent_S = to_numpy(window.duration_SNR[:, steps.index(step), window.ranks.rank.index(rank)])
    begin = int(operators.start_ns_E[here_E].min())
    if window.stages[0] == BETWEEN:  # Nothing may have been traced before the step.
        begin = _begin_of_first_stage(operators, here_E, window, spent_S, begin)
    since = int(operators.start_ns_E[event]) - begin
    place = int(np.searchsorted(spent_S.cumsum(), since, "right"))
    return broad_stage(window.stages[place]) if place < len(window.stages) else None


def _begin_of_first_stage(
    operators: Operators,
    here_E: npt.NDArray[np.bool_],
    window: Window,
    spent_S: npt.NDArray[np.int64],
    otherwise: int,
) -> int:
    """Return when the first stage of a step began, from the first range that marks one of its stages."""
    broad = [broad_stage(stage) for stage in window.stages]
    marked = np.flatnonzero(here_E & (operators.category_E == STAGE)).tolist()
    for place in sorted(marked, key=lambda place: int(operators.start_ns_E[place])):
        name = broad_stage(operators.name(place))
        if name in broad:
            return int(operators.start_ns_E[place] - spent_S[: broad.index(name)].sum())
    return otherwise


def _launch_of(event: int, operators: Operators) -> int:
    """Return the runtime call that launched a device event, or the event itself if there is none."""
    correlation = int(operators.correlation_E[event])
    if correlation < 0 or not operators.lane(event).is_device:
        return event
    calls = np.flatnonzero(
        (operators.correlation_E == correlation)
        & (operators.category_E == RUNTIME)
        & (operators.rank_E == operators.lane(event).rank)
    )
    return int(calls[0]) if len(calls) else event


def _weight(cause: Cause, diagnosis: Diagnosis, findings: Findings) -> float:
    """Return a cause's delay divided by the exposed time of as many steps as were examined."""
    exposed = diagnosis.step_time.mean_ns * max(len(findings.operators.steps), 1)
    return cause.delay_ns / exposed if exposed > 0 else 0.0


def _reasons(
    diagnosis: Diagnosis,
    findings: Findings,
    window: Window,
    cause: Cause | None,
    stage: str | None,
    kind: Kind,
) -> tuple[str, ...]:
    """Return every reason that applies, in the order of ``AGREEMENT_REASONS``; where nothing differs, only
    that there are no operator events."""
    if kind in ("agree", "same_durations", "quiet"):
        return ("from_stages",) if findings.source == "stages" else ()
    aim = diagnosis.aim
    stages = window.broad_stages
    examined = set(findings.operators.steps)
    holds = {
        "too_few_ranks": findings.comparable_ranks < MIN_COHORT,
        "all_ranks": cause is None and aim is not None and aim.rank_reason == "all_ranks",
        "wait_within_stage": cause is not None and stage is not None and _is_hidden(cause, stage, window),
        "late_start": cause is not None and _starts_late(cause, findings),
        "earlier_stage": (
            aim is not None
            and not diagnosis.is_healthy
            and stage in stages
            and aim.stage in stages
            and stages.index(stage) < stages.index(aim.stage)
        ),
        "other_steps": findings.source == "operators" and not set(window.step_N.tolist()) <= examined,
        "few_steps": cause is not None and len(cause.steps) < HALF * len(examined),
        "clocks_differ": not findings.blame.clocks_agree,
        "from_stages": findings.source == "stages",
        "spread_out": cause is None and bool(findings.blame.spread_ns),
        "transfer": cause is not None and cause.kind == "transfer",
    }
    return tuple(reason for reason in AGREEMENT_REASONS if holds[reason])


def _starts_late(cause: Cause, findings: Findings) -> bool:
    """Return whether the cause's rank began its steps later than the others by at least half of its delay."""
    operators = findings.operators
    if findings.source == "stages" or not findings.blame.clocks_agree:
        return False
    here_E = np.isin(operators.step_E, cause.steps)
    steps, step_E = np.unique(operators.step_E[here_E], return_inverse=True)
    ranks, rank_E = np.unique(operators.rank_E[here_E], return_inverse=True)
    begin_NR = np.full((len(steps), len(ranks)), np.inf)
    np.minimum.at(begin_NR, (step_E, rank_E), operators.start_ns_E[here_E] - operators.start_ns_E.min())
    begin_NR[np.isinf(begin_NR)] = np.nan  # a rank without events in a step
    late_N = begin_NR[:, np.searchsorted(ranks, cause.rank)] - np.nanmedian(begin_NR, axis=1)
    return bool(np.nansum(late_N) >= HALF * cause.delay_ns)


def _is_hidden(cause: Cause, stage: str, window: Window) -> bool:
    """Return whether the stage is longer on the cause's rank by less than half of the cause's delay."""
    ranks = window.ranks.rank
    steps = window.step_N.tolist()
    seen = [steps.index(step) for step in cause.steps if step in steps]
    if cause.rank not in ranks or not seen or window.reduced is not None:
        return False
    rows = [place for place, name in enumerate(window.stages) if broad_stage(name) == stage]
    spent_NR: npt.NDArray[np.int64] = to_numpy(window.duration_SNR[rows].sum(axis=0))[seen]
    own_N = spent_NR[:, ranks.index(cause.rank)]
    longer = float((own_N - np.median(spent_NR, axis=1)).sum())
    return longer < HALF * cause.delay_ns
