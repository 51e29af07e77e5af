"""The content of a report as plain data, independent of its format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from sfapp.model import Diagnosis
from sfapp.model.problems import Problem
from sfapp.model.sides import CompareState, SideKey
from sfapp.model.view import ViewState
from sfapp.report.plots import ReportPlot
from sfapp.service.window_evidence import EvidenceFile
from sfapp.views import text as words
from sfapp.views.text.problems import problem_text


@dataclass(frozen=True, slots=True)
class Section:
    """One window: its verdict, plots and provenance.

    Attributes:
        size: ``40 steps 160–199 · 8 ranks on 2 nodes``.
        view: gates, baseline and selection of the window.
        gates: each gate that differs from its default, in words.
        problems: the problems that it belongs to: all ranks, default gates.
        what_if: the effect of the fix chosen in the view; empty if none is chosen.
        plots: empty if only single plots of it were collected, which then follow.
    """

    run_id: str
    window: int
    size: str
    view: ViewState
    diagnosis: Diagnosis
    verdict: words.VerdictText
    plots: tuple[ReportPlot, ...]
    packets: tuple[EvidenceFile, ...]
    gates: tuple[str, ...]
    what_if: str
    frontier: str
    baseline: str
    reference: str
    problems: tuple[Problem, ...]

    @property
    def problem_lines(self) -> tuple[str, ...]:
        """Return the problems in words."""
        return tuple(problem_text(problem).sentence for problem in self.problems)


@dataclass(frozen=True, slots=True)
class CollectedPlot:
    """One plot that was collected alone.

    Attributes:
        seen: the selection: ``step 161 · rank 3``; empty if nothing was selected.
    """

    run_id: str
    window: int
    view: ViewState
    seen: str
    plot: ReportPlot


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side of a comparison.

    Attributes:
        first: its first window, with the packets of that window.
        packets: packets of all its windows.
    """

    key: SideKey
    first: tuple[int, tuple[EvidenceFile, ...]]
    packets: tuple[EvidenceFile, ...]


@dataclass(frozen=True, slots=True)
class ReportComparison:
    """Comparison of two or three windows or runs.

    Attributes:
        state: the sides and how they are judged.
        title: the names of the sides: ``A · window 12, B · window 13``.
        text: headline, explanation and numbers.
        head, rows: the table of stages as text; its columns add up as printed.
    """

    state: CompareState
    sides: tuple[ComparedSide, ...]
    title: str
    text: words.ComparisonWords
    plots: tuple[ReportPlot, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def packets(self) -> tuple[EvidenceFile, ...]:
        """Return the packets of all sides."""
        return tuple(dict.fromkeys(packet for side in self.sides for packet in side.packets))


@dataclass(frozen=True, slots=True)
class Remark:
    """A note.

    Attributes:
        number: its mark on the plots of its window; None for a standalone note.
        pinned: its subject: ``run / 13 · step 161 · rank 3``; empty for a standalone note.
        signed: ``Ada, 2026-11-21 09:14 UTC``.
        overwritten: conflicting edits made at the same time, each with its author.
    """

    number: int | None
    text: str
    pinned: str
    signed: str
    overwritten: tuple[str, ...]

    @property
    def heading(self) -> str:
        """Return its subject with its number: ``1 · run / 13 · step 161``."""
        return self.pinned if self.number is None else f"{self.number} · {self.pinned}"


@dataclass(frozen=True, slots=True)
class Missing:
    """Evidence that is not available: its packets are absent or lack the requested data."""

    reason: str


Part = Section | CollectedPlot | ReportComparison | Remark | Missing
Kind = TypeVar("Kind", Section, CollectedPlot, ReportComparison, Remark, Missing)


@dataclass(frozen=True, slots=True)
class Report:
    """Content of a report.

    Attributes:
        facts: severity, status and author of the incident as (name, value); empty for a report on windows.
        parts: the parts in order.
        command: the command that reproduces the report from the packets.
        version: version of sfapp.
    """

    title: str
    summary: str
    facts: tuple[tuple[str, str], ...]
    parts: tuple[Part, ...]
    command: str
    version: str

    def of(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """Return the parts of one kind."""
        return tuple(part for part in self.parts if isinstance(part, kind))

    @property
    def problem_lines(self) -> tuple[str, ...]:
        """Return the problems of all its windows in words, each once, in the order of the windows."""
        lines = (line for section in self.of(Section) for line in section.problem_lines)
        return tuple(dict.fromkeys(lines))

    @property
    def plots(self) -> tuple[ReportPlot, ...]:
        """Return every plot in order."""
        return tuple(plot for part in self.parts for plot in plots_of(part))


def plots_of(part: Part) -> tuple[ReportPlot, ...]:
    """Return the plots of one part."""
    if isinstance(part, Section | ReportComparison):
        return part.plots
    return (part.plot,) if isinstance(part, CollectedPlot) else ()
