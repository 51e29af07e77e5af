"""The evidence of an incident's item, loaded when it is shown, because packets may have changed since."""

from __future__ import annotations

from dataclasses import dataclass

from sfapp.errors import SfappError
from sfapp.model.incidents import Item
from sfapp.model.sides import parse_compare
from sfapp.model.view import ViewState, parse_query
from sfapp.operators import Findings
from sfapp.service.compare import compare_sides
from sfapp.service.judging import JudgedWindow
from sfapp.service.missing_rows import missing_rows_note
from sfapp.service.workspace import Workspace
from sfapp.views import text
from sfapp.views.plot_registry import PLOTS, FindingsInput


@dataclass(frozen=True, slots=True)
class ViewEvidence:
    """A window judged under the item's view.

    Attributes:
        messages: parts of the view that the window does not support.
        findings: of the operator analysis, for plots that show them.
    """

    judged: JudgedWindow
    view: ViewState
    messages: tuple[str, ...]
    findings: Findings | None = None


@dataclass(frozen=True, slots=True)
class ComparisonEvidence:
    """A comparison: its sides, its result in a sentence and its page."""

    sides: str
    summary: str
    href: str


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """Evidence that cannot be shown, with the reason."""

    reason: str


ItemEvidence = ViewEvidence | ComparisonEvidence | MissingEvidence


def evidence_of(workspace: Workspace, item: Item) -> ItemEvidence:
    """Return the evidence of an item other than a note. Blocking."""
    try:
        if item.kind == "comparison":
            return _comparison_evidence(workspace, item)
        return _view_evidence(workspace, item)
    except SfappError as error:
        return MissingEvidence(str(error))


def _view_evidence(workspace: Workspace, item: Item) -> ItemEvidence:
    assert item.window is not None
    spec = PLOTS.get(item.plot or "")
    if item.kind == "plot" and spec not in PLOTS.of_windows:
        return MissingEvidence(f"this version of sfapp has no plot {item.plot!r}")
    source = workspace.source(item.window)
    view, _ = parse_query(item.view)
    window = workspace.window(source)
    view, messages = view.fitted(window)
    if note := missing_rows_note(workspace.store_of(item.window.run_id), window):
        messages.insert(0, note)
    judged = workspace.judge(source, view)
    if spec is None or spec.source is not FindingsInput:
        return ViewEvidence(judged, view, tuple(messages))
    examined = workspace.examine(judged).result()
    return ViewEvidence(judged, view, (*messages, *examined.notes), examined.or_raise())


def _comparison_evidence(workspace: Workspace, item: Item) -> ItemEvidence:
    state, messages = parse_compare(item.view)
    if not state.is_whole:
        return MissingEvidence(" ".join(messages) or "it does not name two windows to compare")
    summary = text.comparison(compare_sides(workspace, state))
    sentence = " · ".join(part for part in (summary.headline, summary.rest) if part)
    return ComparisonEvidence(summary.kicker, sentence, state.href())
