"""The form for a note on a window; its pins follow the view until they are set by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from sfapp.app.one_at_a_time import one_at_a_time
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.theme import box, label_text, with_keys
from sfapp.incidents import MAX_TEXT
from sfapp.model import Window
from sfapp.model.incidents import Pin
from sfapp.model.view import ViewState, WindowKey, Zoom
from sfapp.views import format
from sfapp.views.plot_registry import PLOTS


class NoteForm:
    """A form over the plots, hidden until ``open``. It keeps its text when it is closed without saving."""

    def __init__(
        self, toolbar: AnnotationToolbar, key: WindowKey, window: Window, look: Callable[[], ViewState]
    ) -> None:
        """Build, hidden, inside the current container.

        Args:
            window: all ranks of the window.
            look: returns the current view.
        """
        self._toolbar = toolbar
        self._key = key
        self._window = window
        self._look = look
        self._pinned_by_hand: set[str] = set()
        self._is_filling = False
        self._sheet = box("note-form", "section").mark("note-form")
        self._sheet.props["aria-label"] = "Note on this window"
        self._sheet.on("keydown.esc", self.close)
        with self._sheet:
            self._build()
        self._sheet.set_visibility(False)

    @property
    def is_open(self) -> bool:
        """Whether the form is shown."""
        return bool(self._sheet.visible)

    def open(self, plot: str | None = None) -> None:
        """Show the form, for a note on the window or on a plot."""
        self._pinned_by_hand = set()
        self._fill({"plot": plot})
        if plot is not None:
            self._pinned_by_hand.add("plot")
            self._part.value = True
        self._sheet.set_visibility(True)
        self.follow()
        self._text.run_method("focus")

    def close(self) -> None:
        """Hide the form."""
        self._sheet.set_visibility(False)

    def follow(self) -> None:
        """Pin the current view, except for fields that were set by hand."""
        if not self.is_open:
            return
        view = self._look()
        rank = view.ranks[0] if len(view.ranks) == 1 else None
        pinned = {"step": view.step, "rank": rank, "stage": view.stage}
        self._fill({name: value for name, value in pinned.items() if name not in self._pinned_by_hand})
        self._show_part()

    def _build(self) -> None:
        with box("card-head"):
            label_text("New note", "h2")
            box("grow")
            with_keys(label_text("×", "button", "plain"), label="Close the note").on("click", self.close)
        self._text = (
            ui.textarea(placeholder="Observation and next step")
            .props(f"outlined autogrow maxlength={MAX_TEXT} aria-label='Text of the note'")
            .mark("new-note")
        )
        self._text.on("keydown.ctrl.enter", self._save)
        stages: dict[str | None, str] = {None: "any stage"}
        stages.update(format.short_stages(self._window.broad_stages).items())
        plots: dict[str | None, str] = {None: "no plot"}
        plots |= {spec.name: spec.title for spec in PLOTS.of_windows}
        with box("pins"):
            self._fields: Mapping[str, Any] = {
                "step": self._number("step", "whole window"),
                "rank": self._number("rank", "all ranks"),
                "stage": self._choice("stage", stages),
                "plot": self._choice("plot", plots),
            }
        self._part = ui.checkbox("Only the zoomed part", value=True).props("dense").mark("pin-part")
        with box("actions"):
            save = label_text("Add note", "button", "button").mark("add-note")
            save.props["title"] = "Ctrl+Enter"
            save.on("click", self._save)
            self._toolbar.signature()

    def _number(self, name: str, absent: str) -> ui.number:
        field = ui.number(
            name.capitalize(), placeholder=absent, format="%d", on_change=lambda: self._touched(name)
        )
        field.props("dense outlined stack-label clearable").mark(f"pin-{name}")
        return field

    def _choice(self, name: str, choices: Mapping[str | None, str]) -> ui.select:
        field = ui.select(
            dict(choices), value=None, label=name.capitalize(), on_change=lambda: self._touched(name)
        )
        field.props("dense outlined options-dense stack-label").mark(f"pin-{name}")
        return field

    def _fill(self, values: Mapping[str, Any]) -> None:
        self._is_filling = True
        for name, value in values.items():
            self._fields[name].value = value
        self._is_filling = False

    def _touched(self, name: str) -> None:
        if not self._is_filling:
            self._pinned_by_hand.add(name)
        if name == "plot":
            self._show_part()

    def _show_part(self) -> None:
        self._part.set_visibility(bool(self._zoomed()))

    def _zoomed(self) -> tuple[Zoom, ...]:
        plot = self._fields["plot"].value
        return () if plot is None else self._look().zoom_of(plot)

    def _pin(self) -> Pin | str:
        """Return the pin, or a message why it is invalid."""
        step, rank = (_whole(self._fields[name].value) for name in ("step", "rank"))
        if step is not None and step not in self._window.step_N.tolist():
            return f"This window has no step {step}; it has {format.ranges(self._window.step_N.tolist())}"
        if rank is not None and rank not in self._window.ranks.rank:
            return f"This window has no rank {rank}; it has {format.ranges(self._window.ranks.rank)}"
        return Pin(
            window=self._key,
            step=step,
            rank=rank,
            stage=self._fields["stage"].value,
            plot=self._fields["plot"].value,
            region=self._zoomed()[:8] if self._part.value else (),
        )

    @one_at_a_time
    async def _save(self) -> None:
        content, pin = self._text.value or "", self._pin()
        if isinstance(pin, str):
            ui.notify(pin, type="warning")
        elif not content.strip():
            ui.notify("A note needs text", type="warning")
        elif (
            await self._toolbar.write(lambda author: [author.write_note(content, pin)], "Note added")
            and self._text.value == content  # More may have been typed meanwhile.
        ):
            self._text.value = ""
            self.close()


def _whole(value: Any) -> int | None:
    """Return a number field's value as a whole number, else None: the browser may send anything."""
    return int(value) if isinstance(value, int | float) and value == value // 1 else None
