"""Actions on a problem: mute it, mark it as fixed, add it to an incident, look at its operators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from nicegui import ui

from sfapp.app.one_at_a_time import one_at_a_time
from sfapp.app.panels.add_to_incident import IncidentPicker
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.theme import box, label_text, link, with_keys
from sfapp.incidents import IncidentEditor
from sfapp.model.incidents import Incident, Pin
from sfapp.model.view import STRAGGLERS, ViewState, WindowKey
from sfapp.service.incidents import IncidentService
from sfapp.service.problems import ListedProblem
from sfapp.views.address import live_page, window_page
from sfapp.views.text.problems import problem_text

MUTES: dict[str, tuple[str, timedelta | None]] = {
    "hour": ("for an hour", timedelta(hours=1)),
    "day": ("for a day", timedelta(days=1)),
    "week": ("for a week", timedelta(weeks=1)),
    "good": ("until it is unmuted", None),
}
"""Choices for the length of a mute: words and length."""

MAX_REASON = 200

IN_INCIDENT = 4
"""Maximum number of windows of a problem that are added to an incident, the latest ones."""


class ProblemActions:
    """The buttons of one problem. Like edits of notes, every action can be undone."""

    def __init__(self, incident_service: IncidentService, toolbar: AnnotationToolbar) -> None:
        """Build the dialogs, and an empty row of buttons, inside the current container."""
        self._toolbar = toolbar
        self._picker = IncidentPicker(incident_service, toolbar)
        self._one: ListedProblem | None = None
        self._last_window = 0
        self._row = box("actions problem-actions")
        with ui.dialog().props("aria-label='Mute this problem'") as self._dialog, box("sheet mute-sheet"):
            self._build_dialog()

    def show(self, one: ListedProblem, last_window: int) -> None:
        """Show the buttons for the present state of a problem.

        Args:
            last_window: number of the run's last window; a later one with the problem means it has returned.
        """
        if (one, last_window) == (self._one, self._last_window):
            return
        self._one, self._last_window = one, last_window
        self._row.clear()
        with self._row:
            self._build(one)

    def _build(self, one: ListedProblem) -> None:
        if one.status == "muted":
            label_text("Unmute", "button", "button secondary").mark("unmute").on("click", self._unmute)
        else:
            label_text("Mute…", "button", "button secondary").mark("mute").on("click", self._dialog.open)
        if one.mark is not None and one.mark.fixed is not None:
            label_text("Not fixed", "button", "button secondary").mark("not-fixed").on(
                "click", self._mark_not_fixed
            )
        else:
            fixed = label_text("Mark as fixed", "button", "button secondary").mark("fixed")
            fixed.props["title"] = "Hides the problem until a later window has it again"
            fixed.on("click", self._mark_fixed)
        add = with_keys(
            label_text("Add to incident", "button", "button secondary"), "a", "Add it to an incident"
        )
        add.mark("add-problem").on("click", self._add_to_incident)
        if one.problem.latest_window is None:
            link("Live page", live_page(one.problem.run_id), "button secondary").mark("live-page")
            self._toolbar.signature()
            return
        latest = window_page(WindowKey(one.problem.run_id, one.problem.latest_window))
        link("Operators and capture", ViewState(tab=STRAGGLERS).href(latest), "button secondary").mark(
            "capture"
        )
        self._toolbar.signature()

    def _build_dialog(self) -> None:
        label_text("Mute this problem", "h2")
        label_text("The list of problems no longer shows it. Its windows do not change.", "p", "muted")
        self._until = (
            ui.select({name: words for name, (words, _) in MUTES.items()}, value="day", label="How long")
            .props("dense outlined options-dense")
            .mark("mute-until")
        )
        self._reason = ui.input("Reason").props(f"dense outlined maxlength={MAX_REASON}").mark("mute-reason")
        self._reason.on("keydown.enter", self._mute)
        with box("actions"):
            label_text("Mute", "button", "button secondary").mark("mute-now").on("click", self._mute)
            label_text("Cancel", "button", "plain").on("click", self._dialog.close)

    @one_at_a_time
    async def _mute(self) -> None:
        one = self._one
        if one is None:
            return
        words, length = MUTES[self._until.value or "good"]
        until = None if length is None else datetime.now(UTC) + length
        reason = (self._reason.value or "").strip()[:MAX_REASON]
        if await self._toolbar.write(
            lambda author: [author.mute_problem(one.problem, one.mark, reason, until)], f"Muted {words}"
        ):
            self._dialog.close()

    async def _unmute(self) -> None:
        if (one := self._one) is not None:
            await self._toolbar.write(
                lambda author: [author.unmute_problem(one.problem, one.mark)], "Unmuted"
            )

    async def _mark_fixed(self) -> None:
        if (one := self._one) is not None:
            through = self._last_window
            await self._toolbar.write(
                lambda author: [author.mark_fixed(one.problem, one.mark, through)], "Marked as fixed"
            )

    async def _mark_not_fixed(self) -> None:
        if (one := self._one) is not None:
            await self._toolbar.write(
                lambda author: [author.mark_not_fixed(one.problem, one.mark)], "No longer marked as fixed"
            )

    def _add_to_incident(self) -> None:
        if (one := self._one) is None:
            return
        keys = [WindowKey(one.problem.run_id, number) for number in one.problem.windows[-IN_INCIDENT:]]

        def add(author: IncidentEditor, incident: Incident) -> Sequence[str]:
            return [author.add_window(incident, key) for key in keys]

        self._picker.ask("this problem", add, self._title(one))

    def add_stacks(self, text: str) -> None:
        """Ask for the incident to add stacks to, as a note on the problem's latest window."""
        if (one := self._one) is None:
            return
        latest = one.problem.latest_window  # A standstill has none.
        pin = None if latest is None else Pin(window=WindowKey(one.problem.run_id, latest))

        def add(author: IncidentEditor, incident: Incident) -> Sequence[str]:
            note = author.write_note(text, pin)
            return [note, author.add_note(incident, note)]

        self._picker.ask("these stacks", add, self._title(one))

    def _title(self, one: ListedProblem) -> str:
        text = problem_text(one.problem)
        return f"{text.title}: {text.where}"
