"""KAIR's findings in sentences: the cause, how it fits the verdict, and what could not be known (kair.md)."""

from __future__ import annotations

from collections.abc import Mapping

from sfapp.model import DEFAULT_STAGES, Diagnosis, broad_stage
from sfapp.model.window import RankTable
from sfapp.operators import AGREEMENT_REASONS, Agreement, Cause, Findings
from sfapp.operators.blame import HALF
from sfapp.operators.cohorts import MIN_COHORT
from sfapp.views import format

CAUSE_KINDS: Mapping[str, str] = {
    "operator": "This operator took abnormally long.",
    "edge": "This operator started late, though what it waited for was on time.",
    "transfer": "This collective took long after all had arrived.",
    "extra": "This event has no counterpart on most other ranks.",
    "before": "The rank was late when its events begin: the cause lies before them.",
}
"""What each kind of cause says."""

NATURES: Mapping[str, str] = {
    "compute": "Work on the host or on the device.",
    "communication": "A collective or a copy is involved.",
    "input": "Data is loaded.",
    "idle": "Nothing recorded ran.",
    "unknown": "Nothing tells what it was.",
}
"""What kind of work a cause is."""

COLLECTIVE_VERDICTS: Mapping[str, str] = {
    "skew": "Most of the time the first rank to arrive waited for the last: look at who came late.",
    "transfer": "Most of the time went into the transfer, after all had arrived: look at the network.",
    "mixed": "Neither waiting nor the transfer is twice the other.",
    "inconclusive": "The events cannot tell waiting from transfer.",
}
"""What a collective's time went into."""

VIAS: Mapping[str, tuple[str, str]] = {
    "program": ("runs next", "what ran before it on the same thread or stream"),
    "enclosing": ("inside it", "the beginning of the operator that encloses it"),
    "enclosed": ("ends with it", "the end of what it encloses"),
    "launch": ("launches it", "the call that put it on the device"),
    "autograd": ("its backward", "the forward operator it belongs to"),
    "arrival": ("last to arrive", "the last rank to arrive in the collective"),
    "device": ("host waits", "the device, in a call that waits for it"),
    "stream": ("next stream", "what ended on another stream just before"),
}
"""Why an event on a path waited for the one before: as an edge's label, and as `waits for …`."""

TERMS: Mapping[str, tuple[str, str]] = {
    "distance": (
        "K-S",
        "The two-sample Kolmogorov–Smirnov distance of two ranks: the largest gap between their curves of "
        "completions within a step. 0 where they keep the same time, 1 where one has finished before the "
        "other begins.",
    ),
    "score": ("", "A rank's mean distance from all others. It says who differs, not who is slow."),
    "cohort": (
        "",
        "The same operator on the other ranks: of the same step, category and name, the same occurrence in "
        "the step. At least three ranks must have it.",
    ),
    "robust_z": (
        "z",
        "How far an event is from its cohort's median, in units of 1.4826 times the median absolute "
        "deviation; above 3 in size it is abnormal. One culprit cannot hide in it, as it can in a standard "
        "deviation that it widens itself. From 11 ranks on outliers are scored by mean and standard "
        "deviation.",
    ),
    "blame": (
        "",
        "Going back from what was late over what it waited for, to where the time was lost. A cause must "
        "account for at least half of its victim's lateness.",
    ),
    "path": ("", "The way from a cause to its latest victim, over what each event waited for."),
    "symptom": ("", "An event that started late or took long itself."),
}
"""Words of the straggler views: a symbol where there is one, and what each means."""

_OVER = 60
"""Characters of an operator's name in a sentence."""


def stragglers_headline(findings: Findings, agreement: Agreement, ranks: RankTable | None = None) -> str:
    """``Rank 5's next_batch on node-1 (input) held up 7 ranks: 120 ms over 8 steps``, or why not so.

    Args:
        ranks: of the window, to say on which host the rank runs.
    """
    cause = agreement.cause
    if cause is not None:
        return _capital(f"{cause_words(cause, ranks)} {_held_up(findings, cause)}: {_cost(cause)}")
    if findings.alike < MIN_COHORT:
        few = f"{format.counted(len(findings.similarity.ranks), 'rank')} with events"
        if findings.alike < len(findings.similarity.ranks):
            few = f"of {len(findings.similarity.ranks)} ranks at most {findings.alike} play the same role"
        return f"No cause can be named: {few}, and it takes three to tell which one is odd"
    found = findings.blame
    first = next(iter(found.causes), None)
    if first is not None and first.holds_up:
        return f"Nothing held the ranks up for long: at most {_cost(first)}, in {cause_words(first, ranks)}"
    rank, late = max(found.spread_ns.items(), key=lambda item: item[1], default=(0, 0.0))
    if late > (0.0 if first is None else first.worst_ns):
        behind = format.duration(late)
        return f"No one operator: rank {rank} falls behind a little at a time, by up to {behind}"
    if first is not None:
        return f"Nothing waited for what took longest: {_cost(first)}, in {cause_words(first, ranks)}"
    if found.symptoms:
        return f"{format.counted(found.symptoms, 'event')} late or slow, and none can be traced to a cause"
    return "No operator stands out: no event started late or took long"


def cause_words(cause: Cause, ranks: RankTable | None = None) -> str:
    """``rank 5's next_batch (input)``: what a cause is, as the subject of a sentence."""
    name = operator_name(cause.name, _OVER)
    if cause.kind == "transfer":
        return f"the transfer of {name} ({cause.nature})"
    rank = f"rank {cause.rank}"
    said = {
        "operator": f"{rank}'s {name}",
        "edge": f"{rank}'s gap before {name}",
        "extra": f"{rank}'s own {name}",
        "before": f"what {rank} did before {name}",
    }[cause.kind]
    return f"{said}{_on_host(cause.rank, ranks)} ({cause.nature})"


def operator_name(name: str, limit: int = 40) -> str:
    """An operator's name cut to a length; a range that marks a stage is called as the stage is elsewhere."""
    return format.short_stage(name) if broad_stage(name) in DEFAULT_STAGES else format.clip(name, limit)


def agreement_sentences(agreement: Agreement, diagnosis: Diagnosis) -> tuple[str, ...]:
    """Whether the verdict and the operators point at the same place, where not, and why that can be."""
    aim = _aim_words(agreement, diagnosis)
    cause = agreement.cause
    found = "" if cause is None else _place_words(agreement, cause)
    if cause is None and agreement.kind == "quiet":
        first = "Neither the verdict nor the operators find anything that holds the ranks up."
    elif cause is None:
        first = f"The verdict aims at {aim}; no operator accounts for it."
    elif agreement.kind == "agree":
        first = f"Verdict and operators agree: the verdict aims at {aim}, and the first cause is {found}."
    elif agreement.kind == "differ":
        first = f"Verdict and operators differ: the verdict aims at {aim}, the first cause is {found}."
    else:
        first = f"The verdict is quiet, yet the operators name a cause: {found}."
    reasons = tuple(AGREEMENT_REASONS[reason] for reason in agreement.reasons)
    return (first, *_rhythm_words(agreement), *reasons)


def findings_notes(findings: Findings) -> tuple[str, ...]:
    """What these findings rest on, and what could not be known."""
    found, rhythm = findings.blame, findings.similarity
    notes = [f"Made from stages, not from operators: {findings.note}."] if findings.note else []
    notes += [f"{_capital(note)}." for note in found.notes]
    if found.unexplained:
        late = format.counted(found.unexplained, "late event")
        notes.append(f"{late} cannot be traced: what it waits for is not among these events.")
    if found.spread_ns:
        who = f"rank{'s' if len(found.spread_ns) > 1 else ''} {format.ranges(found.spread_ns)}"
        notes.append(
            f"{_capital(who)}: up to {format.duration(max(found.spread_ns.values()))} late with no one place "
            "that accounts for half of it."
        )
    if findings.outliers.unmatched and not any("no counterpart" in note for note in notes):
        alone = format.counted(findings.outliers.unmatched, "event")
        notes.append(f"{alone} without a cohort of three ranks: not scored.")
    notes.append(f"Outliers are scored by {findings.outliers.why}.")
    if found.why != findings.outliers.why:
        notes.append(f"Lateness is scored by {found.why}.")
    if rhythm.ranks:
        length = format.duration(rhythm.window_ns)
        notes.append(f"RankSimilarity counts completions in windows of {length}: {rhythm.why}.")
    return tuple(notes)


def _held_up(findings: Findings, cause: Cause) -> str:
    """How many ranks waited for it: those of the largest collective in its worst step, or in that of its
    victim, in which the wait for the last rank accounts for at least half of what it cost."""
    if cause.kind == "transfer":
        return "held its group up"
    step_E = findings.operators.step_E
    steps = {int(step_E[event]) for event in (cause.event, *(step.event for step in cause.path[-1:]))}
    waited = [
        met.ranks - 1
        for met in findings.blame.collectives
        if met.step in steps and met.verdict in ("skew", "mixed") and met.skew_ns >= HALF * cause.worst_ns
    ]
    return f"held up {format.counted(max(waited), 'rank')}" if waited else "held up what came after it"


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
    return f"{stage}{' on all ranks alike' if reason == 'all_ranks' else ', on no single rank'}"


def _place_words(agreement: Agreement, cause: Cause) -> str:
    weight = format.percent(agreement.weight)
    where = f" in {format.short_stage(agreement.cause_stage)}" if agreement.cause_stage else ""
    return f"{cause_words(cause)}{where}, {weight} of the time of the steps examined"


def _rhythm_words(agreement: Agreement) -> tuple[str, ...]:
    """What the rhythm adds; nothing where it names nobody, or there is nothing to compare it with."""
    first, cause = agreement.first_rank, agreement.cause
    if first is None or cause is None or cause.kind == "transfer":
        return ()
    if first == cause.rank:
        return (f"Rank {first} also differs most from the others in its rhythm.",)
    return (f"In its rhythm rank {first} differs most from the others: who is held up differs as well.",)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
