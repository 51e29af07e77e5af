"""Describe KAIR's findings: cause, agreement with the verdict, limitations and method (kair.md)."""

from __future__ import annotations

from collections.abc import Mapping

from sfapp.model import RECORDED_STAGES, Diagnosis, broad_stage
from sfapp.model.pipeline import Pipeline
from sfapp.model.rank_table import RankTable
from sfapp.operators import AGREEMENT_REASONS, Agreement, Cause, Findings
from sfapp.operators.blame import HALF
from sfapp.operators.cohorts import MIN_COHORT
from sfapp.views import format
from sfapp.views.text.pipeline import is_compared, pipeline_headline

CAUSE_KINDS: Mapping[str, str] = {
    "operator": "This operator took abnormally long.",
    "edge": "This operator started late, although its inputs were ready on time.",
    "transfer": "This collective took long after all ranks had arrived.",
    "extra": "This event has no counterpart on most other ranks.",
    "before": "The rank was already late when its events began: the cause precedes them.",
}
"""Meaning of each kind of cause."""

NATURES: Mapping[str, str] = {
    "compute": "Work on the host or on the device.",
    "communication": "A collective or a copy.",
    "input": "Loading of data.",
    "idle": "No recorded event ran.",
    "unknown": "The events do not show the kind of work.",
}
"""Meaning of each kind of work."""

COLLECTIVE_VERDICTS: Mapping[str, str] = {
    "skew": "Most of the time, the first rank to arrive waited for the last: look at the late rank.",
    "transfer": "Most of the time passed after the last rank had arrived, in computing or transfer: compare "
    "what ranks compute there, then the network.",
    "mixed": "Neither the wait for the last rank nor the time after it arrived is twice the other.",
    "inconclusive": "The events do not separate the wait for the last rank from the time after it arrived.",
}
"""How a collective spent its time."""

COLLECTIVE_WORDS: Mapping[str, str] = {
    "skew": "waiting for the last rank",
    "transfer": "computing or transfer after the last rank arrived",
    "mixed": "partly waiting, partly after the last rank arrived",
    "inconclusive": "not separable",
}
"""The same in a few words, by what was measured: events do not show what ranks do after the last arrival."""

VIAS: Mapping[str, tuple[str, str]] = {
    "program": ("runs next", "the previous operator on the same thread or stream"),
    "enclosing": ("inside it", "the beginning of the operator that encloses it"),
    "enclosed": ("ends with it", "the end of the operators inside it"),
    "launch": ("launches it", "the call that put it on the device"),
    "autograd": ("its backward", "the forward operator it belongs to"),
    "arrival": ("last to arrive", "the last rank to arrive in the collective"),
    "device": ("host waits", "the device, in a call that waits for it"),
    "stream": ("next stream", "the event that ended on another stream just before"),
}
"""Why an event on a path waited for the previous one: as an edge's label, and as `waits for …`."""

TERMS: Mapping[str, tuple[str, str]] = {
    "distance": (
        "K-S",
        "The two-sample Kolmogorov–Smirnov distance of two ranks: the largest gap between their curves of "
        "completions within a step. 0 where their timing patterns are equal, 1 where one has finished before "
        "the other begins.",
    ),
    "score": ("", "A rank's mean distance from all others. A rank that differs is not necessarily slow."),
    "cohort": (
        "",
        "The same operator on the other ranks: of the same step, category and name, the same occurrence in "
        "the step. At least three ranks must have it.",
    ),
    "robust_z": (
        "z",
        "How far an event is from its cohort's median, in units of 1.4826 times the median absolute "
        "deviation; above 3 in size it is abnormal. Unlike a standard deviation, it is not widened by a "
        "single outlier. From 11 ranks on, outliers are scored by mean and standard deviation.",
    ),
    "blame": (
        "",
        "Following a late event back over the events that it waited for, to the one where the time was lost. "
        "A cause must explain at least half of its victim's lateness.",
    ),
    "path": ("", "The events from a cause to its latest victim; each waited for the previous one."),
    "symptom": ("", "An event that started late or took abnormally long."),
}
"""Terms of the straggler views: the symbol, if any, and the meaning."""

_NAME_LENGTH = 60
"""Maximum number of characters of an operator's name in a sentence."""


def stragglers_headline(
    findings: Findings,
    agreement: Agreement,
    ranks: RankTable | None = None,
    pipeline: Pipeline | None = None,
) -> str:
    """Return ``Rank 5's next_batch on node-1 (input) delayed 7 ranks: 120 ms over 8 steps``, or why no
    cause is named.

    Args:
        ranks: of the window, for the host of the rank.
        pipeline: of the window; compared where too few ranks play the same role.
    """
    cause = agreement.cause
    if cause is not None:
        return _capital(f"{cause_words(cause, ranks)} {_victims(findings, cause)}: {_cost(cause)}")
    if findings.comparable_ranks < MIN_COHORT:
        count = len(findings.similarity.ranks)
        few = f"{format.counted(count, 'rank')} with events"
        if findings.comparable_ranks < count:
            few = f"at most {findings.comparable_ranks} of {count} ranks play the same role"
        instead = ""
        if pipeline is not None and is_compared(pipeline):
            instead = f". {' '.join(pipeline_headline(pipeline))}"
        return f"No cause can be named: {few}; a comparison needs at least three{instead}"
    found = findings.blame
    first = next(iter(found.causes), None)
    if first is not None and first.holds_up:
        return f"No long delay: at most {_cost(first)}, in {cause_words(first, ranks)}"
    rank, late = max(found.spread_ns.items(), key=lambda item: item[1], default=(0, 0.0))
    if late > (0.0 if first is None else first.worst_ns):
        behind = format.duration(late)
        return f"No single operator: rank {rank} falls behind gradually, by up to {behind}"
    if first is not None:
        return f"No rank waited for the longest event: {_cost(first)}, in {cause_words(first, ranks)}"
    if found.symptoms:
        return f"{format.counted(found.symptoms, 'event')} late or slow; none can be traced to a cause"
    return "No operator stands out: no event started late or took abnormally long"


def cause_words(cause: Cause, ranks: RankTable | None = None) -> str:
    """Return ``rank 5's next_batch (input)``: a cause as the subject of a sentence."""
    name = operator_name(cause.name, _NAME_LENGTH)
    if cause.kind == "transfer":
        return f"the time after the last rank arrived in {name} (computing or transfer)"
    rank = f"rank {cause.rank}"
    subject = {
        "operator": f"{rank}'s {name}",
        "edge": f"{rank}'s gap before {name}",
        "extra": f"{rank}'s own {name}",
        "before": f"{rank}'s work before {name}",
    }[cause.kind]
    return f"{subject}{_on_host(cause.rank, ranks)} ({cause.nature})"


def operator_name(name: str, limit: int = 40) -> str:
    """Return an operator's name, clipped; the range of a default stage gets the stage's short name."""
    return format.short_stage(name) if broad_stage(name) in RECORDED_STAGES else format.clip(name, limit)


def agreement_sentences(agreement: Agreement, diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return whether verdict and operators name the same place, and possible reasons if not."""
    aim = _aim_words(agreement, diagnosis)
    cause = agreement.cause
    if "from_stages" in agreement.reasons:
        return (_by_stages(agreement, aim), *(AGREEMENT_REASONS[reason] for reason in agreement.reasons))
    found = "" if cause is None else _place_words(agreement, cause)
    if cause is None and agreement.kind == "quiet":
        first = "Neither the verdict nor the operators find a delay."
    elif cause is None:
        first = f"The verdict points to {aim}; no operator explains it."
    elif agreement.kind == "agree":
        first = f"Verdict and operators agree: the verdict points to {aim}, and the first cause is {found}."
    elif agreement.kind == "differ":
        first = f"Verdict and operators differ: the verdict points to {aim}, the first cause is {found}."
    else:
        first = f"The verdict is healthy, but the operators name a cause: {found}."
    reasons = tuple(AGREEMENT_REASONS[reason] for reason in agreement.reasons)
    return (first, *_similarity_words(agreement), *reasons)


def _by_stages(agreement: Agreement, aim: str) -> str:
    """Return the findings from stage durations alone, on which the verdict is also based."""
    if agreement.kind == "quiet":
        return "Neither the verdict nor its stage durations rank by rank show a delay."
    if agreement.cause is None:
        return f"The verdict points to {aim}; there are no operator events to explain it."
    found = _place_words(agreement, agreement.cause)
    if agreement.kind == "same_durations":
        return (
            f"No operator events confirm the verdict: it points to {aim}, and so do the same stage durations "
            f"rank by rank ({found})."
        )
    if agreement.kind == "kair_only":
        return f"The verdict is healthy, but its stage durations rank by rank point to {found}."
    return f"The verdict points to {aim}, its stage durations rank by rank to {found}."


def findings_notes(findings: Findings) -> tuple[str, ...]:
    """Return the method and the limitations of these findings."""
    found, similarity = findings.blame, findings.similarity
    notes = [f"Based on stages, not on operators: {findings.note}."] if findings.note else []
    notes += [f"{_capital(note)}." for note in found.notes]
    if found.unexplained:
        late = format.counted(found.unexplained, "late event")
        notes.append(f"{late} cannot be traced: the events that it waited for are missing.")
    if found.spread_ns:
        ranks = f"rank{'s' if len(found.spread_ns) > 1 else ''} {format.ranges(found.spread_ns)}"
        notes.append(
            f"{_capital(ranks)}: up to {format.duration(max(found.spread_ns.values()))} late; no single "
            f"operator "
            "explains half of it."
        )
    if findings.outliers.unmatched and not any("no counterpart" in note for note in notes):
        unmatched = format.counted(findings.outliers.unmatched, "event")
        notes.append(f"{unmatched} not scored: fewer than three ranks have them.")
    notes.append(f"Outliers are scored by {findings.outliers.why}.")
    if found.why != findings.outliers.why:
        notes.append(f"Lateness is scored by {found.why}.")
    if similarity.ranks:
        length = format.duration(similarity.window_ns)
        notes.append(f"Rank similarity counts completions in windows of {length}: {similarity.why}.")
    return tuple(notes)


def _victims(findings: Findings, cause: Cause) -> str:
    """Return how many ranks waited for a cause, in words.

    Counted in the largest collective of its worst step, or of its victim's, in which the wait for the last
    rank explains at least half of the cost.
    """
    if cause.kind == "transfer":
        return "delayed its group"
    step_E = findings.operators.step_E
    steps = {int(step_E[event]) for event in (cause.event, *(step.event for step in cause.path[-1:]))}
    waited = [
        collective.ranks - 1
        for collective in findings.blame.collectives
        if collective.step in steps
        and collective.verdict in ("skew", "mixed")
        and collective.skew_ns >= HALF * cause.worst_ns
    ]
    return f"delayed {format.counted(max(waited), 'rank')}" if waited else "delayed later operators"


def _cost(cause: Cause) -> str:
    steps = [step for step in cause.steps if step >= 0]
    when = format.steps(steps) if len(steps) == 1 else f"{format.count(len(steps))} steps"
    if not steps:
        return format.duration(cause.delay_ns)
    return f"{format.duration(cause.delay_ns)} {'in' if len(steps) == 1 else 'over'} {when}"


def _on_host(rank: int, ranks: RankTable | None) -> str:
    if ranks is None or rank not in ranks.rank:
        return ""
    host = format.clip(ranks.hostname[ranks.rank.index(rank)])
    return f" on {host}" if host else ""


def _aim_words(agreement: Agreement, diagnosis: Diagnosis) -> str:
    stage = format.short_stage(agreement.stage) if agreement.stage else "nothing"
    if agreement.rank is not None:
        return f"{stage} on rank {agreement.rank}"
    reason = diagnosis.aim.rank_reason if diagnosis.aim else None
    return f"{stage}{' on all ranks equally' if reason == 'all_ranks' else ', on no single rank'}"


def _place_words(agreement: Agreement, cause: Cause) -> str:
    weight = format.percent(agreement.weight)
    where = f" {format.in_stage(agreement.cause_stage)}" if agreement.cause_stage else ""
    return f"{cause_words(cause)}{where}, {weight} of the examined steps' time"


def _similarity_words(agreement: Agreement) -> tuple[str, ...]:
    """Return which rank's timing pattern differs most; empty if there is nothing to compare it with."""
    first, cause = agreement.first_rank, agreement.cause
    if first is None or cause is None or cause.kind == "transfer":
        return ()
    if first == cause.rank:
        return (f"Rank {first}'s timing pattern also differs most from the others.",)
    return (f"Rank {first}'s timing pattern differs most from the others: delayed ranks differ as well.",)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
