"""Writing a note on a window: a sheet beside the plots, its pins following what is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.theme import box, label_text, with_keys
from sfapp.incidents import MAX_TEXT
from sfapp.model import Window
from sfapp.model.incidents import Pin
from sfapp.model.view import ViewState, WindowKey, Zoom
from sfapp.views import format
from sfapp.views.plot_registry import PLOTS


class NoteForm:
    """Hidden until ``open``. What is pinned follows the view, until it is set by hand; words are kept."""

    def __init__(
        self, toolbar: AnnotationToolbar, key: WindowKey, window: Window, look: Callable[[], ViewState]
    ) -> None:
        """Build, hidden, inside the current container.

        Args:
            window: all ranks of the window.
            look: what is looked at now.
        """
        self._toolbar = toolbar
        self._key = key
        self._window = window
        self._look = look
        self._set_by_hand: set[str] = set()
        self._filling = False
        self._sheet = box("note-form", "section").mark("note-form")
        self._sheet.props["aria-label"] = "a note on this window"
        self._sheet.on("keydown.esc", self.close)
        with self._sheet:
            self._build()
        self._sheet.set_visibility(False)

    @property
    def is_open(self) -> bool:
        return bool(self._sheet.visible)

    def open(self, plot: str | None = None) -> None:
        """Begin, or go on; about a plot where one is given."""
        self._set_by_hand = set()
        self._fill({"plot": plot})
        if plot is not None:
            self._set_by_hand.add("plot")
            self._part.value = True
        self._sheet.set_visibility(True)
        self.follow()
        self._words.run_method("focus")

    def close(self) -> None:
        self._sheet.set_visibility(False)

    def follow(self) -> None:
        """Pin what is looked at now, but for what was set by hand."""
        if not self.is_open:
            return
        view = self._look()
        rank = view.ranks[0] if len(view.ranks) == 1 else None
        seen = {"step": view.step, "rank": rank, "stage": view.stage}
        self._fill({name: value for name, value in seen.items() if name not in self._set_by_hand})
        self._show_part()

    def _build(self) -> None:
        with box("card-head"):
            label_text("Note", "h2")
            box("grow")
            with_keys(label_text("×", "button", "plain"), label="close the note").on("click", self.close)
        self._words = (
            ui.textarea(placeholder="What is seen here, and what follows from it?")
            .props(f"outlined autogrow maxlength={MAX_TEXT} aria-label='words of the note'")
            .mark("new-note")
        )
        self._words.on("keydown.ctrl.enter", self._save)
        stages = {None: "any stage", **format.short_stages(self._window.broad_stages)}
        plots = {None: "no plot", **{spec.name: spec.title for spec in PLOTS.of_windows}}
        with box("pins"):
            self._fields: Mapping[str, Any] = {
                "step": self._number("step", "the whole window"),
                "rank": self._number("rank", "all ranks"),
                "stage": self._choice("stage", stages),
                "plot": self._choice("plot", plots),
            }
        self._part = ui.checkbox("only the part it is zoomed to", value=True).props("dense").mark("pin-part")
        with box("actions"):
            save = label_text("add note", "button", "button").mark("add-note")
            save.props["title"] = "Ctrl+Enter"
            save.on("click", self._save)
            self._toolbar.signature()

    def _number(self, name: str, absent: str) -> ui.number:
        field = ui.number(name, placeholder=absent, format="%d", on_change=lambda: self._touched(name))
        field.props("dense outlined stack-label clearable").mark(f"pin-{name}")
        return field

    def _choice(self, name: str, choices: Mapping[str | None, str]) -> ui.select:
        field = ui.select(dict(choices), value=None, label=name, on_change=lambda: self._touched(name))
        field.props("dense outlined options-dense stack-label").mark(f"pin-{name}")
        return field

    def _fill(self, values: Mapping[str, Any]) -> None:
        self._filling = True
        for name, value in values.items():
            self._fields[name].value = value
        self._filling = False

    def _touched(self, name: str) -> None:
        if not self._filling:
            self._set_by_hand.add(name)
        if name == "plot":
            self._show_part()

    def _show_part(self) -> None:
        self._part.set_visibility(bool(self._zoomed()))

    def _zoomed(self) -> tuple[Zoom, ...]:
        plot = self._fields["plot"].value
        return () if plot is None else self._look().zoom_of(plot)

    def _pin(self) -> Pin | str:
        """What is pinned, or why it cannot be."""
        step, rank = (_whole(self._fields[name].value) for name in ("step", "rank"))
        if step is not None and step not in self._window.step_N.tolist():
            return f"this window has no step {step}: {format.ranges(self._window.step_N.tolist())}"
        if rank is not None and rank not in self._window.ranks.rank:
            return f"this window has no rank {rank}: {format.ranges(self._window.ranks.rank)}"
        return Pin(
            window=self._key,
            step=step,
            rank=rank,
            stage=self._fields["stage"].value,
            plot=self._fields["plot"].value,
            region=self._zoomed()[:8] if self._part.value else (),
        )

    async def _save(self) -> None:
        said, pin = self._words.value or "", self._pin()
        if isinstance(pin, str):
            ui.notify(pin, type="warning")
        elif not said.strip():
            ui.notify("a note needs words", type="warning")
        elif await self._toolbar.write(lambda author: [author.write_note(said, pin)], "note added"):
            self._words.value = ""
            self.close()


def _whole(value: Any) -> int | None:
    """A number field's value: the browser may send anything."""
    return int(value) if isinstance(value, int | float) and value == value // 1 else None
