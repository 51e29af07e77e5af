"""Why a rank is late, in sentences: causes on its host, what late ranks share, known periods (accounting.md
§21)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfapp.model import Diagnosis, stage_category
from sfapp.model.explanation import (
    NO_EXPLANATION,
    CauseKind,
    ChannelEvidence,
    Explanation,
    HostCause,
    SharedAttribute,
)
from sfapp.model.periods import fitting_periods
from sfapp.views import format

CAUSE_TITLES: Mapping[CauseKind, str] = {
    "throttled": "throttled by its CPU quota",
    "gc": "garbage collection",
    "page_faults": "page faults",
    "storage": "waiting for a block device",
    "no_core": "waiting for a core",
    "computing": "more computing",
    "blocked": "blocked, not computing",
}
"""Each class of causes, after its part of the delay."""

_ABSENT: Mapping[CauseKind, str] = {
    "throttled": "throttling",
    "gc": "collections",
    "page_faults": "faults",
    "storage": "block-device delay",
    "no_core": "lack of a core",
    "computing": "more computing",
    "blocked": "blocking",
}
"""Each class of causes, after ``no``."""

_CONCLUSIONS: Mapping[CauseKind, str] = {
    "throttled": "the CPU quota of its container or job is too small",
    "gc": "run gc.collect() on all ranks at the same step, or gc.freeze() after warm-up",
    "page_faults": "its memory is short, or allocated anew in each step",
    "storage": "its storage is slow, or it reads more than others",
    "no_core": "other processes or threads use its cores",
    "computing": "it has more work there, or its core is slower",
    "blocked": "it waits for a lock, another thread, its storage or a remote service",
}

_BLOCKED_IN_DATA = "it waits for its storage or its workers"

_MOST_SHARED = 3


def reason_sentences(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return why the suspect is late, as far as it was recorded, and what late ranks share; empty if nothing
    was recorded about it."""
    found = diagnosis.aim_explanation
    explained = () if found is None else explanation_sentences(found)
    return (*explained, *shared_sentences(diagnosis))


def explanation_sentences(found: Explanation) -> tuple[str, ...]:
    """Return what the host of a late rank says about its delay.

    The first sentence: ``Rank 3 is late in data by 78 ms per step: 75 ms blocked, not computing; no
    throttling, no collections: it waits for its storage or its workers.``
    """
    late = f"ank {found.rank} is late {format.in_stage(found.stage)} by {format.duration(found.delay_ns)}"
    late += " per step" if found.steps != 1 else " in one step"
    if found.reason is not None:
        return (f"Host evidence cannot say why r{late}: {NO_EXPLANATION[found.reason]}.",)
    missing = _unrecorded(found)
    if not found.causes:
        return tuple(filter(None, (f"Nothing recorded on the host explains why r{late}.", missing)))
    parts = [f"{format.duration(cause.accounts_ns)} {CAUSE_TITLES[cause.kind]}" for cause in found.causes]
    absent = [f"no {_ABSENT[kind]}" for kind in found.unaffected if kind not in ("computing", "blocked")]
    causes = format.listed(parts, conjunction="and")
    not_seen = f"; {', '.join(absent)}" if absent else ""
    first = f"R{late}: {causes}{not_seen}: {conclusion(found)}."
    return tuple(filter(None, (first, _evidence_sentence(found, found.causes[0]), missing)))


def conclusion(found: Explanation) -> str:
    """Return what the largest cause means, as the continuation of a sentence."""
    kind = found.causes[0].kind
    if kind == "blocked" and stage_category(found.stage) == "data":
        return _BLOCKED_IN_DATA
    return _CONCLUSIONS[kind]


def _evidence_sentence(found: Explanation, cause: HostCause) -> str:
    """Return the evidence for a cause: against its peers, over the steps, and by chance."""
    of_cause = [one for one in found.evidence if one.channel in cause.channels]
    best = min(of_cause, key=lambda one: one.chance)
    title = CAUSE_TITLES[cause.kind].capitalize()
    text = f"{title}: {_amount(best, best.value)} per step, {_amount(best, best.peers)} on other ranks"
    if best.correlation is not None:
        text += f"; rank correlation with its lateness {best.correlation:.2f}"
    return f"{text}; chance {format.chance(best.chance)}."


def _amount(one: ChannelEvidence, value: float) -> str:
    if one.channel.endswith("_ms") or one.channel == "blocked":
        return format.duration(max(0.0, value) * 1e6)
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _unrecorded(found: Explanation) -> str:
    if not found.unrecorded:
        return ""
    return f"Not recorded: {format.listed([_ABSENT[kind] for kind in found.unrecorded], conjunction='or')}."


def causes_of(diagnosis: Diagnosis) -> tuple[CauseKind, ...]:
    """Return the classes of causes on the suspect's host, by which windows with the same verdict are
    distinguished."""
    found = diagnosis.aim_explanation
    return () if found is None else tuple(cause.kind for cause in found.causes)


def cause_words(found: Explanation) -> str:
    """Return the largest cause for a table or a list: ``75 of 78 ms blocked, not computing``."""
    if not found.causes:
        return "nothing recorded on the host explains it"
    cause = found.causes[0]
    of = f"{format.duration(cause.accounts_ns)} of {format.duration(found.delay_ns)}"
    return f"{of} {CAUSE_TITLES[cause.kind]}"


def no_evidence_sentence(diagnosis: Diagnosis) -> str:
    """Return that the hosts recorded nothing; empty where they did, or where no rank is named."""
    if diagnosis.aim is None or diagnosis.aim.rank is None or diagnosis.is_healthy:
        return ""
    if diagnosis.explanations is not None:
        return ""
    return f"Why rank {diagnosis.aim.rank} is late is not known: no host evidence was recorded."


def shared_sentences(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return what late ranks share beyond chance; empty if nothing."""
    return (f"Late ranks share {shared_words(diagnosis.shared)}.",) if diagnosis.shared else ()


def shared_words(shared: Sequence[SharedAttribute]) -> str:
    """Return ``host node-1 (4 of 4 late ranks, 0 of 12 others, chance 0.4 %) and …``."""
    parts = [
        f"{format.clip(one.name.replace('_', ' '))} {format.clip(one.value)} ({format.count(one.late)} of "
        f"{format.count(one.late_ranks)} late ranks, {format.count(one.others)} of "
        f"{format.count(one.other_ranks)} others, chance {format.chance(one.chance)})"
        for one in shared[:_MOST_SHARED]
    ]
    return format.listed(parts, conjunction="and")


def period_sentence(diagnosis: Diagnosis, spacing: int) -> str:
    """Return which known periods a spacing fits, to check; empty if none."""
    fitting = fitting_periods(diagnosis.periods or {}, spacing)
    if not fitting:
        return ""
    named = [f"{format.clip(name)} ({steps})" for name, steps in fitting.items()]
    return f"To check, as its period fits: {format.listed(named, conjunction='or')}."
