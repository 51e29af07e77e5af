"""``/quarantine``: refused files with reasons, and files that contradict each other."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC
from typing import Any

from fastapi import Request

from sfapp.app.connection import connected
from sfapp.app.notices import ignored_options, notices
from sfapp.app.notifications import follow
from sfapp.app.panels.tables import data_table, titled
from sfapp.app.routes import Handler
from sfapp.app.theme import Crumb, box, empty, frame, label_text, link
from sfapp.service.workspace import Workspace
from sfapp.store import IngestReport, QuarantinedFile, WindowConflict
from sfapp.views import format
from sfapp.views.table_columns import TableColumn

FILE_COLUMNS = (
    TableColumn("name", "File"),
    TableColumn("reason", "Reason"),
    TableColumn("size", "Size", text="size_text"),
    TableColumn("modified_at", "Written"),
    TableColumn("sha256", "SHA-256"),
)
CONFLICT_COLUMNS = (
    TableColumn("run_id", "Run"),
    TableColumn("window", "Window"),
    TableColumn("reason", "Difference"),
    TableColumn("shown", "Used"),
    TableColumn("set_aside", "Ignored"),
)


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the page's handler."""

    async def quarantine_page(request: Request) -> None:
        store = workspace.store
        files = await asyncio.to_thread(store.quarantine)
        conflicts = await asyncio.to_thread(store.conflicts)
        with frame(workspace, request, "refused files", (Crumb("Problems", "/"), Crumb("Refused files"))):
            notices(ignored_options(request))
            content = box("stack")
        with content:
            _content(files, conflicts)

        async def refresh(_: IngestReport) -> None:
            found = await asyncio.to_thread(store.quarantine), await asyncio.to_thread(store.conflicts)
            content.clear()
            with content:
                _content(*found)

        if await connected():
            follow(workspace.changed, refresh)

    return (quarantine_page,)


def _content(files: list[QuarantinedFile], conflicts: list[WindowConflict]) -> None:
    with box("overview-head"):
        label_text("Refused files", "h1")
    with box("toolbar"):
        label_text(
            "Fix or remove a refused file; it is read again when it changes. Other files are unaffected.",
            "p",
            "muted",
        )
        box("grow")
        link(".json", "/quarantine.json", "badge")
        link(".csv", "/quarantine.csv", "badge")
    if not files and not conflicts:
        with box("card", "section"):
            empty("No refused files", "Every packet was read, and none contradicts another.")
        return
    if files:
        with titled(
            format.counted(len(files), "refused file"),
            "sfapp validate PATH lists every fault of a file, not only the first",
        ):
            # Paths and hashes have no spaces: unbroken, they would leave no room for the reason.
            data_table(FILE_COLUMNS, [_file_row(file) for file in files], "name").classes("table-wraps")
    if conflicts:
        with titled(
            format.counted(len(conflicts), "conflict"),
            "files of one window that contradict each other",
        ):
            rows = [_conflict_row(conflict) for conflict in conflicts]
            data_table(CONFLICT_COLUMNS, rows, "reason").classes("table-wraps")


def _file_row(file: QuarantinedFile) -> dict[str, Any]:
    written = f"{file.modified_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return asdict(file) | {"size_text": format.size(file.size), "modified_at": written}


def _conflict_row(conflict: WindowConflict) -> dict[str, Any]:
    names = {
        part: ", ".join(str(source.path) for source in getattr(conflict, part))
        for part in ("shown", "set_aside")
    }
    return {"run_id": conflict.run_id, "window": conflict.window, "reason": conflict.reason, **names}
