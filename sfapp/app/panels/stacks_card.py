"""Stacks of a running job's ranks: request them, and show the newest ones with equal stacks merged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from nicegui import ui

from sfapp.app.theme import box, label_text, link
from sfapp.errors import CaptureError, PacketError, WindowNotFoundError
from sfapp.model.stacks import StackGroup
from sfapp.packets.stack_requests import RunPlace
from sfapp.service.live import check_running, is_running
from sfapp.service.stacks import (
    RunStacks,
    follow_stacks,
    newest_stacks_below,
    place_of,
    request_stacks,
    wait_seconds,
)
from sfapp.service.workspace import Workspace
from sfapp.views import format
from sfapp.views.address import path_segment
from sfapp.views.text.stacks import (
    frame_lines,
    group_title,
    missing_words,
    stacks_headline,
    stacks_text,
)

POLL_S = 2.0
"""Seconds between checks for newer stacks; recorders check for requests about once a second."""

SHOWN_GROUPS = 12
"""Maximum number of different stacks on the page, those of the fewest ranks first; JSON has all."""


class StacksCard:
    """The button that requests stacks, while the run is live, and the newest stacks."""

    def __init__(
        self,
        workspace: Workspace,
        run_id: str,
        author: Callable[[], str],
        collect: Callable[[str], None] | None = None,
    ) -> None:
        """Build, hidden, inside the current container.

        Args:
            author: returns the name of the requests' author.
            collect: adds the stacks as text to an incident; None on pages without incidents.
        """
        self._workspace = workspace
        self._run_id = run_id
        self._author = author
        self._collect = collect
        self._found: RunStacks | None = None
        self._asked: RunStacks | None = None
        self._place: RunPlace | None = None
        self._shown: object = None
        with box("card stacks", "section").mark("stacks") as self._card:
            with box("toolbar"):
                label_text("Stacks", "h2")
                self._button = label_text("Take stacks of all ranks", "button", "button secondary")
                self._button.mark("take-stacks").on("click", self._request)
                self._state = label_text("", "span", "muted").mark("stacks-state")
                box("grow")
                if collect is not None:
                    add = label_text("Add stacks to incident", "button", "button secondary")
                    add.mark("add-stacks").on("click", self._add_to_incident)
                link(".json", f"/stacks/{path_segment(run_id)}.json", "badge")
            self._content = box("stack")
        self._card.set_visibility(False)
        ui.timer(POLL_S, self._follow)

    async def _request(self) -> None:
        def ask() -> RunStacks:
            check_running(self._workspace, self._run_id)  # A browser may send what no button is shown for.
            # Found anew: a restarted job may have other ranks.
            place = self._place = place_of(self._workspace.folders, self._run_id)
            return request_stacks(place, reason="requested from its page", asked_by=self._author())

        try:
            self._asked = await asyncio.to_thread(ask)
        except (CaptureError, PacketError, WindowNotFoundError) as error:
            ui.notify(str(error), type="warning")
            return
        await self._follow()

    async def _follow(self) -> None:
        """Show newer stacks, and the button while the run is live."""
        found = await asyncio.to_thread(self._read)
        is_live = await asyncio.to_thread(is_running, self._workspace, self._run_id)
        if self._card.is_deleted:
            return
        self._button.set_visibility(is_live)
        self._card.set_visibility(is_live or found is not None)
        self._state.text = self._words()
        self._found = found
        if found is not None and (shown := (found.state.request.id, len(found.stacks))) != self._shown:
            self._shown = shown
            self._content.clear()
            with self._content:
                _show(found)

    def _add_to_incident(self) -> None:
        if self._collect is None or self._found is None:
            ui.notify("There are no stacks yet", type="warning")
            return
        self._collect(stacks_text(self._found.merged, self._found.missing, self._found.title))

    def _read(self) -> RunStacks | None:
        """Return the stacks of this page's request or else the newest ones; None if there are none."""
        try:
            if self._asked is not None and self._place is not None:
                self._asked = follow_stacks(self._place.root, self._asked)
                if self._asked.stacks:
                    return self._asked
            return newest_stacks_below(self._workspace.folders, self._run_id)
        except (CaptureError, PacketError, WindowNotFoundError):
            return None

    def _words(self) -> str:
        """Return the progress of this page's request."""
        asked = self._asked
        if asked is None:
            return ""
        count, total = len(asked.stacks), len(asked.state.request.ranks)
        age = (datetime.now(UTC) - asked.state.request.asked_at).total_seconds()
        if asked.is_complete or age > wait_seconds(asked):
            self._asked = None if count else asked
            return f"stacks of {count} of {format.counted(total, 'rank')}"
        return f"requested; {count} of {format.counted(total, 'rank')} so far"


def _show(found: RunStacks) -> None:
    """Build the stacks of one request. Their text comes from the ranks, and is shown as text only."""
    merged = found.merged
    label_text(stacks_headline(merged), "p").mark("stacks-headline")
    label_text(found.title, "p", "muted")
    for group in merged.groups[:SHOWN_GROUPS]:
        _show_group(group, merged.shared_frames)
    left = len(merged.groups) - SHOWN_GROUPS + merged.left_out
    if left > 0:
        label_text(f"{format.counted(left, 'more stack')}: see .json", "p", "muted")
    for line in missing_words(found.missing):
        label_text(line, "p", "muted").mark("stacks-missing")


def _show_group(group: StackGroup, shared: int) -> None:
    with box("stack-group"):
        label_text(group_title(group), "strong").mark("stack-group")
        label_text("\n".join(frame_lines(group, shared)), "pre", "stack-frames")
