"""Common parts of the pages of problems and of windows, the two overviews of all runs."""

from __future__ import annotations

from typing import Literal

from sfapp.app.notices import notices
from sfapp.app.theme import box, empty, example_links, label_text, link
from sfapp.service.workspace import Workspace
from sfapp.views import format

OverviewTab = Literal["problems", "windows"]

_TABS: dict[OverviewTab, tuple[str, str]] = {
    "problems": ("Problems", "/"),
    "windows": ("Windows", "/windows"),
}

_RECORD = """perf = sfapp.Recorder("packets", run_id="my-run")
for batch in loader:
    with perf.step():
        with perf.stage("model.fwd_loss_cpu_wall"):
            loss = model(batch)
        ..."""


def overview_tabs(current: OverviewTab) -> None:
    """Add links to both pages; the current one is marked."""
    with box("overview-tabs", "nav") as tabs:
        tabs.props["aria-label"] = "Overview"
        for name, (title, href) in _TABS.items():
            tab = link(title, href).mark(f"tab-{name}")
            if name == current:
                tab.props["aria-current"] = "page"


def store_notices(workspace: Workspace, messages: list[str]) -> None:
    """Add notices on the store and on the opened link."""
    note = workspace.store.note
    notices([*([f"{note}."] if note else []), *messages])


def file_faults(refused: int, conflicts: int) -> None:
    """Add links to files that were refused or contradict each other, if there are any."""
    if refused:
        link(f"{format.counted(refused, 'file')} refused", "/quarantine", "badge badge-warn")
    if conflicts:
        link(format.counted(conflicts, "conflict"), "/quarantine", "badge badge-warn")


def no_packets(workspace: Workspace, listed: str) -> None:
    """Add instructions for an empty packet folder.

    Args:
        listed: name of the items that the page will list, such as ``Windows``.
    """
    paths = format.listed([str(path) for path in workspace.paths])
    empty(
        "No packets yet",
        f"sfapp is watching {paths}. {listed} appear here as soon as a job writes packets. "
        "To record a job, wrap its training step:",
        _RECORD,
    )
    with box("empty-links"):
        label_text("Or open a worked example:", "span", "muted")
        example_links()
