"""Changes of a page's view that can be undone: by a button and its keys, and by the browser's Back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from nicegui import events, ui

from sfapp.app.theme import label_text, show_address, with_keys

ViewT = TypeVar("ViewT")

UNDO_KEYS = "u Control+z"

UNDO_PAUSE = 1.0
"""Changes of one control less than this many seconds apart are undone together: a drag is one change."""

MAX_FORWARD = 1_000
"""Most changes that are taken as undoable after the browser went forward to a view."""


class ViewHistory(Generic[ViewT]):
    """The earlier views of one page, the oldest first."""

    def __init__(self) -> None:
        self._undo: list[ViewT] = []
        self._last_change = ("", 0.0)

    @property
    def depth(self) -> int:
        """How many changes can be undone."""
        return len(self._undo)

    def record(self, before: ViewT, name: str) -> None:
        """Keep the view before a change; successive changes of the same name are undone together.

        Args:
            name: empty for a change that is undone by itself.
        """
        now = time.monotonic()
        last_name, last_at = self._last_change
        if not name or last_name != name or now - last_at > UNDO_PAUSE:
            self._undo.append(before)
        self._last_change = (name, now)

    def undo(self) -> ViewT | None:
        """Return the view before the last change; None where none can be undone."""
        self._last_change = ("", 0.0)
        return self._undo.pop() if self._undo else None

    def move_to(self, depth: int, shown: ViewT) -> None:
        """Follow the browser back or forward.

        Args:
            depth: how many changes could be undone when the view was shown that it went to.
            shown: the view that is left.
        """
        self._last_change = ("", 0.0)
        del self._undo[max(0, depth) :]
        missing = min(depth, MAX_FORWARD) - len(self._undo)
        self._undo.extend([shown] * missing)


class UndoableView(Generic[ViewT]):
    """The view of one page as its address holds it. Every change of it can be undone.

    Attributes:
        view: as it is now.
    """

    def __init__(
        self,
        view: ViewT,
        *,
        parse: Callable[[str], ViewT],
        href: Callable[[ViewT], str],
        show: Callable[[ViewT], Any],
    ) -> None:
        """Follow the browser from now on.

        Args:
            parse: returns the view of a query. href: returns the address of a view.
            show: called after a change with the view before it; shows the new one in every control.
        """
        self.view = view
        self._parse = parse
        self._href = href
        self._show = show
        self._history: ViewHistory[ViewT] = ViewHistory()
        self._button: ui.element | None = None
        ui.on("address", self._follow_address)

    def button(self) -> None:
        """Build the button that undoes the last change; it is there while a change can be undone."""
        button = with_keys(label_text("Undo", "button", "badge brushed"), UNDO_KEYS, "Undo the last change")
        button.on("click", self.undo).mark("undo").set_visibility(False)
        self._button = button

    def change(self, view: ViewT, name: str) -> None:
        """Change to a view; successive changes of the same name are undone together."""
        if view == self.view:
            return
        self._history.record(self.view, name)
        self._sync(view)

    def undo(self) -> None:
        """Undo the last change."""
        before = self._history.undo()
        if before is not None:
            self._sync(before)

    def _follow_address(self, event: events.GenericEventArguments) -> None:
        """Show the view that the browser went back or forward to."""
        match event.args:
            case [str(query), int(depth)]:
                self._history.move_to(depth, self.view)
                # The browser shows the address already, and may be at another one when an answer arrives.
                self._turn_to(self._parse(query))

    def _sync(self, view: ViewT) -> None:
        self._turn_to(view)
        show_address(self._href(view), self._history.depth)

    def _turn_to(self, view: ViewT) -> None:
        before, self.view = self.view, view
        if self._button is not None:
            self._button.set_visibility(bool(self._history.depth))
        if view != before:
            self._show(before)
