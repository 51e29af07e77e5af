"""The left rail of a window page: gates, frontier, baseline, group, reference; reset, undo, links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nicegui import events, ui

from sfapp.app.address import window_page
from sfapp.app.theme import box, label_text, link, term, with_keys
from sfapp.app.workspace import Judged
from sfapp.model import ALL_RANKS, GATE_DOCS, MODEL_FITS, Gates
from sfapp.model.gates import GATE_BY_NAME, MODEL_FIT_HELP, GateDoc
from sfapp.model.view import ViewState, WindowKey
from sfapp.views.glossary import gate_rows

FIRST_GATES = ("tau_c", "gamma_a", "gamma_g")
"""Always open; the others are under 'more'."""

_DEFAULTS = {row["name"]: row["default"] for row in gate_rows()}
"""Every gate's default, as text."""

BASELINE_WORDS = {"rank_median": "rank", "cohort_median": "cohort", "reference": "healthy"}
BASELINE_HELP = {
    "rank_median": "Clipped to the rank's own median over the window.",
    "cohort_median": "Clipped to the median of all ranks in the same step. The default.",
    "reference": "Clipped to the healthy window's median of each stage.",
}
FRONTIER_WORDS = {"step": "step-aligned", "carry_over": "carry-over"}
FRONTIER_HELP = {
    "step": "Every step starts at zero, as in the paper. The default.",
    "carry_over": "Delays after the last wait of a step are followed into the next step.",
}


@dataclass(frozen=True, slots=True)
class ControlActions:
    """What the rail asks of the page. ``change`` takes the fields of ``ViewState`` that differ; ``hint`` asks
    how far each gate shown is from the next change of verdict."""

    change: Callable[..., Any]
    hint: Callable[[], Any]
    gate: Callable[[str, Any], Any]
    reset: Callable[[], Any]
    undo: Callable[[], Any]
    copy: Callable[[], Any]


class GateControl:
    """One gate: its name, a number to type, a slider to drag, its default and its nearest change."""

    def __init__(self, doc: GateDoc, value: float, move: Callable[[str, Any], Any]) -> None:
        self._doc = doc
        self._default = getattr(Gates(), doc.name)
        self._move = move
        with box("gate wide" if doc.whole else "gate") as gate:
            gate.props["title"] = doc.help
            with box("gate-head"):
                with_keys(term(doc.symbol, "gate", doc.name, "gate-name"), label=f"what {doc.title} means")
                label_text(doc.title, "span", "gate-title")
                self._number = (
                    ui.number(value=value, format=_digits(doc), on_change=self._changed)
                    .props(f"dense borderless debounce=300 min={doc.low} max={doc.high} step={doc.step}")
                    .mark(f"number-{doc.name}")
                )
                self._number.props["aria-label"] = doc.title
            self._slider: ui.slider | None = None
            if not doc.whole:
                self._slider = (
                    ui.slider(min=doc.low, max=doc.high, step=doc.step, value=value, on_change=self._changed)
                    .props(f'dense aria-label="{doc.title}"')
                    .mark(doc.name)
                )
            self._back = label_text(f"default {_DEFAULTS[doc.name]}", "button", "plain gate-default")
            self._back.on("click", lambda: move(doc.name, self._default)).mark(f"default-{doc.name}")
            with_keys(self._back, label=f"set {doc.title} back to its default, {_DEFAULTS[doc.name]}")
            self._hint = label_text("", "div", "hint")
        self.show(value)

    def hint(self, nearest: str) -> None:
        """Say how far the nearest change of verdict is."""
        self._hint.text = nearest

    def show(self, value: float) -> None:
        """Take a value from outside."""
        self._number.value = value
        if self._slider is not None:
            self._slider.value = value
        self._back.props.set_bool("disabled", value == self._default)

    def _changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value is None:  # the field was emptied on the way to another number
            return
        whole = self._doc.whole and float(event.value).is_integer()
        self._move(self._doc.name, int(event.value) if whole else float(event.value))


class Controls:
    """The whole rail. It never decides anything: it asks the page, and shows what came of it."""

    def __init__(
        self, judged: Judged, view: ViewState, references: Mapping[str, str], asks: ControlActions
    ) -> None:
        """Build inside the current container.

        Args:
            references: windows that can be picked for comparison, as ``RUN/WINDOW``, with their words.
        """
        self._asks = asks
        self._references = dict(references)
        self._gates: dict[str, GateControl] = {}
        self._view = view
        self._judged = judged
        with box("", "section"):
            label_text("Gates", "h2")
            self._gate_controls(FIRST_GATES)
            with box("", "details").mark("more-gates") as more:
                self._more_title = label_text("", "summary")
                self._more = box()
            more.on("toggle", self._open_more, [])
        self._choices()
        with box("", "section"):
            label_text("Against the recorder", "h2")
            self._recorder = label_text("", "div", "hint").mark("recorder")
        self._footer()

    def hint(self, changes: Mapping[str, str]) -> None:
        """For each gate shown, say how far its nearest change of verdict is."""
        for name, control in self._gates.items():
            control.hint(changes[name])

    def show(self, judged: Judged, view: ViewState, recorder: str) -> None:
        """Bring every control up to date with a verdict."""
        self._view, self._judged = view, judged
        for name, control in self._gates.items():
            control.show(getattr(view.gates, name))
        others = [name for name in view.gates.changed() if name not in FIRST_GATES]
        more = len(GATE_DOCS) - len(FIRST_GATES) + 1
        moved = f"{len(others)} moved" if others else "all at their defaults"
        self._more_title.text = f"{more} more gates · {moved}"
        self._frontier.value = view.frontier
        self._frontier_hint.text = FRONTIER_HELP[view.frontier]
        if judged.diagnosis.frontier != view.frontier:
            self._frontier_hint.text = "Step numbers have gaps: the carry-over frontier is not defined here."
        self._baseline.value = view.baseline
        self._baseline_hint.text = BASELINE_HELP[view.baseline]
        self._group.value = view.group
        self._reference.value = _reference_choice(view)
        self._recorder.text = recorder
        self._json.props["href"] = view.href(f"{window_page(judged.source.key)}.json")

    @property
    def shown_gates(self) -> tuple[str, ...]:
        """Gates whose nearest change is shown."""
        return tuple(self._gates)

    def _gate_controls(self, names: tuple[str, ...]) -> None:
        for name in names:
            value = getattr(self._view.gates, name)
            self._gates[name] = GateControl(GATE_BY_NAME[name], value, self._asks.gate)

    def _open_more(self) -> None:
        """Build the other gates when they are first asked for."""
        if len(self._gates) > len(FIRST_GATES):
            return
        with self._more:
            self._gate_controls(tuple(doc.name for doc in GATE_DOCS if doc.name not in FIRST_GATES))
            with box("gate"):
                with box("gate-head"):
                    with_keys(term("W", "gate", "model_fit", "gate-name"), label="what wait model means")
                    label_text("wait model", "span", "gate-title")
                ui.select(
                    list(MODEL_FITS),
                    value=self._view.gates.model_fit,
                    on_change=lambda event: self._asks.gate("model_fit", event.value),
                ).props("dense outlined options-dense aria-label='wait model'").mark("model_fit")
                label_text(
                    " ".join(f"{name}: {what}" for name, what in MODEL_FIT_HELP.items()), "div", "hint"
                )
        self._asks.hint()

    def _choices(self) -> None:
        with box("", "section"):
            label_text("Frontier", "h2")
            self._frontier = self._toggle(FRONTIER_WORDS, "frontier", self._view.frontier)
            self._frontier_hint = label_text("", "div", "hint")
        with box("", "section"):
            label_text("Baseline", "h2")
            self._baseline = self._toggle(BASELINE_WORDS, "baseline", self._view.baseline)
            self._baseline_hint = label_text("", "div", "hint")
        with box("", "section"):
            label_text("Compared with", "h2")
            self._reference = self._select(
                {"": _healthy_words(self._judged), **self._references},
                _reference_choice(self._view),
                self._pick_reference,
                "reference",
            )
        with box("", "section"):
            label_text("Group", "h2")
            self._group = self._select(
                {group: _group_words(group) for group in self._judged.window.groups},
                self._view.group,
                lambda event: self._asks.change(group=event.value or ALL_RANKS),
                "group",
            )

    def _toggle(self, words: Mapping[str, str], name: str, value: str) -> ui.toggle:
        return (
            ui.toggle(
                dict(words), value=value, on_change=lambda event: self._asks.change(**{name: event.value})
            )
            .props("no-caps unelevated dense spread toggle-color=primary")
            .mark(name)
        )

    def _select(
        self, options: Mapping[str, str], value: str, changed: Callable[[Any], Any], name: str
    ) -> ui.select:
        wanted = "use-input input-debounce=100" if len(options) > 12 else ""
        return (
            ui.select(dict(options), value=value, on_change=changed, with_input=len(options) > 12)
            .props(f"dense outlined options-dense {wanted} aria-label='{name}'")
            .mark(name)
        )

    def _pick_reference(self, event: events.ValueChangeEventArguments[Any]) -> Any:
        return self._asks.change(reference=WindowKey.parse(event.value) if event.value else None)

    def _footer(self) -> None:
        with box("", "section"):
            label_text("This view", "h2")
            label_text("The address holds all of it: gates, tab, step, ranks.", "div", "hint")
            with box("actions"):
                undo = with_keys(label_text("undo", "button", "plain"), "u", "undo the last change")
                undo.on("click", self._asks.undo).mark("undo")
                label_text("reset", "button", "plain").on("click", self._asks.reset).mark("reset")
                label_text("copy link", "button", "plain").on("click", self._asks.copy)
                self._json = link(
                    ".json", self._view.href(f"{window_page(self._judged.source.key)}.json"), "plain"
                )
                self._json.mark("json")


def _healthy_words(judged: Judged) -> str:
    """The chooser's word for the run's own healthy window."""
    reference = judged.reference
    own = reference is not None and reference.run_id == judged.source.key.run_id
    return f"healthy window {reference.window}" if own and reference is not None else "the healthy window"


def _digits(doc: GateDoc) -> str:
    """How the browser writes the value: as many digits as the gate's own step has."""
    return "%d" if doc.whole else "%.2f" if doc.step >= 0.01 else "%.3f"


def _reference_choice(view: ViewState) -> str:
    return "" if view.reference is None else str(view.reference)


def _group_words(group: str) -> str:
    kind, _, name = group.partition(":")
    return "all ranks" if group == ALL_RANKS else f"{kind} {name}"
