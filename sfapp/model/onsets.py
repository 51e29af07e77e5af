"""Beginning and end of an effect in a run: steps with an interval (accounting.md §17)."""

from __future__ import annotations

from dataclasses import dataclass

from sfapp.model.findings import FindingKind


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """An estimated step of the run.

    Attributes:
        step: the most likely one; None if only the interval is known.
        low, high: first and last step of its 95 % interval.
    """

    step: int | None
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Neighbouring windows of a run with the same effect: a finding in the same stage that needs attention.

    Attributes:
        kind: ``rank`` if one of its windows names late ranks, else ``growth``.
        ranks: named by all windows that name any (if ranks take turns, by any window), ascending; empty for
            growth.
        hostname: of the latest rank in the first of these windows.
        first_window, last_window: numbers of the windows at its ends. windows: number of windows.
        effect: the largest of the windows, as a part of their mean step.
        began: first step with the effect. ended: last step with it; None if the run's last window has it.
    """

    run_id: str
    kind: FindingKind
    stage: str
    ranks: tuple[int, ...]
    hostname: str | None
    first_window: int
    last_window: int
    windows: int
    effect: float
    began: StepEstimate
    ended: StepEstimate | None
