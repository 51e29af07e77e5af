"""Caption a plot, for formats that show it on paper or next to code."""

from __future__ import annotations

from dataclasses import dataclass

from sfapp.report.plots import ReportPlot


@dataclass(frozen=True, slots=True)
class Caption:
    """Text above and below a plot, and its text alternative."""

    title: str
    subtitle: str
    below: str
    alt: str


def caption(plot: ReportPlot) -> Caption:
    """Return the caption of a plot."""
    meta = plot.light["layout"]["meta"]
    return Caption(meta["title"], meta["subtitle"], " ".join([plot.hint, *meta["notes"]]), meta["alt"])
