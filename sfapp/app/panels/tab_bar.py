"""Show the tabs of a window page, the nested tabs of nodes and of the analysis, and the step chooser."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from nicegui import events, ui

from sfapp.app.theme import box, label_text, with_keys
from sfapp.model import Window
from sfapp.model.view import NOTES, OVERVIEW, STRAGGLERS, ViewState

NODE_TABS = 16
"""Number of nodes above which they share one tab with a search field."""

NODES = "nodes"
ANALYSIS = "analysis"
"""Names of the tabs that hold other tabs; links use the names of the inner tabs, such as ``node:K`` or
``frontier``."""

ANALYSIS_TABS: Mapping[str, str] = {
    "frontier": "Frontier",
    "ambiguity": "Ambiguity",
    "evidence": "Evidence",
    "rules": "Rules",
}
"""Tabs nested under *Analysis*, by their name in links."""

MAIN_TABS: Mapping[str, str] = {
    OVERVIEW: "Overview",
    "ranks": "Ranks",
    NODES: "Nodes",
    STRAGGLERS: "Operators",
    ANALYSIS: "Analysis",
    NOTES: "Notes",
    "data": "Data",
}

_PROPS = "dense no-caps inline-label align=left outside-arrows mobile-arrows"


class TabBar:
    """The tabs; a click calls ``change``, and ``show`` marks what is open.

    Attributes:
        many_nodes: whether the nodes share one tab.
        actions: the end of the row, for further buttons.
    """

    def __init__(self, window: Window, change: Callable[..., Any], walk: Callable[[int], Any]) -> None:
        """Build inside the current container.

        Args:
            change: takes the fields of ``ViewState`` that differ.
            walk: called with +1 or −1 to move by a step.
        """
        self._change = change
        self._walk = walk
        self._nodes = window.ranks.nodes
        self.many_nodes = len(self._nodes) > NODE_TABS
        self._node_tabs: dict[int, ui.tab] = {}
        self._shown = ViewState()
        self._aimed_node = self._nodes[0]
        self._analysis = next(iter(ANALYSIS_TABS))
        with box("tab-bar"):
            with box("tab-row"):
                self._tabs = self._build_tabs()
                self._build_steps()
                self.actions = box("tab-beside")
            self._nested = {NODES: self._build_nodes(), ANALYSIS: self._build_analysis()}

    def show(self, view: ViewState, marked: Set[int], aimed_node: int | None) -> None:
        """Mark the open tab, the step and the nodes that hold a straggler.

        Args:
            marked: nodes to mark with ▲.
            aimed_node: the node with which the tab of nodes opens.
        """
        self._shown = view
        self._aimed_node = self._nodes[0] if aimed_node is None else aimed_node
        main = _main(view)
        if main == ANALYSIS:
            self._analysis = view.tab
        self._tabs.value = main
        for name, row in self._nested.items():
            if row is not None:
                row.value = view.tab if name == main else None
                row.classes(add="" if name == main else "folded", remove="folded" if name == main else "")
        self._step.text = "window mean" if view.step is None else f"step {view.step}"
        self._main_tabs[NODES].props["label"] = "Nodes ▲" if marked else "Nodes"
        for node, tab in self._node_tabs.items():
            tab.props["label"] = f"Node {node} ▲" if node in marked else f"Node {node}"

    def count_notes(self, number: int) -> None:
        """Show the number of notes on their tab."""
        self._main_tabs[NOTES].props["label"] = f"Notes {number}" if number else "Notes"

    def _build_tabs(self) -> ui.tabs:
        with ui.tabs(on_change=self._picked).props(_PROPS) as tabs:
            self._main_tabs = {name: ui.tab(name, title) for name, title in MAIN_TABS.items()}
        with_keys(self._main_tabs[OVERVIEW], "o")
        return tabs

    def _build_nodes(self) -> ui.tabs | None:
        """Build a tab for each node; many nodes have a chooser on their tab instead."""
        if self.many_nodes:
            return None
        with ui.tabs(on_change=self._picked_nested).props(_PROPS).classes("nested folded") as tabs:
            self._node_tabs = {node: ui.tab(f"node:{node}", f"Node {node}") for node in self._nodes}
        # The keys work while the row is folded: style sheets hide it without removing it from the layout.
        for place, tab in enumerate(list(self._node_tabs.values())[:9], start=1):
            with_keys(tab, str(place))
        return tabs

    def _build_analysis(self) -> ui.tabs:
        with ui.tabs(on_change=self._picked_nested).props(_PROPS).classes("nested folded") as tabs:
            for name, title in ANALYSIS_TABS.items():
                ui.tab(name, title)
        return tabs

    def _build_steps(self) -> None:
        with box("stepper"):
            self._step_button("‹", "[ ArrowLeft", "previous step", -1)
            self._step = label_text("", "button", "plain").mark("step")
            self._step.props["title"] = "Back to the mean of the window"
            self._step.on("click", lambda: self._change(step=None))
            self._step_button("›", "] ArrowRight", "next step", 1)

    def _step_button(self, shown: str, keys: str, label: str, by: int) -> None:
        button = with_keys(label_text(shown, "button", "key"), keys, label).mark(label.replace(" ", "-"))
        button.on("click", lambda: self._walk(by))

    def _picked(self, event: events.ValueChangeEventArguments[Any]) -> Any:
        if event.value in (None, _main(self._shown)):
            return None
        opened = {NODES: f"node:{self._aimed_node}", ANALYSIS: self._analysis}
        return self._change(tab=opened.get(event.value, event.value))

    def _picked_nested(self, event: events.ValueChangeEventArguments[Any]) -> Any:
        return None if event.value in (None, self._shown.tab) else self._change(tab=event.value)


def _main(view: ViewState) -> str:
    """Return the name of the tab in the first row that is, or contains, the open one."""
    if view.node is not None:
        return NODES
    return ANALYSIS if view.tab in ANALYSIS_TABS else view.tab
