"""What a report says, before it has a format: plain data, the same for every one."""

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
from sfapp.service.evidence import EvidenceFile, EvidenceSource, WindowEvidence
from sfapp.views import comparison_tables
from sfapp.views import text as words
from sfapp.views.plot_registry import PLOTS, FindingsInput, WindowInput


@dataclass(frozen=True, slots=True)
class Section:
    """One window: its verdict, its plots, where its numbers come from.

    Attributes:
        size: ``40 steps 160–199 · 8 ranks on 2 nodes``.
        view: how it was looked at.
        gates: how each gate differs from its default, in words; empty where none does.
        plots: none where only some plots of it were collected, which then follow.
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
    frontier: str
    baseline: str
    reference: str


@dataclass(frozen=True, slots=True)
class Shown:
    """One plot in the view in which it was added.

    Attributes:
        seen: what was picked out: ``step 161 · rank 3``; empty where nothing was.
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
        first: its first window, with the files of that one.
        packets: of all its windows.
    """

    key: SideKey
    first: tuple[int, tuple[EvidenceFile, ...]]
    packets: tuple[EvidenceFile, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """Two or three windows, or whole runs, side by side.

    Attributes:
        state: what is compared, and how it is judged.
        title: the sides: ``A · window 12, B · window 13``.
        head, rows: the table of stages, as texts; its columns add up as printed.
    """

    state: CompareState
    sides: tuple[ComparedSide, ...]
    title: str
    said: words.ComparisonWords
    plots: tuple[ReportPlot, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def packets(self) -> tuple[EvidenceFile, ...]:
        """Of all sides."""
        return tuple(dict.fromkeys(packet for side in self.sides for packet in side.packets))


@dataclass(frozen=True, slots=True)
class Remark:
    """A note.

    Attributes:
        number: what it is marked with on the plots of its window; None for a free note.
        pinned: what it is about: ``run / 13 · step 161 · rank 3``; empty for a free note.
        signed: ``Ada, 2026-11-21 09:14 UTC``.
        overwritten: what others wrote at the same time, each with its author.
    """

    number: int | None
    text: str
    pinned: str
    signed: str
    overwritten: tuple[str, ...]

    @property
    def heading(self) -> str:
        """What it is about, with its number: ``1 · run / 13 · step 161``."""
        return self.pinned if self.number is None else f"{self.number} · {self.pinned}"


@dataclass(frozen=True, slots=True)
class Missing:
    """Evidence whose packets are not there, or do not have what is asked for."""

    said: str


Part = Section | Shown | Compared | Remark | Missing
Kind = TypeVar("Kind", Section, Shown, Compared, Remark, Missing)


@dataclass(frozen=True, slots=True)
class Report:
    """An incident as it is told.

    Attributes:
        facts: severity, status and who opened it, as names and values; empty where no incident was opened.
        parts: in order.
        command: reproduces the report from the packets.
        version: of sfapp.
    """

    title: str
    summary: str
    facts: tuple[tuple[str, str], ...]
    parts: tuple[Part, ...]
    command: str
    version: str

    def of(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """The parts of one kind."""
        return tuple(part for part in self.parts if isinstance(part, kind))

    @property
    def plots(self) -> tuple[ReportPlot, ...]:
        """Every plot in order."""
        return tuple(plot for part in self.parts for plot in plots_of(part))


def plots_of(part: Part) -> tuple[ReportPlot, ...]:
    """The plots of one part."""
    if isinstance(part, Section | Compared):
        return part.plots
    return (part.plot,) if isinstance(part, Shown) else ()


def document(
    incident: Incident, look: EvidenceSource, *, command: str, version: str, opened: bool = True
) -> Report:
    """The report on an incident.

    Args:
        look: finds windows and judges them.
        opened: False where the incident was sketched for the report: it has no severity or status.
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
    """Items in order; a plot whose window was not told yet brings the window's verdict along."""
    told: set[tuple[WindowKey, ViewState]] = set()
    with_operators = 0
    notes = [item.note for item in items if item.note is not None]
    for item in items:
        if item.note is not None:
            yield remark(item.note, notes)
        if item.kind == "comparison":
            yield _compared(item, look)
        if item.window is None:
            continue
        view, _ = parse_query(item.view)
        try:
            evidence = look(item.window, view)
        except (WindowError, WindowNotFoundError) as error:
            yield Missing(f"{item.window}: {error}")
            continue
        view, _ = view.fitted(evidence.window)
        window = evidence.window.of_group(view.group)
        measures = measure(window, evidence.diagnosis.baseline, evidence.diagnosis.reference)
        measures = measures.in_run(evidence.run_waits)
        if item.kind == "window" or (item.window, view.judging) not in told:
            told.add((item.window, view.judging))
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
            yield _section(evidence, view, [*plots, *(() if isinstance(straggling, Missing) else straggling)])
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
) -> Shown | Missing:
    """A plot that was collected by itself."""
    spec = PLOTS.get(name)
    if spec is not None and spec.source is WindowInput:
        (plot,) = window_plots((name,), measures, evidence.diagnosis, view, notes)
    elif spec is not None and spec.source is FindingsInput:
        plots = _straggler_plots((name,), key, evidence, view, notes)
        if isinstance(plots, Missing):
            return plots
        (plot,) = plots
    else:
        return Missing(f"{key}: this sfapp knows no plot called {name!r}")
    return Shown(key.run_id, key.window, view, words.seen(view), plot)


def _straggler_plots(
    names: Sequence[str], key: WindowKey, evidence: WindowEvidence, view: ViewState, notes: Sequence[Note]
) -> Sequence[ReportPlot] | Missing:
    """Plots of what KAIR finds in a window, or what keeps it from being found."""
    if evidence.findings is None:
        return Missing(f"{key}: its operators cannot be looked at from here")
    try:
        findings = evidence.findings()
    except WindowError as error:
        return Missing(f"{key}: {error}")
    return findings_plots(names, findings, evidence.diagnosis, view, notes)


def _section(evidence: WindowEvidence, view: ViewState, plots: Sequence[ReportPlot]) -> Section:
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
        frontier=diagnosis.frontier.replace("_", "-"),
        baseline=diagnosis.baseline.replace("_", " "),
        reference="none: this run has no healthy window"
        if reference is None
        else f"{reference.run_id}/{reference.window}",
    )


def _compared(item: Item, look: EvidenceSource) -> Compared | Missing:
    """A comparison; what keeps it from being made where it cannot be."""
    state, told = parse_compare(item.view)
    if not state.is_whole:
        return Missing(" ".join(told) or "a comparison that names no two windows")
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
    return Compared(
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
        said=words.comparison(found),
        plots=comparison_plots(found),
        head=tuple(column.title for column in columns),
        rows=tuple(
            tuple(str(row.get(column.shown, "")) for column in columns)
            for row in comparison_tables.stage_rows(found)
        ),
    )


def _side(key: SideKey, view: ViewState, look: EvidenceSource) -> list[WindowEvidence]:
    """The windows of one side: the one that is named, or all of a run."""
    if key.window is not None:
        return [look(WindowKey(key.run_id, key.window), view)]
    numbers = look.windows(key.run_id)
    if not numbers:
        raise WindowNotFoundError(f"there is no run {key.run_id!r} among the packets given")
    return [look(WindowKey(key.run_id, number), view) for number in numbers]


def remark(note: Note, notes: Sequence[Note]) -> Remark:
    """A note in words, with its number among all the notes on its window."""
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
    """Return a value that a concurrent edit replaced."""
    return f"{lost.field}, by {words.signed(lost.stamp)}: {lost.value}"


def gates_moved(gates: Gates) -> tuple[str, ...]:
    """``τC 0.9 (default 0.8)`` for every gate that was moved."""
    default = Gates()
    return tuple(
        f"{GATE_BY_NAME[name].symbol if name in GATE_BY_NAME else name} {value} "
        f"(default {getattr(default, name)})"
        for name, value in gates.changed().items()
    )
