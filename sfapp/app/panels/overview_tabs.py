"""The two ways to look at all runs: their problems, and their windows."""

from __future__ import annotations

from typing import Literal

from sfapp.app.theme import box, link

OverviewTab = Literal["problems", "windows"]

_TABS: dict[OverviewTab, tuple[str, str]] = {
    "problems": ("Problems", "/"),
    "windows": ("Windows", "/windows"),
}


def overview_tabs(current: OverviewTab) -> None:
    """Add links to both pages; the current one is marked."""
    with box("overview-tabs", "nav") as tabs:
        tabs.props["aria-label"] = "Overview"
        for name, (title, href) in _TABS.items():
            tab = link(title, href).mark(f"tab-{name}")
            if name == current:
                tab.props["aria-current"] = "page"
