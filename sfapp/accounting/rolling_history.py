"""Keep what rolling verdicts showed: exposed time by step and stage, and where effects began and ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from sfapp.accounting.leaders import Ints
from sfapp.accounting.measures import Measures
from sfapp.accounting.rolling import RollingVerdict

KEPT_STEPS = 600
KEPT_ONSETS = 32


@dataclass(frozen=True, slots=True)
class Onset:
    """Where an effect began in a running job.

    Attributes:
        stage, ranks: of the finding; no ranks where all grew.
        began: the first step with it; the first step that was looked at where it had begun before.
        is_exact: whether the step before was looked at and had no such effect.
        ended: the last step with it; None while it goes on.
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
        step_N: step numbers, ascending; steps that no verdict was about are missing.
        advance_BN: exposed time of each stage in each of these steps, ns.
        onsets: of effects, the earliest first.
    """

    stages: tuple[str, ...] = ()
    step_N: Ints = field(default_factory=_no_steps)
    advance_BN: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    onsets: tuple[Onset, ...] = ()

    def extended(self, found: RollingVerdict) -> RollingHistory:
        """Return the history with what a later verdict shows."""
        if found.measures is None or found.diagnosis is None:
            return self
        boundary = found.diagnosis.sync_boundary
        stages = found.measures.window.stages
        longer = self.with_steps(found.measures, None if boundary is None else stages.index(boundary))
        return replace(longer, onsets=_onsets(longer.onsets, found))

    def with_steps(self, measures: Measures, boundary: int | None = None) -> RollingHistory:
        """Return the history with the steps that it does not have yet.

        Args:
            boundary: position of the wait stage that the carry-over frontier is aligned at.
        """
        carried = measures.carry(boundary)
        advance_SN = measures.advance_SN if carried is None else carried.advance_SN
        advance_BN = np.stack(
            [advance_SN[list(measures.members(place))].sum(axis=0) for place in range(len(measures.broad))]
        )
        step_N = np.asarray(measures.step_N)
        is_other = self.stages != measures.broad or (len(self.step_N) and step_N[-1] < self.step_N[-1])
        if is_other:  # Another job, or one that returned to a checkpoint.
            return RollingHistory(measures.broad, step_N, advance_BN)
        new = step_N > (self.step_N[-1] if len(self.step_N) else -1)
        return replace(
            self,
            step_N=np.concatenate((self.step_N, step_N[new]))[-KEPT_STEPS:],
            advance_BN=np.concatenate((self.advance_BN, advance_BN[:, new]), axis=1)[:, -KEPT_STEPS:],
        )


def _onsets(known: tuple[Onset, ...], found: RollingVerdict) -> tuple[Onset, ...]:
    """Return the onsets with that of the present finding; one that is gone has ended."""
    assert found.diagnosis is not None
    finding = found.finding
    last = known[-1] if known else None
    goes_on = last is not None and last.ended is None
    is_same = (
        finding is not None
        and last is not None
        and last.stage == finding.stage
        and (last.ranks[:1] == finding.ranks[:1])
        and (goes_on or (found.since_step or 0) <= (last.ended or 0))
    )
    if is_same and last is not None:
        return (*known[:-1], replace(last, ended=found.until_step))
    if goes_on and last is not None:
        ended = found.diagnosis.first_step if finding is None else found.since_step
        known = (*known[:-1], replace(last, ended=max(last.began, ended or found.diagnosis.first_step)))
    if finding is None:
        return known
    since = found.since_step
    began = found.diagnosis.first_step if since is None else since
    onset = Onset(finding.stage, finding.ranks, began, since is not None, found.until_step)
    return (*known, onset)[-KEPT_ONSETS:]
