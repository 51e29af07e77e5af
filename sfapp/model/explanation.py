"""Why a rank is late: what its host recorded, held against its lateness (accounting.md §21)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

CauseKind = Literal["throttled", "gc", "page_faults", "storage", "no_core", "computing", "blocked"]

CAUSES: Mapping[CauseKind, str] = {
    "throttled": "Its control group had used up its quota of CPU time.",
    "gc": "Python's garbage collector ran on the training thread.",
    "page_faults": "The training thread waited for memory pages: page faults, or memory pressure.",
    "storage": "The training thread waited for a block device.",
    "no_core": "The training thread could run but had no processor core.",
    "computing": "The training thread computed longer than on other ranks; nothing more specific was seen.",
    "blocked": "The training thread was blocked; nothing more specific was seen.",
}
"""Every class of causes with its meaning; where times overlap, an earlier one takes precedence."""

NO_EXPLANATION: Mapping[str, str] = {
    "too_few_steps": "too few steps have host evidence",
    "too_few_ranks": "no other rank of its role has host evidence",
}
"""Reasons why host evidence could not be examined."""


@dataclass(frozen=True, slots=True)
class ChannelEvidence:
    """How one kind of evidence differs from the peers' and goes with the rank's late steps.

    Attributes:
        channel: the side channel; ``blocked`` for the time in the stage without CPU time.
        cause: the class of causes that it supports; None if it only describes what happened.
        value, peers: mean per step on the rank, and the median of the other ranks; ms or counts.
        correlation: rank correlation with the lateness over the rank's steps; None if one is constant.
        accounts_ns: the part of the delay that it accounts for, per step.
        chance: of evidence like this if it had nothing to do with the delay, corrected for the number of
            channels tried; the larger one of the tests against peers and against the steps.
    """

    channel: str
    cause: CauseKind | None
    value: float
    peers: float
    correlation: float | None
    accounts_ns: float
    chance: float


@dataclass(frozen=True, slots=True)
class HostCause:
    """One cause of the delay, beyond chance.

    Attributes:
        accounts_ns: the part of the delay per step that it accounts for; parts of several causes do not
            overlap.
        chance: of the evidence for it, corrected for the number of channels tried.
        channels: the evidence.
    """

    kind: CauseKind
    accounts_ns: float
    chance: float
    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one rank is late in one stage, as far as its host recorded it.

    Attributes:
        stage, rank: the broad stage and the global rank.
        delay_ns: its lateness against its peers, mean over the steps examined; over the late ones if only
            single steps are late.
        steps: number of these steps.
        causes: the one that accounts for most of the delay first; empty if nothing recorded explains it.
        evidence: every channel examined, the one that accounts for most first.
        unaffected: classes of causes that were recorded and are not among the causes.
        unrecorded: classes of causes that nothing was recorded about.
        reason: why the evidence could not be examined; see ``NO_EXPLANATION``.
    """

    stage: str
    rank: int
    delay_ns: float
    steps: int
    causes: tuple[HostCause, ...] = ()
    evidence: tuple[ChannelEvidence, ...] = ()
    unaffected: tuple[CauseKind, ...] = ()
    unrecorded: tuple[CauseKind, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SharedAttribute:
    """What late ranks have in common.

    Attributes:
        name, value: the attribute, such as ``kernel`` and ``6.8.0``.
        late, late_ranks: number of late ranks that have it, and of all late ranks.
        others, other_ranks: the same for ranks that are not late.
        chance: that as many late ranks share it by chance (Fisher's exact test), corrected for the number of
            values tried.
    """

    name: str
    value: str
    late: int
    late_ranks: int
    others: int
    other_ranks: int
    chance: float
