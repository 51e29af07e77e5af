"""A report as a notebook that computes everything again from the packets.

What people and files wrote gets into code only as literals, and into text only escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sfapp.model.sides import SideKey
from sfapp.model.view import ViewState
from sfapp.report.captions import caption
from sfapp.report.document import Compared, ComparedSide, Part, Remark, Report, Section, Shown
from sfapp.report.markdown import lines, shown, table
from sfapp.report.plots import ReportPlot

Cell = Mapping[str, Any]

_OPENING = """\
import sfapp

PACKETS = "packets"  # the folder that holds the packets of this report

packets = sfapp.open(PACKETS)
runs = {}  # what a run is called here: a redacted report calls it by another name
packets"""


def to_notebook(report: Report) -> str:
    """Return the notebook without outputs; running it computes them from the packets at hand."""
    document = {
        "cells": [{"id": f"cell-{place}", **cell} for place, cell in enumerate(_cells(report), 1)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _text(*blocks: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": "\n\n".join(filter(None, blocks))}


def _code(source: str) -> Cell:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
    }


def _cells(report: Report) -> Iterator[Cell]:
    facts = table(("", ""), report.facts) if report.facts else ""
    yield _text(
        f"# {shown(report.title)}",
        facts,
        lines(report.summary),
        f"Made by sfapp {shown(report.version)}. Everything below is computed again from the packets: say "
        "where they are, and run all cells. What the report said stands above each window.",
    )
    yield _code(_OPENING)
    names = {_told(section): f"window_{number}" for number, section in enumerate(report.of(Section), 1)}
    for part in report.parts:
        yield from _part(part, names)
    yield _text("## Reproduce", "The same report from the same packets:")
    yield _code(f"command = {report.command!r}\ncommand")


def _told(part: Section | Shown) -> tuple[str, int, ViewState]:
    """What tells one judged window from another."""
    return part.run_id, part.window, part.view.judging


def _part(part: Part, names: Mapping[tuple[str, int, ViewState], str]) -> Iterator[Cell]:
    if isinstance(part, Section):
        yield from _window(part, names[_told(part)])
    elif isinstance(part, Shown):
        seen = f" · {part.seen}" if part.seen else ""
        yield _text(f"## {shown(f'{part.run_id} · window {part.window}{seen}')}")
        yield from _plot(part.plot, part.view, names[_told(part)])
    elif isinstance(part, Compared):
        yield from _compared(part)
    elif isinstance(part, Remark):
        yield _text(*_note(part))
    else:
        yield _text(shown(part.said))


def _note(remark: Remark) -> Iterator[str]:
    if remark.pinned:
        yield f"**{shown(remark.heading)}**"
    yield lines(remark.text)
    for lost in remark.overwritten:
        yield f"Written at the same time: {lines(lost)}"
    yield f"— {shown(remark.signed)}"


def _window(section: Section, name: str) -> Iterator[Cell]:
    verdict = section.verdict
    yield _text(
        f"## {shown(f'{section.run_id} · window {section.window} · {section.size}')}",
        f"The report said: **{shown(verdict.headline)}** {shown(verdict.place)}",
        f"Not known: {shown(' '.join(verdict.unknown))}" if verdict.unknown else "",
    )
    yield _code(_opened(section, name))
    for plot in section.plots:
        # The window shows its card and its frontier by itself.
        if plot.name != "frontier_steps" or _seen(plot, section.view):
            yield from _plot(plot, section.view, name)


def _compared(part: Compared) -> Iterator[Cell]:
    """The comparison made again; the packets of each side are found as those of a window are."""
    said = part.said
    yield _text(f"## {shown(part.title)}", f"The report said: **{shown(said.headline)}** {shown(said.rest)}")
    found = "".join(_side_found(side) for side in part.sides)
    sides = "".join(f"    {_side(side.key)},\n" for side in part.sides)
    asked = "".join(f"    {name}={value},\n" for name, value in _asked(part.state.view))
    yield _code(f"{found}comparison = packets.compare(\n{sides}{asked})\ncomparison")
    for plot in part.plots:
        yield _text(f"### {shown(caption(plot).title)}", shown(plot.hint))
        yield _code(f"comparison.plot({plot.name!r})")


def _side_found(side: ComparedSide) -> str:
    """Find the run by the packets of the side's first window."""
    number, packets = side.first
    hashes = "".join(f"    {packet.sha256!r},\n" for packet in packets)
    run = repr(side.key.run_id)
    return f"runs[{run}], _ = packets.find((\n{hashes}), {run}, {number})\n"


def _side(side: SideKey) -> str:
    run = f"runs[{side.run_id!r}]"
    return run if side.window is None else f"({run}, {side.window})"


def _opened(section: Section, name: str) -> str:
    """Find the window by its packets, judge it as the report did, show it."""
    run = repr(section.run_id)
    hashes = "".join(f"    {packet.sha256!r},\n" for packet in section.packets)
    asked = [f"    {name}={value},\n" for name, value in _judging(section)]
    return (
        f"runs[{run}], number = packets.find((\n{hashes}), {run}, {section.window})\n"
        f"{name} = packets.window(\n    runs[{run}],\n    number,\n{''.join(asked)})\n{name}"
    )


def _judging(section: Section) -> Iterator[tuple[str, str]]:
    """What is not as it is by default, as Python."""
    yield from _asked(section.view)
    reference = section.diagnosis.reference
    if reference is not None:
        run = repr(reference.run_id)
        yield "reference", f"(runs.get({run}, {run}), {reference.window})"


def _asked(view: ViewState) -> Iterator[tuple[str, str]]:
    """How a view judges, where that is not as it is by default, as Python."""
    default = ViewState()
    moved = view.gates.changed()
    if moved:
        yield (
            "gates",
            f"sfapp.Gates({', '.join(f'{name}={value!r}' for name, value in moved.items())})",
        )
    for name in ("frontier", "baseline", "group"):
        if getattr(view, name) != getattr(default, name):
            yield name, repr(getattr(view, name))


def _plot(plot: ReportPlot, view: ViewState, window: str) -> Iterator[Cell]:
    said = caption(plot)
    yield _text(f"### {shown(said.title)}", shown(plot.hint))
    asked = "".join(f", {name}={value!r}" for name, value in _seen(plot, view).items())
    yield _code(f"{window}.plot({plot.name!r}{asked})")


def _seen(plot: ReportPlot, view: ViewState) -> Mapping[str, Any]:
    """What of a view a plot depends on, where it is not as it is by default."""
    default = ViewState()
    names = ("step", "ranks", "stage", "quantity", "cause", "operator")
    asked = {name: getattr(view, name) for name in names if getattr(view, name) != getattr(default, name)}
    if view.node is not None:
        asked["tab"] = view.tab
    zoom = tuple(str(zoom) for zoom in view.zoom_of(plot.name))
    return asked | ({"zoom": zoom} if zoom else {})
