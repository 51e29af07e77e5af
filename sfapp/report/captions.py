"""Return the texts around a plot, for report formats without a page of their own."""

from __future__ import annotations

from dataclasses import dataclass

from sfapp.report.plots import ReportPlot


@dataclass(frozen=True, slots=True)
class Caption:
    """The texts above and below a plot, and its alternative text."""

    title: str
    subtitle: str
    below: str
    alt: str


def caption(plot: ReportPlot) -> Caption:
    """Return the texts around a plot."""
    meta = plot.light["layout"]["meta"]
    return Caption(meta["title"], meta["subtitle"], " ".join([plot.hint, *meta["notes"]]), meta["alt"])
