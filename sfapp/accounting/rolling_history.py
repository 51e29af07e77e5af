"""Keep the results of rolling verdicts: exposed time by step and stage, and onsets of effects."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from sfapp.accounting.leaders import Ints
from sfapp.accounting.measures import Measures
from sfapp.accounting.rolling import RollingVerdict
from sfapp.model.findings import Finding

KEPT_STEPS = 600
KEPT_ONSETS = 32

LEAST_STEPS = 5
"""Minimum length in steps of an effect that is kept."""


@dataclass(frozen=True, slots=True)
class Onset:
    """The onset of an effect in a running job.

    Attributes:
        stage, ranks: of the finding; no ranks if the stage grew on all.
        began: the first step with the effect, or the first judged step if it had begun earlier.
        is_exact: whether the preceding step was judged and had no such effect.
        ended: the last step with the effect; None while it lasts.
    """

    stage: str
    ranks: tuple[int, ...]
    began: int
    is_exact: bool
    ended: int | None = None


def _no_steps() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RollingHistory:
    """The newest steps of a running job.

    Attributes:
        stages: broad stages.
        step_N: step numbers, ascending; steps that were not judged are missing.
        advance_BN: exposed time by stage and step, ns.
        onsets: of effects, the earliest first.
    """

    stages: tuple[str, ...] = ()
    step_N: Ints = field(default_factory=_no_steps)
    advance_BN: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    onsets: tuple[Onset, ...] = ()

    def extended(self, found: RollingVerdict) -> RollingHistory:
        """Return the history extended by a later verdict."""
        if found.measures is None or found.diagnosis is None:
            return self
        boundary = found.diagnosis.sync_boundary
        stages = found.measures.window.stages
        longer = self.with_steps(found.measures, None if boundary is None else stages.index(boundary))
        return replace(longer, onsets=_onsets(longer.onsets, found))

    @property
    def current(self) -> Onset | None:
        """The onset of the present effect, or None."""
        last = self.onsets[-1] if self.onsets else None
        return last if last is not None and last.ended is None else None

    def with_steps(self, measures: Measures, boundary: int | None = None) -> RollingHistory:
        """Return the history extended by the steps that it lacks.

        Args:
            boundary: position of the wait stage at which the carry-over frontier is aligned.
        """
        carried = measures.carry(boundary)
        advance_SN = measures.advance_SN if carried is None else carried.advance_SN
        advance_BN = np.stack(
            [advance_SN[list(measures.members(place))].sum(axis=0) for place in range(len(measures.broad))]
        )
        step_N = np.asarray(measures.step_N)
        is_other = self.stages != measures.broad or (len(self.step_N) and step_N[-1] < self.step_N[-1])
        if is_other:  # Another job, or a job that returned to a checkpoint.
            return RollingHistory(measures.broad, step_N, advance_BN)
        new = step_N > (self.step_N[-1] if len(self.step_N) else -1)
        return replace(
            self,
            step_N=np.concatenate((self.step_N, step_N[new]))[-KEPT_STEPS:],
            advance_BN=np.concatenate((self.advance_BN, advance_BN[:, new]), axis=1)[:, -KEPT_STEPS:],
        )


def _onsets(known: tuple[Onset, ...], found: RollingVerdict) -> tuple[Onset, ...]:
    """Return the onsets with that of the present finding. An effect that is gone has ended; one that was gone
    for a moment continues; one of only a few steps is dropped."""
    assert found.diagnosis is not None
    first, last = found.diagnosis.first_step, found.diagnosis.last_step
    finding = found.finding
    kept = []
    current: Onset | None = None
    for onset in known:
        is_near = onset.ended is None or onset.ended >= first - 1
        if finding is not None and is_near and _cause(onset.stage, onset.ranks) == _cause_of(finding):
            current = replace(onset, ended=found.until_step)
            continue
        ended = last if onset.ended is None else onset.ended
        if ended - onset.began >= LEAST_STEPS - 1:
            kept.append(replace(onset, ended=ended))
    if finding is not None and current is None:
        since = found.since_step
        began = first if since is None else since
        current = Onset(finding.stage, finding.ranks, began, since is not None, found.until_step)
    return (*kept, *([] if current is None else [current]))[-KEPT_ONSETS:]


def _cause(stage: str, ranks: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    return stage, ranks[:1]


def _cause_of(finding: Finding) -> tuple[str, tuple[int, ...]]:
    return _cause(finding.stage, finding.ranks)
