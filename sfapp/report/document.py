"""Build the content of a report as plain data, independent of its format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sfapp.accounting import Measures, compare, measure
from sfapp.errors import ComparisonError, WindowError, WindowNotFoundError
from sfapp.model import Diagnosis
from sfapp.model.gates import GATE_BY_NAME, Gates
from sfapp.model.incidents import Incident, Item, Note, Overwritten, notes_on
from sfapp.model.sides import CompareState, SideKey, parse_compare
from sfapp.model.view import ViewState, WindowKey, parse_query
from sfapp.report.plots import (
    LEFT_OUT,
    RANKS_IN_FULL,
    ReportPlot,
    comparison_plots,
    findings_plots,
    report_names,
    window_plots,
)
from sfapp.report.what_if_line import what_if_line
from sfapp.service.evidence import EvidenceFile, EvidenceSource, WindowEvidence
from sfapp.views import comparison_tables
from sfapp.views import text as words
from sfapp.views.format import ranges
from sfapp.views.plot_registry import PLOTS, FindingsInput, WindowInput


@dataclass(frozen=True, slots=True)
class Section:
    """One window: its verdict, plots and provenance.

    Attributes:
        size: ``40 steps 160–199 · 8 ranks on 2 nodes``.
        view: gates, baseline and selection of the window.
        gates: each gate that differs from its default, in words.
        what_if: what the fix that the view chose would bring; empty if it chose none.
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


@dataclass(frozen=True, slots=True)
class CollectedPlot:
    """One plot that was collected by itself.

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
    def plots(self) -> tuple[ReportPlot, ...]:
        """Return every plot in order."""
        return tuple(plot for part in self.parts for plot in plots_of(part))


def plots_of(part: Part) -> tuple[ReportPlot, ...]:
    """Return the plots of one part."""
    if isinstance(part, Section | ReportComparison):
        return part.plots
    return (part.plot,) if isinstance(part, CollectedPlot) else ()


def document(
    incident: Incident, look: EvidenceSource, *, command: str, version: str, opened: bool = True
) -> Report:
    """Build the report on an incident.

    Args:
        look: finds windows and judges them.
        opened: False if the incident was drafted for the report and has no severity or status.
    """
    return Report(
        title=incident.title,
        summary=incident.summary,
        facts=_facts(incident) if opened else (),
        parts=tuple(_parts(incident.items, look)),
        command=command,
        version=version,
    )


def _facts(incident: Incident) -> tuple[tuple[str, str], ...]:
    facts = [
        ("severity", incident.severity),
        ("status", incident.status),
        ("opened", words.signed(incident.written)),
    ]
    if incident.changed is not None:
        facts.append(("last change", words.signed(incident.changed)))
    lost = [("written at the same time", overwritten(one)) for one in incident.overwritten]
    return (*facts, *lost)


def _parts(items: Sequence[Item], look: EvidenceSource) -> Iterator[Part]:
    """Yield the parts in order; a plot is preceded by its window's verdict unless that was already shown."""
    shown: set[tuple[WindowKey, ViewState]] = set()
    with_operators = 0
    notes = [item.note for item in items if item.note is not None]
    for item in items:
        if item.note is not None:
            yield remark(item.note, notes)
        if item.kind == "comparison":
            yield _compared(item, look)
        if item.window is None:
            continue
        asked, _ = parse_query(item.view)
        try:
            evidence = look(item.window, asked)
        except (WindowError, WindowNotFoundError) as error:
            yield Missing(f"{item.window}: {error}")
            continue
        view, _ = asked.fitted(evidence.window)
        window = evidence.window.of_group(view.group)
        measures = measure(window, evidence.diagnosis.baseline, evidence.diagnosis.reference)
        measures = measures.in_run(evidence.run_waits)
        if item.kind == "window" or (item.window, view.judging) not in shown:
            shown.add((item.window, view.judging))
            names = report_names(WindowInput) if item.kind == "window" else ()
            plots = window_plots(names, measures, evidence.diagnosis, view, notes)
            straggling: Sequence[ReportPlot] | Missing = ()
            if names and evidence.has_operators:
                with_operators += measures.ranks
                if with_operators <= max(RANKS_IN_FULL, measures.ranks):
                    straggling = _straggler_plots(
                        report_names(FindingsInput), item.window, evidence, view, notes
                    )
                else:
                    straggling = Missing(f"{item.window}: {LEFT_OUT}")
            shown_plots = [*plots, *(() if isinstance(straggling, Missing) else straggling)]
            yield _section(evidence, view, what_if_line(evidence, measures, asked.fix), shown_plots)
            if isinstance(straggling, Missing):
                yield straggling
        if item.plot is not None and item.kind == "plot":
            yield _collected(item.plot, item.window, evidence, measures, view, notes)


def _collected(
    name: str,
    key: WindowKey,
    evidence: WindowEvidence,
    measures: Measures,
    view: ViewState,
    notes: Sequence[Note],
) -> CollectedPlot | Missing:
    """Return a plot that was collected by itself."""
    spec = PLOTS.get(name)
    if spec is not None and spec.source is WindowInput:
        (plot,) = window_plots((name,), measures, evidence.diagnosis, view, notes)
    elif spec is not None and spec.source is FindingsInput:
        plots = _straggler_plots((name,), key, evidence, view, notes)
        if isinstance(plots, Missing):
            return plots
        (plot,) = plots
    else:
        return Missing(f"{key}: unknown plot {name!r}")
    return CollectedPlot(key.run_id, key.window, view, words.seen(view), plot)


def _straggler_plots(
    names: Sequence[str], key: WindowKey, evidence: WindowEvidence, view: ViewState, notes: Sequence[Note]
) -> Sequence[ReportPlot] | Missing:
    """Return the plots of a window's operators, or the reason why there are none."""
    if evidence.findings is None:
        return Missing(f"{key}: its operators are not available here")
    try:
        findings = evidence.findings()
    except WindowError as error:
        return Missing(f"{key}: {error}")
    return findings_plots(names, findings, evidence.diagnosis, view, notes)


def _section(evidence: WindowEvidence, view: ViewState, what_if: str, plots: Sequence[ReportPlot]) -> Section:
    window, diagnosis = evidence.window, evidence.diagnosis
    size = words.extent(window)
    if diagnosis.group != "all":
        size += f" · only {diagnosis.group}"
    reference = diagnosis.reference
    return Section(
        run_id=diagnosis.run_id,
        window=diagnosis.window,
        size=size,
        view=view,
        diagnosis=diagnosis,
        verdict=words.verdict(diagnosis, window.ranks),
        plots=tuple(plots),
        packets=evidence.packets,
        gates=gates_moved(diagnosis.gates),
        what_if=what_if,
        frontier=diagnosis.frontier.replace("_", "-"),
        baseline=diagnosis.baseline.replace("_", " "),
        reference="none: this run has no healthy window"
        if reference is None
        else f"{reference.run_id}/{ranges(reference.windows)}",
    )


def _compared(item: Item, look: EvidenceSource) -> ReportComparison | Missing:
    """Return a comparison, or the reason why it cannot be made."""
    state, problems = parse_compare(item.view)
    if not state.is_whole:
        return Missing(" ".join(problems) or "a comparison needs at least two windows")
    try:
        sides = [_side(side, state.view, look) for side in state.sides]
        given = [
            [one.diagnosis for one in found] if key.window is None else found[0].diagnosis
            for key, found in zip(state.sides, sides, strict=True)
        ]
        found = compare(*given)
    except (WindowError, WindowNotFoundError, ComparisonError) as error:
        return Missing(f"{' and '.join(map(str, state.sides))} cannot be compared: {error}")
    columns = comparison_tables.stage_columns(found)
    return ReportComparison(
        state=state,
        sides=tuple(
            ComparedSide(
                key=key,
                first=(side[0].diagnosis.window, side[0].packets),
                packets=tuple(packet for one in side for packet in one.packets),
            )
            for key, side in zip(state.sides, sides, strict=True)
        ),
        title=", ".join(words.side_names(found)),
        text=words.comparison(found),
        plots=comparison_plots(found),
        head=tuple(column.title for column in columns),
        rows=tuple(
            tuple(str(row.get(column.shown, "")) for column in columns)
            for row in comparison_tables.stage_rows(found)
        ),
    )


def _side(key: SideKey, view: ViewState, look: EvidenceSource) -> list[WindowEvidence]:
    """Return the windows of one side: the named window, or all windows of a run."""
    if key.window is not None:
        return [look(WindowKey(key.run_id, key.window), view)]
    numbers = look.windows(key.run_id)
    if not numbers:
        raise WindowNotFoundError(f"there is no run {key.run_id!r} among the packets given")
    return [look(WindowKey(key.run_id, number), view) for number in numbers]


def remark(note: Note, notes: Sequence[Note]) -> Remark:
    """Return a note in words, with its number among the notes on its window."""
    here = [] if note.pin is None else [one.id for one in notes_on(note.pin.window, notes)]
    return Remark(
        number=here.index(note.id) + 1 if note.id in here else None,
        text=note.text,
        pinned="" if note.pin is None else words.pinned(note.pin),
        signed=words.signed(note.written)
        + (f"; last edit {words.signed(note.changed)}" if note.changed else ""),
        overwritten=tuple(overwritten(one) for one in note.overwritten),
    )


def overwritten(lost: Overwritten) -> str:
    """Return a conflicting edit in words."""
    return f"{lost.field}, by {words.signed(lost.stamp)}: {lost.value}"


def gates_moved(gates: Gates) -> tuple[str, ...]:
    """Return ``τC 0.9 (default 0.8)`` for every gate that differs from its default."""
    default = Gates()
    return tuple(
        f"{GATE_BY_NAME[name].symbol if name in GATE_BY_NAME else name} {value} "
        f"(default {getattr(default, name)})"
        for name, value in gates.changed().items()
    )
