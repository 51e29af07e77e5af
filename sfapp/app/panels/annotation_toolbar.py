"""Somebody writing on a page: under which name, and that each edit is said and can be undone by a click."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from sfapp.app.theme import box, label_text, link, with_keys
from sfapp.errors import IncidentError
from sfapp.incidents import ANONYMOUS, MAX_NAME
from sfapp.service.incidents import Edit, IncidentService

SAID_FOR = 20.0
"""Seconds that the last edit stays on show, with its undo."""


@dataclass(frozen=True, slots=True)
class EditLink:
    """Where an edit can be looked at."""

    text: str
    href: str


class AnnotationToolbar:
    """Writes edits for one open page. Built once, at the page's level: it outlives what it edits.

    Attributes:
        name: chosen by whoever looks at the page; empty before they chose one.
    """

    def __init__(self, incident_service: IncidentService, name: str) -> None:
        self._incident_service = incident_service
        self.name = name
        self._signatures: list[TextElement] = []
        self._timer: ui.timer | None = None
        self._place = box("snack-place")
        with self._place, ui.dialog() as self._dialog, box("sheet name-sheet"):
            self._build_dialog()

    async def write(self, edit: Edit, said: str, lead: Callable[[], EditLink | None] = lambda: None) -> bool:
        """Write, off the event loop; say what was done and offer to undo it. False where it failed, with why.

        Args:
            said: what was done, in the past tense.
            lead: where to look at it, asked once it is written.
        """
        written = await self._try(edit)
        if written:
            self._say(said, written, lead())
        return bool(written)

    def signature(self) -> None:
        """Under which name things are written here, and the way to another."""
        button = label_text(self._signed(), "button", "plain signature").mark("signature")
        button.props["title"] = "choose the name that others see"
        button.on("click", self._dialog.open)
        self._signatures.append(button)

    def complain(self, message: str) -> None:
        """Say on the page what is in the way."""
        with self._place:
            ui.notify(message, type="negative", timeout=0, close_button="dismiss")

    async def _try(self, edit: Edit) -> Sequence[str]:
        try:
            return await self._incident_service.write(self.name, edit)
        except IncidentError as error:
            self.complain(str(error))
            return ()

    def _say(self, said: str, written: Sequence[str], lead: EditLink | None, back: str = "undo") -> None:
        self._forget()
        with self._place, box("snack") as snack:
            snack.props["role"] = "status"
            label_text(said, "span")
            if lead is not None:
                link(lead.text, lead.href)
            button = with_keys(label_text(back, "button", "plain"), "z", f"{back}: {said}").mark("undo-edit")
            button.on("click", lambda: self._undo(said, written, redo=back == "redo"))
            with_keys(label_text("×", "button", "plain"), label="dismiss").on("click", self._forget)
            self._timer = ui.timer(SAID_FOR, self._forget, once=True)

    async def _undo(self, said: str, written: Sequence[str], redo: bool) -> None:
        """Undo some edits, the last first; undoing the undo does them again."""
        undone = await self._try(lambda author: [author.undo(event) for event in reversed(written)])
        if undone:
            self._say(said if redo else f"undone: {said}", undone, None, "undo" if redo else "redo")

    def _forget(self) -> None:
        """Say nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for element in list(self._place.default_slot.children):
            if element is not self._dialog:
                element.delete()

    def _build_dialog(self) -> None:
        label_text("Your name", "h2")
        label_text(
            "Shown beside what you write. Anyone who opens this app can choose any name.", "p", "muted"
        )
        self._field = (
            ui.input(value=self.name, placeholder=ANONYMOUS)
            .props(f"dense outlined autofocus maxlength={MAX_NAME} aria-label='your name'")
            .mark("author-name")
        )
        self._field.on("keydown.enter", self._choose)
        with box("actions"):
            label_text("use this name", "button", "button").mark("use-name").on("click", self._choose)
            label_text("cancel", "button", "plain").on("click", self._dialog.close)

    def _choose(self) -> None:
        self.name = " ".join((self._field.value or "").split())[:MAX_NAME]
        self._dialog.close()
        self._signatures = [signature for signature in self._signatures if not signature.is_deleted]
        for signature in self._signatures:
            signature.text = self._signed()
        ui.run_javascript(f"sfapp.rememberName({json.dumps(self.name)})")

    def _signed(self) -> str:
        return f"as {self.name}" if self.name else f"as {ANONYMOUS} · choose a name"
