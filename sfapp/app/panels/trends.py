"""Whether runs became slower: a table of groups of runs with their differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from sfapp.app.panels.tables import titled
from sfapp.app.theme import box, label_text
from sfapp.model.trends import BY_DAY, Difference, TrendGroup, Trends
from sfapp.views import format
from sfapp.views.text.trends import (
    DIFFERENCE_WORDS,
    basis_text,
    difference_text,
    field_name,
    left_out_text,
    lost_share,
    points_text,
    trends_headline,
)

_WIDEST, _NARROWEST = 1.0, 0.01
"""Bounds of the largest difference that a bar can show."""


def trends_table(trends: Trends, choose: Callable[[str], Any]) -> None:
    """Build the card; ``choose`` is called with a field that the user picks."""
    with titled("Did runs become slower?", basis_text(trends)):
        with box("toolbar"):
            label_text("By", "span", "muted")
            options = {name: field_name(name) for name in dict.fromkeys((*trends.fields, trends.by))}
            chooser = ui.select(options, value=trends.by, on_change=lambda event: choose(str(event.value)))
            chooser.props("dense outlined options-dense aria-label='Group runs by'").mark("trends-by")
            label_text(trends_headline(trends), "p").mark("trends-headline")
        if trends.groups:
            with box("scroll"), box("table", "table").mark("trends"):
                _head(trends)
                with box("", "tbody"):
                    scale = _scale(trends)
                    for group in trends.groups:
                        _row(group, scale)
        left_out = left_out_text(trends)
        if left_out:
            label_text(left_out, "p", "muted")


def _head(trends: Trends) -> None:
    others = "vs earlier days" if trends.by == BY_DAY else "vs others"
    titles = (f"Step {others}", "", "", "Healthy step", "Lost", f"Lost {others}", "Runs")
    with box("", "thead"), box("", "tr"):
        label_text(field_name(trends.by), "th")
        for title in titles:
            label_text(title, "th", "" if not title else "number")


def _row(group: TrendGroup, scale: float) -> None:
    with box("", "tr").mark("trend-row"):
        label_text(format.clip(group.value), "td")
        label_text(difference_text(group.step), "td", "number")
        with box("", "td"):
            if group.step is not None:
                _bar(group.step, scale)
        label_text("" if group.step is None else DIFFERENCE_WORDS[group.step.verdict], "td", "trend-word")
        label_text(format.duration(group.step_ns), "td", "number")
        label_text(lost_share(group), "td", "number")
        label_text(points_text(group.lost), "td", "number")
        label_text(f"{group.runs:,}", "td", "number")


def _scale(trends: Trends) -> float:
    ends = [abs(end) for group in trends.groups if group.step for end in (group.step.low, group.step.high)]
    return min(_WIDEST, max([_NARROWEST, *ends]))


def _bar(found: Difference, scale: float) -> None:
    """Draw the interval around no difference, which is the middle."""
    low, middle, high = (_place(value, scale) for value in (found.low, found.estimate, found.high))
    with box("trend-bar").props("aria-hidden=true"):
        box(f"trend-range trend-{found.verdict}").style(f"left: {low:.1f}%; width: {high - low:.1f}%")
        box(f"trend-point trend-{found.verdict}").style(f"left: {middle:.1f}%")


def _place(value: float, scale: float) -> float:
    """Return the position of a difference in percent of the bar's width."""
    return 50.0 * (1.0 + max(-1.0, min(1.0, value / scale)))
