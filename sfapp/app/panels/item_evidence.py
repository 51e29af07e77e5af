"""What an item of an incident shows, looked up when it is opened: the packets may be gone meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from sfapp.errors import SfappError
from sfapp.model.incidents import Item
from sfapp.model.sides import parse_compare
from sfapp.model.view import ViewState, parse_query
from sfapp.operators import Findings
from sfapp.service.compare import compare_sides
from sfapp.service.judging import JudgedWindow
from sfapp.service.workspace import Workspace
from sfapp.views import text
from sfapp.views.plot_registry import PLOTS, FindingsInput


@dataclass(frozen=True, slots=True)
class ViewEvidence:
    """A window judged as it was looked at.

    Attributes:
        told: what of the view the window does not have.
        findings: what its operators say, where the plot is about that.
    """

    judged: JudgedWindow
    view: ViewState
    told: tuple[str, ...]
    findings: Findings | None = None


@dataclass(frozen=True, slots=True)
class ComparisonEvidence:
    """A comparison in a sentence, and its page."""

    between: str
    said: str
    href: str


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """Evidence that cannot be shown: why, in words."""

    why: str


Evidence = ViewEvidence | ComparisonEvidence | MissingEvidence


def evidence_of(workspace: Workspace, item: Item) -> Evidence:
    """What an item shows now; a note brings its own words. Blocking."""
    try:
        if item.kind == "comparison":
            return _compared(workspace, item)
        return _looked(workspace, item)
    except SfappError as error:
        return MissingEvidence(str(error))


def _looked(workspace: Workspace, item: Item) -> Evidence:
    assert item.window is not None
    spec = PLOTS.get(item.plot or "")
    if item.kind == "plot" and spec not in PLOTS.of_windows:
        return MissingEvidence(f"this sfapp knows no plot called {item.plot!r}")
    source = workspace.source(item.window)
    view, _ = parse_query(item.view)
    view, told = view.fitted(workspace.window(source))
    judged = workspace.judge(source, view)
    if spec is None or spec.source is not FindingsInput:
        return ViewEvidence(judged, view, tuple(told))
    examined = workspace.examine(judged).result()
    return ViewEvidence(judged, view, (*told, *examined.notes), examined.or_raise())


def _compared(workspace: Workspace, item: Item) -> Evidence:
    state, told = parse_compare(item.view)
    if not state.is_whole:
        return MissingEvidence(" ".join(told) or "it names no two windows to compare")
    said = text.comparison(compare_sides(workspace, state))
    sentence = " · ".join(part for part in (said.headline, said.rest) if part)
    return ComparisonEvidence(said.kicker, sentence, state.href())
