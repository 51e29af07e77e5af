"""The timeline of listed windows, on the axis that was chosen; a click opens a window."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from sfapp.app.panels.plot_card import FigureCard
from sfapp.app.panels.run_timeline import open_clicked
from sfapp.app.theme import box
from sfapp.model.view import WindowKey
from sfapp.views import figures
from sfapp.views.address import window_page
from sfapp.views.figures.window_clock import window_clock
from sfapp.views.figures.window_timeline import window_timeline

AXES: Mapping[str, str] = {"window": "In order", "time": "By time", "sorted": "As listed"}
"""Axes of a timeline: by run and window, wall-clock time, or the order of the table below it."""

Brush = Callable[[float | None, float | None], Any]


class WindowsTimeline:
    """The timeline of some windows; empty until ``draw`` is called."""

    def __init__(self, brush: Brush | None = None) -> None:
        """Build inside the current container.

        Args:
            brush: called with the ends of a range that was brushed, or with None where it was cleared.
        """
        self._brush = brush
        self._container = box("timeline")
        self._card: FigureCard | None = None

    async def draw(
        self,
        rows: Sequence[Mapping[str, Any]],
        axis: str | None,
        *,
        dark: bool,
        brushed: tuple[int, int] | None = None,
        is_current: Callable[[], bool] = lambda: True,
    ) -> None:
        """Draw windows; without any, the timeline is hidden.

        Args:
            axis: one of ``AXES``; None for the first.
            brushed: places of the first and last brushed window.
            is_current: whether this is still what the page is to show, once it was drawn on a thread.
        """
        figure = await asyncio.to_thread(self._figure, rows, axis, dark, brushed) if rows else None
        if not is_current() or self._container.is_deleted:
            return
        self._container.set_visibility(figure is not None)
        if figure is None:
            return
        if self._card is not None:
            self._card.redraw(figure)
            return
        with self._container:
            self._card = FigureCard(figure)
        self._card.on_click(lambda point: open_clicked(point, _open))
        if self._brush is not None:
            self._card.on_brush(self._brush)

    def _figure(
        self, rows: Sequence[Mapping[str, Any]], axis: str | None, dark: bool, brushed: tuple[int, int] | None
    ) -> figures.Figure:
        if axis == "time":
            return window_clock(rows, dark=dark)
        if axis == "sorted":
            return window_timeline(rows, dark=dark, by_run=False)
        return window_timeline(rows, dark=dark, brushes=self._brush is not None, brushed=brushed)


def axis_chooser(axis: str | None, offered: Sequence[str], change: Callable[[str | None], Any]) -> ui.toggle:
    """Build the choice of the timeline's axis; ``change`` is called with None for the first."""
    first = next(iter(AXES))
    toggle = ui.toggle(
        {name: AXES[name] for name in offered},
        value=axis or first,
        on_change=lambda event: change(None if event.value == first else event.value),
    )
    toggle.props("no-caps unelevated toggle-color=primary").classes("segmented").mark("axis")
    toggle.props["aria-label"] = "Order of the timeline"
    return toggle


def _open(key: WindowKey) -> None:
    ui.navigate.to(window_page(key))
