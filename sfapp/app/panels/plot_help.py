"""Show how to read each plot: open at first if there is room, behind the info button once dismissed."""

from __future__ import annotations

import json
from collections.abc import Collection

from fastapi import Request
from nicegui import ui

from sfapp.app.theme import READ_COOKIE, box, label_text, with_keys
from sfapp.views import text
from sfapp.views.plot_registry import PLOTS

ALL = "all"
"""Value in the cookie for the help of every plot."""

MIN_OPEN_SPAN = 5
"""Number of columns of the page grid from which a plot's help is open at first."""


class PlotHelp:
    """The help of every plot on one page, without the tips that this browser has dismissed.

    A plot may be on several tabs; dismissing its help on one closes it on all.
    """

    def __init__(self, dismissed: Collection[str]) -> None:
        self._dismissed = set(dismissed)
        self._placed: list[tuple[str, ui.element]] = []

    @classmethod
    def of(cls, request: Request) -> PlotHelp:
        """Return the help, with this browser's dismissed tips."""
        return cls(request.cookies.get(READ_COOKIE, "").split("."))

    def place(self, name: str, head: ui.element, span: int) -> None:
        """Put a plot's help into the current container, and the button for it into the plot's head.

        Plots of one kind share one help, which is dismissed for all of them.

        Args:
            name: of the plot in ``PLOTS``.
            span: width of the plot in columns of the page grid.
        """
        shared = PLOTS[name].help_name
        with head:
            button = with_keys(label_text("i", "button", "info"), label="How to read this plot")
            button.mark(f"read-{shared}")
            button.props["title"] = "How to read this plot"
        with box("reading") as tip:
            tip.props["role"] = "note"
            label_text(text.plot_help(name), "p")
            with box("actions"):
                self._dismissal("Got it", shared).mark(f"got-{shared}")
                self._dismissal("Hide all tips", ALL).mark("got-all")
        tip.set_visibility(span >= MIN_OPEN_SPAN and not self._dismissed & {shared, ALL})
        button.on("click", lambda: tip.set_visibility(not tip.visible))
        self._placed.append((shared, tip))

    def _dismissal(self, label: str, name: str) -> ui.element:
        button = label_text(label, "button", "plain")
        button.on("click", lambda: self._dismiss(name))
        return button.on("click", js_handler=f"() => sfapp.rememberRead({json.dumps(name)})")

    def _dismiss(self, name: str) -> None:
        self._dismissed.add(name)
        for placed, tip in self._placed:
            if name in (placed, ALL):
                tip.set_visibility(False)
