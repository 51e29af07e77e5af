"""The evidence for a report: one judged window with its files, from a store or from packets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sfapp.accounting import Measures
from sfapp.model import Diagnosis, Window
from sfapp.model.problems import Problem
from sfapp.model.view import ViewState, WindowKey
from sfapp.operators import Findings
from sfapp.service.stacks import RunStacks


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """A source file of the numbers."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class WindowEvidence:
    """A window of all ranks, the verdict on a view's group, and its files.

    Attributes:
        measures: returns the measures that the verdict is based on, of that group; a comparison needs none.
        findings: computes the operator findings on those ranks, or raises WindowError; None where they are
            not available.
        has_operators: whether operator events are stored next to the packets, so that the findings name
            operators rather than stages.
        stacks: returns the newest stacks of the run's ranks, if there are any; None where they must not be
            shown, because they name files and functions.
        missing_rows: which rows of it were thinned, and the verdict on all of them, in words; empty if none.
        on_all_rows: the verdict on all rows, if some were thinned and the view is the default one.
    """

    window: Window
    diagnosis: Diagnosis
    packets: tuple[EvidenceFile, ...]
    measures: Callable[[], Measures]
    findings: Callable[[], Findings] | None = None
    has_operators: bool = False
    stacks: Callable[[], RunStacks | None] | None = None
    missing_rows: str = ""
    on_all_rows: Diagnosis | None = None


class EvidenceSource(Protocol):
    """Interface that finds and judges windows for a report."""

    def __call__(self, key: WindowKey, view: ViewState) -> WindowEvidence:
        """Return a window judged under a view.

        Raises:
            WindowNotFoundError: the window, its group or its reference does not exist.
            WindowError: it cannot be judged under the view. The report prints either error instead of the
                window.
        """

    def windows(self, run_id: str) -> Sequence[int]:
        """Return the window numbers of a run in order; none if there is no such run."""

    def problems(self, key: WindowKey) -> Sequence[Problem]:
        """Return the problems that a window belongs to: all ranks, default thresholds; none if there is no
        such window."""
