"""Where in a run an effect began and ended: steps with an interval (accounting.md §17)."""

from __future__ import annotations

from dataclasses import dataclass

from sfapp.model.findings import FindingKind


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """A step of the run that something happened at.

    Attributes:
        step: the most likely one; None where only the interval is known.
        low, high: first and last step that it may be, with 95 %.
    """

    step: int | None
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Neighbouring windows of a run with the same effect: a finding in the same stage that needs attention.

    Attributes:
        kind: ``rank`` where one of its windows names late ranks, else ``growth``.
        ranks: that all windows name which name any (where ranks take turns, that any names), ascending;
            empty for growth.
        hostname: of the latest rank, as the first of these names it.
        first_window, last_window: numbers of the windows at its ends. windows: how many they are.
        effect: the largest of the windows, as a part of their mean step.
        began: first step with the effect. ended: last step with it; None where the run's last window has it.
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
