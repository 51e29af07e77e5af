"""Write a report as a notebook that recomputes everything from the packets.

Text from users and files enters code only as literals, and Markdown only escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sfapp.model.sides import SideKey
from sfapp.model.view import ViewState
from sfapp.report.captions import caption
from sfapp.report.markdown import lines, shown, table
from sfapp.report.parts import CollectedPlot, ComparedSide, Part, Remark, Report, ReportComparison, Section
from sfapp.report.plots import ReportPlot

Cell = Mapping[str, Any]

_BEGINS_MATHEMATICS = re.compile(r"\\[\\$]")
"""An escaped backslash or dollar sign."""

_OPENING = """\
import sfapp

PACKETS = "packets"  # the folder that holds the packets of this report

packets = sfapp.open(PACKETS)
runs = {}  # name of each run in these packets; a redacted report uses pseudonyms
packets"""


def to_notebook(report: Report) -> str:
    """Return the notebook without outputs: running it shows the numbers of the given packets."""
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
    """Return a cell of escaped Markdown.

    Notebooks look for mathematics in the page, where no escape is left, but not across elements: so what
    begins mathematics is put into an element of its own.
    """
    source = _BEGINS_MATHEMATICS.sub(r"<span>\g<0></span>", "\n\n".join(filter(None, blocks)))
    return {"cell_type": "markdown", "metadata": {}, "source": source}


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
        f"Created by sfapp {shown(report.version)}. Everything below is recomputed from the packets: set "
        "their folder and run all cells. The verdict of the report stands above each window.",
    )
    yield _code(_OPENING)
    names = {_judged_key(section): f"window_{number}" for number, section in enumerate(report.of(Section), 1)}
    for part in report.parts:
        yield from _part(part, names)
    yield _text("## Reproduce", "This command creates the same report from the same packets:")
    yield _code(f"command = {report.command!r}\ncommand")


def _judged_key(part: Section | CollectedPlot) -> tuple[str, int, ViewState]:
    """Return the key of a judged window."""
    return part.run_id, part.window, part.view.judging


def _part(part: Part, names: Mapping[tuple[str, int, ViewState], str]) -> Iterator[Cell]:
    if isinstance(part, Section):
        yield from _window(part, names[_judged_key(part)])
    elif isinstance(part, CollectedPlot):
        seen = f" · {part.seen}" if part.seen else ""
        yield _text(f"## {shown(f'{part.run_id} · window {part.window}{seen}')}")
        yield from _plot(part.plot, part.view, names[_judged_key(part)])
    elif isinstance(part, ReportComparison):
        yield from _compared(part)
    elif isinstance(part, Remark):
        yield _text(*_note(part))
    else:
        yield _text(shown(part.reason))


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
        f"Verdict in the report: **{shown(verdict.headline)}** {shown(verdict.place)}",
        f"What if: {shown(section.what_if)}" if section.what_if else "",
        f"Not known: {shown(' '.join(verdict.unknown))}" if verdict.unknown else "",
    )
    yield _code(_opened(section, name))
    for plot in section.plots:
        # Displaying the window already shows its card and its frontier.
        if plot.name != "frontier_steps" or _seen(plot, section.view):
            yield from _plot(plot, section.view, name)


def _compared(part: ReportComparison) -> Iterator[Cell]:
    """Yield cells that repeat the comparison; the packets of each side are found by hash."""
    text = part.text
    yield _text(
        f"## {shown(part.title)}", f"Verdict in the report: **{shown(text.headline)}** {shown(text.rest)}"
    )
    found = "".join(_side_found(side) for side in part.sides)
    sides = "".join(f"    {_side(side.key)},\n" for side in part.sides)
    arguments = "".join(f"    {name}={value},\n" for name, value in _settings(part.state.view))
    yield _code(f"{found}comparison = packets.compare(\n{sides}{arguments})\ncomparison")
    for plot in part.plots:
        yield _text(f"### {shown(caption(plot).title)}", shown(plot.hint))
        yield _code(f"comparison.plot({plot.name!r})")


def _side_found(side: ComparedSide) -> str:
    """Return code that finds the run by the packets of the side's first window."""
    number, packets = side.first
    hashes = "".join(f"    {packet.sha256!r},\n" for packet in packets)
    run = repr(side.key.run_id)
    return f"runs[{run}], _ = packets.find((\n{hashes}), {run}, {number})\n"


def _side(side: SideKey) -> str:
    run = f"runs[{side.run_id!r}]"
    return run if side.window is None else f"({run}, {side.window})"


def _opened(section: Section, name: str) -> str:
    """Return code that finds the window by its packets, judges it as in the report and shows it."""
    run = repr(section.run_id)
    hashes = "".join(f"    {packet.sha256!r},\n" for packet in section.packets)
    arguments = [f"    {name}={value},\n" for name, value in _judging(section)]
    return (
        f"runs[{run}], number = packets.find((\n{hashes}), {run}, {section.window})\n"
        f"{name} = packets.window(\n    runs[{run}],\n    number,\n{''.join(arguments)})\n{name}"
    )


def _judging(section: Section) -> Iterator[tuple[str, str]]:
    """Yield the arguments that differ from their defaults, as Python."""
    yield from _settings(section.view)
    reference = section.view.reference
    if reference is not None:
        run = repr(reference.run_id)
        yield "reference", f"(runs.get({run}, {run}), {reference.window})"


def _settings(view: ViewState) -> Iterator[tuple[str, str]]:
    """Yield the settings of a view that differ from their defaults, as Python."""
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
    words = caption(plot)
    yield _text(f"### {shown(words.title)}", shown(plot.hint))
    arguments = "".join(f", {name}={value!r}" for name, value in _seen(plot, view).items())
    yield _code(f"{window}.plot({plot.name!r}{arguments})")


def _seen(plot: ReportPlot, view: ViewState) -> Mapping[str, Any]:
    """Return the settings of a view that a plot depends on and that differ from their defaults."""
    default = ViewState()
    names = ("step", "ranks", "stage", "quantity", "cause", "operator", "axes")
    arguments = {name: getattr(view, name) for name in names if getattr(view, name) != getattr(default, name)}
    if view.node is not None:
        arguments["tab"] = view.tab
    zoom = tuple(str(zoom) for zoom in view.zoom_of(plot.name))
    return arguments | ({"zoom": zoom} if zoom else {})
