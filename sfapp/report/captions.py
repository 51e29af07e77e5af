"""The words around a plot, for the formats that show it on paper or beside code."""

from __future__ import annotations

from dataclasses import dataclass

from sfapp.report.document import ReportPlot


@dataclass(frozen=True, slots=True)
class Caption:
    """What stands above and below a plot, and what it says to those who cannot see it."""

    title: str
    subtitle: str
    below: str
    alt: str


def caption(plot: ReportPlot) -> Caption:
    """The plot's words."""
    meta = plot.light["layout"]["meta"]
    return Caption(meta["title"], meta["subtitle"], " ".join([plot.hint, *meta["notes"]]), meta["alt"])
