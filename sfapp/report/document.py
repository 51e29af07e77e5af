"""Build the content of a report as plain data, independent of its format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from sfapp.accounting import Measures, compare
from sfapp.errors import ComparisonError, WindowError, WindowNotFoundError
from sfapp.model import Diagnosis
from sfapp.model.gates import GATE_BY_NAME, Gates
from sfapp.model.incidents import Incident, Item, Note, Overwritten
from sfapp.model.problems import Problem
from sfapp.model.sides import SideKey, parse_compare
from sfapp.model.view import ViewState, WindowKey, parse_query
from sfapp.report.parts import (
    CollectedPlot,
    ComparedSide,
    Missing,
    Part,
    Remark,
    Report,
    ReportComparison,
    Section,
)
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
from sfapp.service.window_evidence import EvidenceSource, WindowEvidence
from sfapp.views import comparison_tables
from sfapp.views import text as words
from sfapp.views.format import counted, ranges
from sfapp.views.plot_registry import PLOTS, FindingsInput, WindowInput
from sfapp.views.text.stacks import stacks_text

MOST_ITEMS = 1_000
"""Items in a report. Many of them may show one note: an imported file of 37 MB made a report of 4 GB."""


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
    with_stacks: set[str] = set()
    kept = items[:MOST_ITEMS]
    notes = [item.note for item in kept if item.note is not None]
    numbers = _numbers(notes)
    for item in kept:
        if item.note is not None:
            yield remark(item.note, numbers.get(item.note.id))
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
        measures = evidence.measures()
        if item.kind == "window" or (item.window, view.judging) not in shown:
            shown.add((item.window, view.judging))
            given = WindowInput(measures, evidence.diagnosis, view)
            names = report_names(WindowInput, given) if item.kind == "window" else ()
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
            every = [*plots, *(() if isinstance(straggling, Missing) else straggling)]
            predicted = what_if_line(evidence, measures, asked.fix)
            yield _section(evidence, view, predicted, every, look.problems(item.window))
            if isinstance(straggling, Missing):
                yield straggling
            if item.window.run_id not in with_stacks:
                with_stacks.add(item.window.run_id)
                yield from _stacks(item.window.run_id, evidence)
        if item.plot is not None and item.kind == "plot":
            yield _collected(item.plot, item.window, evidence, measures, view, notes)
    if len(items) > len(kept):
        left = f"{len(items) - len(kept):,} of {len(items):,} items"
        yield Missing(f"{left} are left out: a report shows {MOST_ITEMS:,}")


def _collected(
    name: str,
    key: WindowKey,
    evidence: WindowEvidence,
    measures: Measures,
    view: ViewState,
    notes: Sequence[Note],
) -> CollectedPlot | Missing:
    """Return a plot that was collected alone."""
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


def _section(
    evidence: WindowEvidence,
    view: ViewState,
    what_if: str,
    plots: Sequence[ReportPlot],
    problems: Sequence[Problem],
) -> Section:
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
        verdict=words.verdict(diagnosis, window.ranks, evidence.missing_rows),
        plots=tuple(plots),
        packets=evidence.packets,
        gates=gates_moved(diagnosis.gates),
        what_if=what_if,
        frontier=diagnosis.frontier.replace("_", "-"),
        baseline=diagnosis.baseline.replace("_", " "),
        reference="none: this run has no complete healthy window after its first"
        if reference is None
        else f"{reference.run_id}/{ranges(reference.windows)}",
        problems=tuple(problems),
    )


def _compared(item: Item, look: EvidenceSource) -> ReportComparison | Missing:
    """Return a comparison, or the reason why it cannot be made."""
    state, problems = parse_compare(item.view)
    if not state.is_whole:
        return Missing(" ".join(problems) or "a comparison needs at least two windows")
    try:
        sides = [_side(side, state.view, look) for side in state.sides]
        given = [
            [_compared_verdict(one) for one in found] if key.window is None else _compared_verdict(found[0])
            for key, found in zip(state.sides, sides, strict=True)
        ]
        found = compare(*given)
        if any(one.missing_rows and one.on_all_rows is None for side in sides for one in side):
            found = found.of_kept_rows()
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


def _compared_verdict(evidence: WindowEvidence) -> Diagnosis:
    """Return the verdict that is compared: on all rows if it is known, as on other surfaces."""
    return evidence.on_all_rows or evidence.diagnosis


def _side(key: SideKey, view: ViewState, look: EvidenceSource) -> list[WindowEvidence]:
    """Return the windows of one side: the named window, or all windows of a run."""
    if key.window is not None:
        return [look(WindowKey(key.run_id, key.window), view)]
    numbers = look.windows(key.run_id)
    if not numbers:
        raise WindowNotFoundError(f"there is no run {key.run_id!r} among the packets given")
    return [look(WindowKey(key.run_id, number), view) for number in numbers]


def _stacks(run_id: str, evidence: WindowEvidence) -> Iterator[Remark]:
    """Yield the newest stacks of a run's ranks, if there are any."""
    found = None if evidence.stacks is None else evidence.stacks()
    if found is not None:
        yield Remark(
            number=None,
            text=stacks_text(found.merged, found.missing, found.title),
            pinned=f"{run_id} · stacks of {counted(len(found.stacks), 'rank')}",
            signed=found.state.request.asked_by or "sfapp",
            overwritten=(),
        )


def _numbers(notes: Iterable[Note]) -> dict[str, int]:
    """Return the number of each pinned note among the notes on its window, by its id."""
    counts: Counter[WindowKey] = Counter()
    found: dict[str, int] = {}
    for note in notes:
        if note.pin is not None:
            counts[note.pin.window] += 1
            found.setdefault(note.id, counts[note.pin.window])
    return found


def remark(note: Note, number: int | None) -> Remark:
    """Return a note in words, with its number among the notes on its window."""
    return Remark(
        number=number,
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
