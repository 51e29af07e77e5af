"""Show the tabs of a window page, one per node where there are few, and the step chooser."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from nicegui import events, ui

from sfapp.app.theme import box, label_text, with_keys
from sfapp.model import Window
from sfapp.model.view import NOTES, TABS, ViewState
from sfapp.views import format

NODE_TABS = 16
"""More nodes than this share one tab with a search field."""

NODES = "nodes"
"""Name of the shared tab of many nodes."""


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
        with box("tab-row"):
            self._tabs = self._build_tabs()
            self._build_steps()
            self.actions = box("tab-beside")

    def show(self, view: ViewState, marked: Set[int], aimed_node: int | None) -> None:
        """Mark the open tab, the step and the nodes that hold a straggler.

        Args:
            marked: nodes to mark with ▲.
            aimed_node: the node that the shared tab opens with.
        """
        self._shown = view
        self._aimed_node = self._nodes[0] if aimed_node is None else aimed_node
        self._tabs.value = self._name(view)
        self._step.text = "window mean" if view.step is None else f"step {view.step}"
        for node, tab in self._node_tabs.items():
            tab.props["label"] = f"Node {node} ▲" if node in marked else f"Node {node}"

    def count_notes(self, number: int) -> None:
        """Show the number of notes on their tab."""
        self._notes.props["label"] = f"Notes {number}" if number else "Notes"

    def _build_tabs(self) -> ui.tabs:
        with ui.tabs(on_change=self._picked).props(
            "dense no-caps inline-label align=left outside-arrows mobile-arrows"
        ) as tabs:
            for name in TABS[:3]:
                ui.tab(name, name.capitalize())
            if self.many_nodes:
                ui.tab(NODES, format.counted(len(self._nodes), "node"))
            else:
                self._node_tabs = {node: ui.tab(f"node:{node}", f"Node {node}") for node in self._nodes}
            named = {name: ui.tab(name, name.capitalize()) for name in TABS[3:]}
            self._notes = named[NOTES]
        for place, tab in enumerate(list(self._node_tabs.values())[:9], start=1):
            with_keys(tab, str(place))
        with_keys(next(iter(tabs.descendants())), "o")
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

    def _name(self, view: ViewState) -> str:
        """Return the name of the open tab: a node's own, or the shared one."""
        return NODES if view.node is not None and self.many_nodes else view.tab

    def _picked(self, event: events.ValueChangeEventArguments[Any]) -> Any:
        if event.value in (None, self._name(self._shown)):
            return None
        return self._change(tab=f"node:{self._aimed_node}" if event.value == NODES else event.value)
