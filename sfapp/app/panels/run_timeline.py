"""The timeline of the run's windows below the overview; a click opens a window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sfapp.app.panels.plot_card import FigureCard
from sfapp.app.theme import box
from sfapp.model.view import WindowKey
from sfapp.views import figures
from sfapp.views.figures.window_timeline import window_timeline

REACH = 100
"""Number of windows shown on each side of the open one."""

HEIGHT = 186
"""Height in pixels: less than the timeline of all windows."""

Rows = Sequence[Mapping[str, Any]]


class RunTimeline:
    """The timeline; empty until ``show`` is called, so that the page appears without waiting for it."""

    def __init__(self, key: WindowKey, open_window: Callable[[WindowKey], Any]) -> None:
        self._key = key
        self._open = open_window
        self._container = box("run-timeline")
        self._card: FigureCard | None = None
        self._shown: tuple[Rows, bool] | None = None

    def set_visible(self, visible: bool) -> None:
        """Show or hide the timeline."""
        self._container.set_visibility(visible)

    def show(self, rows: Rows, dark: bool) -> None:
        """Draw the windows around the open one if they changed; there is no timeline for a single window.

        Args:
            rows: the run's windows, in ascending order.
        """
        if self._card is None and len(rows) < 2:
            return
        if self._shown is not None and self._shown[0] is rows and self._shown[1] == dark:
            return
        self._shown = (rows, dark)
        figure = self._figure(rows, dark)
        if self._card is not None:
            self._card.redraw(figure)
            return
        with self._container:
            self._card = FigureCard(figure, bare=True)
        self._card.on_click(lambda point: open_clicked(point, self._open))

    def _figure(self, rows: Rows, dark: bool) -> figures.Figure:
        numbers = [row["window"] for row in rows]
        place = numbers.index(self._key.window) if self._key.window in numbers else 0
        near = rows[max(0, place - REACH) : place + REACH + 1]
        selected = (self._key.run_id, self._key.window)
        figure = window_timeline(near, dark=dark, selected=selected, height=HEIGHT)
        figure["layout"]["margin"] |= {"t": 24, "b": 2}
        return figure


def open_clicked(point: Mapping[str, Any], open_window: Callable[[WindowKey], Any]) -> None:
    """Open the window of a clicked point, whose ``customdata`` is ``[run_id, window]``."""
    clicked = point.get("customdata")
    if isinstance(clicked, list) and len(clicked) == 2:
        open_window(WindowKey(str(clicked[0]), int(clicked[1])))
