"""The progress bar of the first ingest, with a button to cancel it."""

from __future__ import annotations

from nicegui import ui

from sfapp.app.notices import notices
from sfapp.app.theme import box, label_text, with_keys
from sfapp.service.workspace import Workspace
from sfapp.views import format


class ReadingProgress:
    """Progress of the store's first ingest. It disappears when the ingest ends, unless that failed."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._container = box()
        self._bar: ui.linear_progress | None = None
        self._show()
        if workspace.status().kind == "reading":
            self._timer = ui.timer(0.25, self._show)

    def _show(self) -> None:
        status = self._workspace.status()
        if status.kind == "reading":
            if self._bar is None:
                self._build()
            progress = status.progress
            if progress is not None and self._bar is not None:
                done = f"{format.count(progress.done)} of {format.count(progress.total)}"
                items = "runs" if progress.phase == "comparing" else "files"
                self._label.text = f"{progress.phase.capitalize()} {items}: {done}"
                self._bar.value = progress.done / max(1, progress.total)
            return
        if self._bar is not None:
            self._timer.cancel()
            self._bar = None
        self._container.clear()
        if status.kind == "failed":
            with self._container:
                notices([f"Packets are no longer read: {status.message}"])

    def _build(self) -> None:
        with self._container, box("card progress", "section") as card:
            card.props["role"] = "status"
            self._label = label_text("Looking for packets", "span").mark("progress")
            self._bar = ui.linear_progress(0, show_value=False).props("rounded size=6px aria-label=progress")
            with_keys(label_text("Cancel", "button", "plain"), label="Stop reading packets").on(
                "click", self._workspace.cancel_ingest
            )
