"""``/incident/<id>``: one incident with its items of evidence in order."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from nicegui import background_tasks, ui

from sfapp.app.connection import connected
from sfapp.app.notifications import follow
from sfapp.app.one_at_a_time import one_at_a_time
from sfapp.app.pages.not_found import missing
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.incident_head import IncidentHeader
from sfapp.app.panels.item_card import ItemActions, ItemCard
from sfapp.app.panels.item_evidence import evidence_of
from sfapp.app.panels.report_dialog import report_button
from sfapp.app.routes import Handler
from sfapp.app.theme import Crumb, author_of, box, empty, frame, is_dark, label_text, left_out, link
from sfapp.errors import IncidentNotFoundError
from sfapp.incidents import IncidentEditor, IncidentState
from sfapp.model.incidents import Incident
from sfapp.model.view import WindowKey
from sfapp.report.workspace_report import incident_report
from sfapp.service.workspace import Workspace
from sfapp.store import WindowQuery
from sfapp.views import format
from sfapp.views.address import incident_page
from sfapp.views.window_list_rows import window_row

OFFERED = 300
"""Windows offered for adding: the most severe ones."""


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the page's handler."""

    async def incident_page_(request: Request, incident_id: str) -> None:
        state = await workspace.incident_service.current()
        try:
            incident = state.incident(incident_id)
        except IncidentNotFoundError as error:
            missing(workspace, request, f"{error}; it may have been removed")
            return
        offered = await asyncio.to_thread(_offered, workspace)
        page = IncidentPage(workspace, incident, is_dark(request))
        page.build(request, offered)
        if await connected():
            await page.start()

    return (incident_page_,)


def _offered(workspace: Workspace) -> dict[str, str]:
    """Return the windows that can be added, with their texts in the chooser. Blocking."""
    rows = workspace.windows(WindowQuery(limit=OFFERED)).rows
    return {
        str(WindowKey(row["run_id"], row["window"])): (
            f"{format.clip(row['run_id'])} / {row['window']} · {window_row(row)['aim']} · "
            f"{format.duration(row['step_mean_ns'])}"
        )
        for row in rows
    }


MOST_ITEMS = 200
"""Items that a page shows: each costs several ms of the event loop, and an import may hold any number."""


class IncidentPage:
    """One open incident."""

    def __init__(self, workspace: Workspace, incident: Incident, dark: bool) -> None:
        self._workspace = workspace
        self._incident_service = workspace.incident_service
        self._incident = incident
        self._dark = dark
        self._cards: dict[str, ItemCard] = {}
        self._is_filling = False
        self._was_removed = False

    # --- building -------------------------------------------------------------------------------------

    def build(self, request: Request, offered: dict[str, str]) -> None:
        """Build the page without its evidence."""
        title = format.clip(self._incident.title)
        crumbs = (Crumb("Incidents", "/incidents"), Crumb(title))
        with frame(self._workspace, request, title, crumbs, heading=title) as page:
            page.dark.on_value_change(lambda event: self._apply_theme(bool(event.value)))
            with page.actions:
                report_button("this incident", lambda: incident_report(self._workspace, self._incident.id))
            self._toolbar = AnnotationToolbar(self._incident_service, author_of(request))
            with box("stack"):
                self._head = IncidentHeader(self._incident_service, self._toolbar, self._incident)
                with box("toolbar item-adding"):
                    self._build_adding(offered)
                self._list = box("items", "ol")
                self._left_out = box()
                self._empty = box("card", "section")
                with self._empty:
                    empty(
                        "No evidence yet",
                        "Press a on a window, or + on a plot, to add it with its current view. Windows and "
                        "notes can also be added here.",
                    )
        self._show()

    def _build_adding(self, offered: dict[str, str]) -> None:
        self._window = ui.select(offered, label="Add a window", with_input=True, on_change=self._add_window)
        self._window.props("dense outlined options-dense").classes("wide").mark("add-a-window")
        self._note = (
            ui.input(placeholder="Add a standalone note")
            .props("dense outlined aria-label='Text of a new note'")
            .classes("wide")
            .mark("free-note")
        )
        self._note.on("keydown.enter", self._add_note)
        label_text("Add note", "button", "button").mark("add-free-note").on("click", self._add_note)
        box("grow")
        href = f"{incident_page(self._incident.id)}.json"
        link("Export .json", href, "badge").props["download"] = f"incident-{self._incident.short_id}.json"

    async def start(self) -> None:
        """Load the evidence once the browser is connected, then follow the incidents and the store."""
        follow(self._incident_service.changed, self._follow)
        follow(self._workspace.changed, self._reload_evidence)
        self._follow(self._incident_service.state)
        self._fill_soon()

    # --- following ------------------------------------------------------------------------------------

    def _follow(self, state: IncidentState) -> None:
        try:
            incident = state.incident(self._incident.id)
        except IncidentNotFoundError:
            if not self._was_removed:
                self._toolbar.show_error("This incident was removed; showing its last state")
            self._was_removed = True
            return
        self._was_removed = False
        if incident != self._incident:
            self._incident = incident
            self._show()
        self._fill_soon()

    def _show(self) -> None:
        """Show the head and the items; cards are added, moved and removed, but not rebuilt."""
        self._head.show(self._incident)
        shown = self._incident.items[:MOST_ITEMS]
        current = {item.id for item in shown}
        for removed in [name for name in self._cards if name not in current]:
            if not self._cards[removed].is_edited:
                self._cards.pop(removed).element.delete()
        actions = ItemActions(self._move, self._remove)
        notes = [item.note for item in shown if item.note is not None]
        for place, item in enumerate(shown):
            if item.id not in self._cards:
                with self._list:
                    self._cards[item.id] = ItemCard(
                        self._incident_service, self._toolbar, item, actions, dark=self._dark
                    )
            card = self._cards[item.id]
            card.show(item, place + 1, notes, self._dark)
            if self._list.default_slot.children[place] is not card.element:
                card.element.move(self._list, place)
        self._empty.set_visibility(not self._cards)
        self._left_out.clear()
        if len(shown) < len(self._incident.items):
            with self._left_out:
                left_out(len(shown), len(self._incident.items), "items")

    def _apply_theme(self, dark: bool) -> None:
        self._dark = dark
        self._show()

    def _reload_evidence(self) -> None:
        """Load the evidence again: packets were added, changed or removed."""
        background_tasks.create(self._fill(list(self._cards.values())), context=self._list)

    def _fill_soon(self) -> None:
        waiting = [card for card in self._cards.values() if card.awaits_evidence]
        if waiting and not self._is_filling:
            background_tasks.create(self._fill(waiting), context=self._list)

    async def _fill(self, cards: list[ItemCard]) -> None:
        """Load evidence on a thread, one item after the other, and show it."""
        self._is_filling = True
        try:
            for card in cards:
                if card.item.note is None and not card.element.is_deleted:
                    evidence = await asyncio.to_thread(evidence_of, self._workspace, card.item)
                    if not card.element.is_deleted:
                        card.fill(evidence)
        finally:
            self._is_filling = False
        self._fill_soon()

    # --- writing --------------------------------------------------------------------------------------

    async def _add_window(self, event: Any) -> None:
        if event.value is None:
            return
        key, incident = WindowKey.parse(event.value), self._incident
        self._window.value = None
        await self._toolbar.write(
            lambda author: [author.add_window(incident, key)], f"Window {key.window} added"
        )

    @one_at_a_time
    async def _add_note(self) -> None:
        typed, incident = self._note.value or "", self._incident
        content = typed.strip()
        if not content:
            ui.notify("A note needs text", type="warning")
            return

        def edit(author: IncidentEditor) -> list[str]:
            note = author.write_note(content)
            return [note, author.add_note(incident, note)]

        if await self._toolbar.write(edit, "Note added") and self._note.value == typed:
            self._note.value = ""

    async def _move(self, item_id: str, by: int) -> None:
        incident = self._incident
        items = [item for item in incident.items if item.id == item_id]
        place = incident.items.index(items[0]) + by if items else -1  # It may have been removed meanwhile.
        if not 0 <= place < len(incident.items):
            return
        item, message = items[0], f"Item moved to position {place + 1}"
        await self._toolbar.write(lambda author: author.move_item(incident, item, place), message)
        # Moving the element in the page took the focus from it.
        ui.run_javascript(f"getHtmlElement({self._cards[item_id].element.id})?.focus()")

    async def _remove(self, item_id: str) -> None:
        items = [item for item in self._incident.items if item.id == item_id]
        await self._toolbar.write(lambda author: list(map(author.remove_item, items)), "Item removed")
