"""Decide when to capture a trace, and on which ranks (KAIR §III-A, Feature 2: adaptive sampling).

The functions are pure: earlier requests and the time are arguments. Requests never exceed the cooldown and
the budget; the recorder enforces its own limits as well (``CaptureLimits``).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import median

import numpy as np
import numpy.typing as npt

from sfapp.errors import CaptureError, WindowError
from sfapp.model import LABELS, Diagnosis, RankTable, Window, broad_stage
from sfapp.model.arrays import to_numpy
from sfapp.model.capture import (
    CAPTURE_STEPS,
    MAX_CAPTURE_RANKS,
    MAX_CAPTURE_STEPS,
    MAX_REASON,
    PROFILED,
    CaptureRequest,
)
from sfapp.model.diagnosis import HEALTHY_SEVERITY
from sfapp.operators.cohorts import MIN_COHORT
from sfapp.operators.rank_similarity import rank_similarity
from sfapp.operators.stage_events import operators_of

REMEMBERED = 20
"""Number of earlier windows that define the usual spread."""

_HOUR = 3600.0

_NUMBERS = ("severity", "imbalance", "change", "spread")
_TEXTS = ("label", "stage", "rank")
_CONDITION = re.compile(r"\s*(?P<name>[a-z]+)\s*(?P<sign>>=|=)\s*(?P<value>[^\s,]+)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition on a window: a number is at least ``least``, or a text equals ``text``."""

    name: str
    least: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """User-defined trigger: fires when all its conditions hold. ``text`` is its source."""

    text: str
    conditions: tuple[Condition, ...]

    @classmethod
    def of(cls, text: str) -> Rule:
        """Parse ``severity>=5%``, ``spread>=0.1``, ``stage=data.next_wait``, ``label=direct_exposure``,
        ``rank=3``, or several of them separated by commas.

        Raises:
            CaptureError: the text is not a valid condition.
        """
        return cls(text, tuple(_condition(part) for part in text.split(",")))


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    name, sign, value = (found["name"], found["sign"], found["value"]) if found else ("", "", "")
    if name in _NUMBERS and sign == ">=":
        try:
            number = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
        except ValueError:
            number = -1.0
        if 0 <= number <= 1e6:
            return Condition(name, least=number)
    if name in _TEXTS and sign == "=" and (name != "label" or value in LABELS):
        return Condition(name, text=value)
    raise CaptureError(
        f"{text.strip()!r} is not a condition: write {', '.join(f'{each}>=5%' for each in _NUMBERS)}, "
        "stage=NAME, rank=N or label=NAME (a label of the verdict); separate several by commas"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Settings of adaptive sampling: when to request captures, and their size.

    Attributes:
        spread: spread of the ranks' own work, as a share of the step, that triggers a capture.
        times_usual: the spread must also exceed this multiple of the run's usual spread.
        rules: further triggers; one is enough.
        steps: steps per capture.
        suspects, peers: largest number of ranks per capture.
        cooldown_seconds: shortest time between two requests.
        per_hour: largest number of requests within 3,600 seconds.
        total_steps: largest number of steps of all requests together.
        seed: seed for choosing peers.

    Raises:
        CaptureError: a value is out of range.
    """

    spread: float = HEALTHY_SEVERITY
    times_usual: float = 2.0
    rules: tuple[Rule, ...] = ()
    steps: int = CAPTURE_STEPS
    suspects: int = 2
    peers: int = 2
    cooldown_seconds: float = 600.0
    per_hour: int = 4
    total_steps: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MAX_CAPTURE_STEPS:
            raise CaptureError(f"a capture has 1 to {MAX_CAPTURE_STEPS} steps, not {self.steps}")
        if min(self.suspects, self.peers) < 0 or not 1 <= self.suspects + self.peers <= MAX_CAPTURE_RANKS:
            raise CaptureError(f"a capture has 1 to {MAX_CAPTURE_RANKS} ranks, suspects and peers together")
        limits = (self.cooldown_seconds, self.per_hour, self.total_steps, self.spread, self.times_usual)
        if not all(limit >= 0 for limit in limits):  # Nor NaN, which would lift a limit.
            raise CaptureError("cooldown, budgets and thresholds must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowObservation:
    """Observation of one window, the input of the sampling policy.

    Attributes:
        ranks: the window's ranks.
        spread: spread of the ranks' own work as a share of the step (``spread_of``); None if unknown.
        abnormal: ranks, most abnormal timing pattern first; empty if unknown.
    """

    diagnosis: Diagnosis
    ranks: RankTable
    spread: float | None = None
    abnormal: tuple[int, ...] = ()


def observed(window: Window, diagnosis: Diagnosis) -> WindowObservation:
    """Observe a window and its verdict, without the steps that a profiler slowed down."""
    try:
        found = rank_similarity(operators_of(window, diagnosis.wait_stages))
        abnormal = tuple(found.ranks[place] for place in found.order_R.tolist())
    except WindowError:  # the rows of a few ranks only, or too many ranks
        abnormal = ()
    return WindowObservation(
        diagnosis=diagnosis,
        ranks=window.ranks,
        spread=spread_of(window, diagnosis.wait_stages),
        abnormal=abnormal,
    )


def spread_of(window: Window, waits: Iterable[str] = ()) -> float | None:
    """Return the standard deviation over ranks of own work per step, as a share of the mean step.

    Own work excludes the stages in which ranks wait for each other. If these are unknown, the spread is
    computed per stage and the largest counts. None for a window of one rank, of reduced rows or of profiled
    steps only.
    """
    if window.reduced is not None or len(window.ranks) < 2:
        return None
    kept_N: npt.NDArray[np.bool_] = np.ones(len(window.step_N), np.bool_)
    if PROFILED in window.side:
        kept_N = np.logical_not(to_numpy(window.side[PROFILED].sampled_NR).any(axis=1))
    if not kept_N.any():
        return None
    spent_SR: npt.NDArray[np.float64] = to_numpy(window.duration_SNR)[:, kept_N].mean(axis=1)
    step = float(to_numpy(window.wall_NR)[kept_N].mean())
    if step <= 0:
        return None
    left_out = set(waits)
    if left_out:
        own = [place for place, name in enumerate(window.stages) if broad_stage(name) not in left_out]
        return float(spent_SR[own].sum(axis=0).std()) / step
    return float(spent_SR.std(axis=1).max()) / step


@dataclass(frozen=True, slots=True)
class PastRequest:
    """A capture that was requested earlier."""

    at: datetime
    steps: int


@dataclass(frozen=True, slots=True)
class SamplingState:
    """State of the policy for one run: earlier requests and the spreads of the newest windows."""

    asked: tuple[PastRequest, ...] = ()
    spreads: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """Decision of the policy on one window.

    Attributes:
        request: the capture to request, None for no capture.
        reason: why a capture is or is not requested, in a sentence.
        state: the state to pass with the next window.
    """

    request: CaptureRequest | None
    reason: str
    state: SamplingState = field(default_factory=SamplingState)


def propose(
    found: WindowObservation, state: SamplingState, settings: Sampling, now: datetime, capture: str
) -> Proposal:
    """Decide whether to request a capture for this window.

    Args:
        now: time with time zone; a clock that runs backwards counts as no elapsed time.
        capture: id for the request, if one is made.
    """
    after = state
    if found.spread is not None:
        after = replace(state, spreads=(*state.spreads, found.spread)[-REMEMBERED:])
    trigger = _trigger(found, state, settings)
    if not trigger:
        return Proposal(None, "no trigger fired", after)
    refusal = _refusal(state.asked, settings, now)
    if refusal:
        return Proposal(None, f"{trigger}, but {refusal}", after)
    ranks = chosen_ranks(found, settings)
    request = CaptureRequest(
        id=capture,
        run_id=found.diagnosis.run_id,
        ranks=ranks,
        steps=settings.steps,
        reason=f"window {found.diagnosis.window}: {trigger}"[:MAX_REASON],
        asked_by="policy",
        asked_at=now,
    )
    return Proposal(
        request, request.reason, replace(after, asked=(*state.asked, PastRequest(now, settings.steps)))
    )


def _trigger(found: WindowObservation, state: SamplingState, settings: Sampling) -> str:
    """Return the trigger that fired, in words; empty if none did."""
    spread = found.spread
    if spread is not None and spread >= settings.spread:
        usual = median(state.spreads) if state.spreads else None
        if usual is None:
            return f"ranks' own work differs by {spread:.1%} of the step"
        if spread >= settings.times_usual * usual:
            return f"ranks' own work differs by {spread:.1%} of the step, usually {usual:.1%}"
    held = next(
        (rule for rule in settings.rules if all(_holds(each, found) for each in rule.conditions)), None
    )
    return "" if held is None else f"{held.text} holds"


def _holds(condition: Condition, found: WindowObservation) -> bool:
    diagnosis = found.diagnosis
    aim = None if diagnosis.is_healthy else diagnosis.aim
    if condition.name == "label":
        return condition.text in diagnosis.label_names
    if condition.name == "stage":
        return aim is not None and aim.stage == condition.text
    if condition.name == "rank":
        return aim is not None and str(aim.rank) == condition.text
    numbers = {
        "severity": diagnosis.severity,
        "imbalance": diagnosis.exposed_imbalance,
        "change": diagnosis.change,
        "spread": found.spread,
    }
    number = numbers[condition.name]
    return number is not None and number >= condition.least


def _refusal(asked: Sequence[PastRequest], settings: Sampling, now: datetime) -> str:
    """Return why no capture may be requested now; empty if one may."""
    ages = [max(0.0, (now - each.at).total_seconds()) for each in asked]
    if any(age < settings.cooldown_seconds for age in ages):
        return f"a capture was requested within the last {settings.cooldown_seconds:g} s"
    if sum(age < _HOUR for age in ages) >= settings.per_hour:
        return f"the limit of {settings.per_hour} captures per hour is reached"
    if sum(each.steps for each in asked) + settings.steps > settings.total_steps:
        return f"the limit of {settings.total_steps} steps in total is reached"
    return ""


def chosen_ranks(found: WindowObservation, settings: Sampling) -> tuple[int, ...]:
    """Return the suspects and some peers to compare them with, ascending.

    Suspects are the rank of the likely cause, the culprit, the slowest rank, then the most abnormal timing
    patterns. Peers are drawn at random, reproducibly for a seed and window, of the first suspect's role and
    from other nodes if possible. Together they are at least three ranks, if the job has them: fewer cannot be
    compared.
    """
    ranks = found.ranks
    suspects = _suspects(found)[: settings.suspects]
    places = [place for rank in suspects if (place := ranks.place(rank)) is not None]
    nodes = {ranks.node_rank[place] for place in places}
    roles = {ranks.role[place] for place in places[:1]} or ranks.distinct_roles
    generator = random.Random(f"{settings.seed}/{found.diagnosis.run_id}/{found.diagnosis.window}")
    wanted = max(settings.peers, MIN_COHORT - len(suspects))
    peers: list[int] = []
    for of_role, elsewhere in ((True, True), (True, False), (False, True), (False, False)):
        fitting = [
            rank
            for rank, node, role in zip(ranks.rank, ranks.node_rank, ranks.role, strict=True)
            if (role in roles) == of_role and (node not in nodes) == elsewhere and rank not in suspects
        ]
        peers += generator.sample(fitting, min(wanted - len(peers), len(fitting)))
        if len(peers) == wanted:  # A pass over 100,000 ranks takes 10 ms.
            break
    return tuple(sorted([*suspects, *peers]))[:MAX_CAPTURE_RANKS]


def _suspects(found: WindowObservation) -> list[int]:
    diagnosis = found.diagnosis
    named = [
        None if diagnosis.aim is None else diagnosis.aim.rank,
        None if diagnosis.culprit is None else diagnosis.culprit.rank,
        None if diagnosis.leader is None else diagnosis.leader.rank,
        *found.abnormal[:1],
    ]
    return [rank for rank in dict.fromkeys(named) if rank is not None and found.ranks.place(rank) is not None]
