"""Write notes and incidents from a page: the author's name, and a message with undo for each edit."""

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

MESSAGE_S = 20.0
"""Seconds for which the last edit and its undo button are shown."""


@dataclass(frozen=True, slots=True)
class EditLink:
    """A link to the result of an edit."""

    text: str
    href: str


class AnnotationToolbar:
    """Writer of edits for one open page. It is built at the page's level, because it outlives the edited
    items.

    Attributes:
        name: name of the author, as chosen by the user; empty until one is chosen.
    """

    def __init__(self, incident_service: IncidentService, name: str) -> None:
        self._incident_service = incident_service
        self.name = name
        self._signatures: list[TextElement] = []
        self._timer: ui.timer | None = None
        self._container = box("snack-container")
        with ui.dialog().props("aria-label='Your name'") as self._dialog, box("sheet name-sheet"):
            self._build_dialog()

    async def write(
        self, edit: Edit, message: str, link_to: Callable[[], EditLink | None] = lambda: None
    ) -> bool:
        """Write on a thread, then show a message and an undo button.

        Return False after an error, which is shown instead.

        Args:
            message: the completed action, in the past tense.
            link_to: returns a link to the result; called after writing.
        """
        written = await self._write(edit)
        if written:
            self._show_message(message, written, link_to())
        return bool(written)

    def signature(self) -> None:
        """Build a button that shows the author's name and changes it."""
        button = label_text(self._signature_text(), "button", "plain signature").mark("signature")
        button.props["title"] = "Choose the name that others see"
        button.on("click", self._dialog.open)
        self._signatures.append(button)

    def show_error(self, message: str) -> None:
        """Show an error until it is dismissed."""
        with self._container:
            ui.notify(message, type="negative", timeout=0, close_button="Dismiss")

    async def _write(self, edit: Edit) -> Sequence[str]:
        try:
            return await self._incident_service.write(self.name, edit)
        except IncidentError as error:
            self.show_error(str(error))
            return ()

    def _show_message(
        self, message: str, written: Sequence[str], result: EditLink | None, button_text: str = "Undo"
    ) -> None:
        self._clear_message()
        with self._container, box("snack") as snack:
            snack.props["role"] = "status"
            label_text(message, "span")
            if result is not None:
                link(result.text, result.href)
            button = with_keys(
                label_text(button_text, "button", "plain"), "z", f"{button_text}: {message}"
            ).mark("undo-edit")
            button.on("click", lambda: self._undo(message, written, redo=button_text == "Redo"))
            with_keys(label_text("×", "button", "plain"), label="Dismiss").on("click", self._clear_message)
            self._timer = ui.timer(MESSAGE_S, self._clear_message, once=True)

    async def _undo(self, message: str, written: Sequence[str], redo: bool) -> None:
        """Undo edits, the last one first; undoing the undo applies them again."""
        undone = await self._write(lambda author: [author.undo(event) for event in reversed(written)])
        if undone:
            self._show_message(
                message if redo else f"Undone: {message}", undone, None, "Undo" if redo else "Redo"
            )

    def _clear_message(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._container.clear()

    def _build_dialog(self) -> None:
        label_text("Your name", "h2")
        label_text("Shown next to your notes. Names are not verified.", "p", "muted")
        self._field = (
            ui.input(value=self.name, placeholder=ANONYMOUS)
            .props(f"dense outlined autofocus maxlength={MAX_NAME} aria-label='Your name'")
            .mark("author-name")
        )
        self._field.on("keydown.enter", self._choose)
        with box("actions"):
            label_text("Use this name", "button", "button").mark("use-name").on("click", self._choose)
            label_text("Cancel", "button", "plain").on("click", self._dialog.close)

    def _choose(self) -> None:
        self.name = " ".join((self._field.value or "").split())[:MAX_NAME]
        self._dialog.close()
        self._signatures = [signature for signature in self._signatures if not signature.is_deleted]
        for signature in self._signatures:
            signature.text = self._signature_text()
        ui.run_javascript(f"sfapp.rememberName({json.dumps(self.name)})")

    def _signature_text(self) -> str:
        return f"Signed as {self.name}" if self.name else f"Signed as {ANONYMOUS} · choose a name"
