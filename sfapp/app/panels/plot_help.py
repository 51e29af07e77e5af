"""How to read each plot: open the first time where there is room for it, behind an i once dismissed."""

from __future__ import annotations

import json
from collections.abc import Collection

from fastapi import Request
from nicegui import ui

from sfapp.app.theme import READ_COOKIE, box, label_text, with_keys
from sfapp.views import text

ALL = "all"
"""Stands for every reading aid in the cookie."""

ROOMY = 5
"""Twelfths of the page that a plot must be wide for its aid to open by itself."""


class ReadingAids:
    """The reading aids of one page, and which of them this browser has dismissed for good.

    A plot may stand on several tabs: dismissed on one, its aid closes on all.
    """

    def __init__(self, dismissed: Collection[str]) -> None:
        self._dismissed = set(dismissed)
        self._placed: list[tuple[str, ui.element]] = []

    @classmethod
    def of(cls, request: Request) -> ReadingAids:
        """As this browser left them."""
        return cls(request.cookies.get(READ_COOKIE, "").split("."))

    def place(self, name: str, head: ui.element, span: int) -> None:
        """Put a plot's aid into the current container, and the button for it into the plot's head.

        Args:
            name: of the plot, a key of ``text.HINTS`` or ``text.LIVE_HINTS``.
            span: width of the plot in twelfths of the page.
        """
        with head:
            button = with_keys(label_text("i", "button", "info"), label="how to read this").mark(
                f"read-{name}"
            )
            button.props["title"] = "how to read this"
        with box("reading") as aid:
            aid.props["role"] = "note"
            label_text(text.HINTS.get(name) or text.LIVE_HINTS[name], "p")
            with box("actions"):
                self._dismissal("got it", name).mark(f"got-{name}")
                self._dismissal("no more of these", ALL).mark("got-all")
        aid.set_visibility(span >= ROOMY and not self._dismissed & {name, ALL})
        button.on("click", lambda: aid.set_visibility(not aid.visible))
        self._placed.append((name, aid))

    def _dismissal(self, said: str, name: str) -> ui.element:
        button = label_text(said, "button", "plain")
        button.on("click", lambda: self._dismiss(name))
        return button.on("click", js_handler=f"() => sfapp.rememberRead({json.dumps(name)})")

    def _dismiss(self, name: str) -> None:
        self._dismissed.add(name)
        for placed, aid in self._placed:
            if name in (placed, ALL):
                aid.set_visibility(False)
