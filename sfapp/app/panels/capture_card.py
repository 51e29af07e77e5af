"""Capture requests to a running job, for a trace of some ranks and steps, and their state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from nicegui import ui

from sfapp.app.theme import box, label_text, link
from sfapp.errors import CaptureError, PacketError, ParseError
from sfapp.model.capture import CAPTURE_STEPS, MAX_CAPTURE_RANKS, MAX_CAPTURE_STEPS, CaptureState
from sfapp.model.parse import parse_ranks
from sfapp.model.view import STRAGGLERS, ViewState, WindowKey
from sfapp.operators import Findings
from sfapp.operators.sampling import Sampling, WindowObservation, chosen_ranks
from sfapp.packets.captures import ask_for_capture, captures, new_request
from sfapp.packets.paths import folder_name
from sfapp.service.judging import JudgedWindow
from sfapp.service.live import check_running, is_running
from sfapp.service.workspace import Workspace
from sfapp.views import format
from sfapp.views.address import window_page

POLL_S = 2.0
"""Seconds between checks of the requests; recorders check about once a second."""

LISTED = 5
"""Maximum number of listed captures of the run, the newest ones."""

STATES = {
    "asked": "requested; recorders check about once a second",
    "running": "running",
    "done": "done",
    "refused": "refused",
    "expired": "expired: no recorder accepted it",
}


class CaptureCard:
    """The form for a capture and the list of captures; shown while the run is live or has captures."""

    def __init__(self, workspace: Workspace, judged: JudgedWindow, author: Callable[[], str]) -> None:
        """Build, hidden, inside the current container.

        Args:
            author: returns the name of the requests' author.
        """
        self._workspace = workspace
        self._key = judged.source.key
        self._root = _root_of(judged)
        self._author = author
        self._shown: Sequence[CaptureState] = ()
        self._ranks_are_set = False
        with box("card capture", "section").mark("capture") as self._card:
            with box("toolbar"):
                label_text("Capture a trace", "h2")
                with box("toolbar") as self._form:
                    self._build_form()
            self._list = box("captures", "ul")
        self._card.set_visibility(False)
        if self._root is not None:
            ui.timer(POLL_S, self._follow)

    def propose(self, judged: JudgedWindow, findings: Findings | None) -> None:
        """Fill in the suspects and their peers, unless ranks were typed already."""
        if not self._ranks_are_set:
            self._ranks.value = ", ".join(map(str, _proposed(judged, findings)))

    def _build_form(self) -> None:
        self._ranks = ui.input(placeholder="5, 0, 1, 2").mark("capture-ranks")
        self._ranks.props("dense outlined prefix=Ranks aria-label='Ranks to capture'")
        self._ranks.on("change", self._set_ranks)
        label_text("for", "span", "muted")
        self._steps = ui.number(value=CAPTURE_STEPS, min=1, max=MAX_CAPTURE_STEPS, precision=0)
        self._steps.props("dense outlined suffix=steps aria-label='Steps to capture'").mark("capture-steps")
        label_text("Start capture", "button", "button").mark("capture-start").on("click", self._request)
        hint = "Runs torch.profiler on these ranks. The operator trace is stored next to the packets."
        label_text(hint, "span", "muted")

    def _set_ranks(self) -> None:
        self._ranks_are_set = True

    async def _request(self) -> None:
        root = self._root
        if root is None:
            return
        try:
            # A browser may send what no button is shown for.
            await asyncio.to_thread(check_running, self._workspace, self._key.run_id)
            request = new_request(
                self._key.run_id,
                _ranks_of(self._ranks.value or ""),
                int(self._steps.value or 0),
                reason=f"requested from window {self._key.window}",
                asked_by=self._author(),
            )
            await asyncio.to_thread(ask_for_capture, root, request)
        except (CaptureError, PacketError) as error:
            ui.notify(str(error), type="warning")
            return
        await self._follow()

    async def _follow(self) -> None:
        """Update the list of captures and whether the run is live."""
        root = self._root
        if root is None:
            return
        every = await asyncio.to_thread(captures, root, self._key.run_id)
        found = [state for state in every if state.request.kind == "profile"][-LISTED:]
        is_live = await asyncio.to_thread(is_running, self._workspace, self._key.run_id)
        if self._card.is_deleted:
            return
        self._form.set_visibility(is_live)
        self._card.set_visibility(is_live or bool(found))
        if found != self._shown:
            self._shown = found
            self._list.clear()
            with self._list:
                for state in reversed(found):
                    _capture_item(self._key.run_id, state)


def _capture_item(run_id: str, state: CaptureState) -> None:
    """Build one capture: its request, its state and its windows."""
    request = state.request
    author = f" by {request.asked_by}" if request.asked_by else ""
    ranks = f"rank{'s' if len(request.ranks) > 1 else ''} {format.ranges(request.ranks)}"
    steps = format.counted(request.steps, "step")
    with box(f"capture-{state.status}", "li"):
        label_text(f"{request.asked_at:%H:%M:%S} UTC{author}: {ranks}, {steps}", "span")
        label_text(_state_text(state), "strong")
        if state.why:
            label_text(state.why, "span", "muted")
        for window in state.windows:
            page = window_page(WindowKey(run_id, window))
            link(f"Window {window}", ViewState(tab=STRAGGLERS).href(page)).mark("captured-window")


def _state_text(state: CaptureState) -> str:
    if state.status == "running":
        return f"running: {len(state.ranks_done)} of {format.counted(len(state.request.ranks), 'rank')} done"
    return STATES[state.status]


def _proposed(judged: JudgedWindow, findings: Findings | None) -> Sequence[int]:
    """Return the suspects and some peers, chosen as in sampling."""
    abnormal: tuple[int, ...] = ()
    if findings is not None:
        similarity = findings.similarity
        abnormal = tuple(similarity.ranks[place] for place in similarity.order_R.tolist())
    ranks = judged.measures.window.ranks
    return chosen_ranks(
        WindowObservation(diagnosis=judged.diagnosis, ranks=ranks, abnormal=abnormal), Sampling()
    )


def _ranks_of(text: str) -> tuple[int, ...]:
    """Parse the ranks of the form, separated by commas or blanks.

    Raises:
        CaptureError: the text is not a list of ranks.
    """
    try:
        return parse_ranks(",".join(text.replace(",", " ").split()), MAX_CAPTURE_RANKS)
    except ParseError as error:
        raise CaptureError(f"the ranks to capture {error}") from error


def _root_of(judged: JudgedWindow) -> Path | None:
    """Return the folder of packets that holds the run's folder; None if the window is elsewhere."""
    for packet in judged.source.packets:
        path = packet.path
        if isinstance(path, Path) and path.parent.name == folder_name(judged.source.key.run_id):
            return path.parent.parent
    return None
