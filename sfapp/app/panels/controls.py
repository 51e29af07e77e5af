"""The controls of a window page: gates, frontier, baseline, group and reference; reset, undo and links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nicegui import events, ui

from sfapp.app.panels.choosers import MOST_LISTED, nodes_offered, number_field, show_options
from sfapp.app.theme import box, label_text, link, set_address, term, with_keys
from sfapp.errors import GateError
from sfapp.model import ALL_RANKS, CHOICE_DOCS, GATE_DOCS, Gates
from sfapp.model.gates import GATE_BY_NAME, PRESET_FRONTIERS, ChoiceDoc, GateDoc
from sfapp.model.view import ViewState, WindowKey
from sfapp.service.judging import JudgedWindow
from sfapp.views.address import window_page
from sfapp.views.glossary import FIRST_GATES, gate_rows
from sfapp.views.selection import aimed_node
from sfapp.views.text.findings import healthy_windows

_DEFAULTS = {row["name"]: row["default"] for row in gate_rows()}
"""Default of every gate, as text."""

BASELINE_NAMES = {"rank_median": "rank", "cohort_median": "cohort", "reference": "healthy"}
BASELINE_HELP = {
    "rank_median": "Clips each rank to its own median over the window.",
    "cohort_median": "Clips each rank to the median of all ranks in the same step (default).",
    "reference": "Clips each stage to its median in the healthy window.",
}
FRONTIER_NAMES = {"carry_over": "carry-over", "step": "step-aligned"}
FRONTIER_HELP = {
    "carry_over": "Delays after the last wait of a step carry over into the next step (default).",
    "step": "Each step starts at zero, as in the paper.",
}


@dataclass(frozen=True, slots=True)
class ControlActions:
    """Functions of the page that the controls call.

    Attributes:
        change: takes the fields of ``ViewState`` that differ.
        hint: requests the nearest change of verdict of every shown gate.
        gate: sets one gate; raises GateError if the value is out of range.
        group: judges one group of ranks; reports if the window does not have it.
    """

    change: Callable[..., Any]
    hint: Callable[[], Any]
    gate: Callable[[str, Any], Any]
    group: Callable[[str], Any]
    reset: Callable[[], Any]
    undo: Callable[[], Any]
    copy: Callable[[], Any]


class GateField(ui.number):
    """A number field that shows the value in use when it loses the focus, whatever was typed or deleted."""

    used = 0.0

    def sanitize(self) -> None:
        """Show the value in use. NiceGUI calls this when the field loses the focus."""
        self.value = self.used


class GateControl:
    """One gate: its name, a field, a slider, its default and its nearest change of verdict."""

    def __init__(self, doc: GateDoc, value: float, move: Callable[[str, Any], Any]) -> None:
        self._doc = doc
        self._default = getattr(Gates(), doc.name)
        self._move = move
        self._value = value
        with box("gate wide" if doc.whole else "gate") as gate:
            gate.props["title"] = doc.help
            with box("gate-head"):
                with_keys(term(doc.symbol, "gate", doc.name, "gate-name"), label=f"What {doc.title} means")
                label_text(doc.title, "span", "gate-title")
                self._field = GateField(value=value, format=_digits(doc), on_change=self._changed)
                self._field.props(
                    "dense borderless no-error-icon debounce=300 "
                    f"min={doc.low} max={doc.high} step={doc.step}"
                ).mark(f"number-{doc.name}")
                self._field.props["aria-label"] = doc.title
            self._slider: ui.slider | None = None
            if not doc.whole:
                self._slider = (
                    ui.slider(min=doc.low, max=doc.high, step=doc.step, value=value, on_change=self._changed)
                    .props(f'dense aria-label="{doc.title}"')
                    .mark(doc.name)
                )
            self._error = label_text("", "div", "field-error").mark(f"error-{doc.name}")
            self._error.props["role"] = "alert"
            default = _DEFAULTS[doc.name]
            self._back = label_text(f"default {default}", "button", "plain gate-default")
            self._back.on("click", lambda: move(doc.name, self._default)).mark(f"default-{doc.name}")
            with_keys(self._back, label=f"Reset {doc.title} to its default, {default}")
            self._hint = label_text("", "div", "hint")
        self.show(value)

    def hint(self, nearest: str) -> None:
        """Show the nearest change of verdict."""
        self._hint.text = nearest

    def show(self, value: float) -> None:
        """Show the value in use."""
        self._value = self._field.used = value
        self._field.value = value
        if self._slider is not None:
            self._slider.value = value
        self._show_error("")
        self._back.props.set_bool("disabled", value == self._default)

    def _changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        value = event.value
        if value is None or value == self._value:  # The field was emptied, or shows the value in use again.
            return
        whole = self._doc.whole and float(value).is_integer()
        try:
            self._move(self._doc.name, int(value) if whole else float(value))
        except GateError as error:
            self._show_error(f"{error}; {self._value:g} stays in use")

    def _show_error(self, message: str) -> None:
        self._field.error = message or None
        self._error.text = message
        self._error.set_visibility(bool(message))


class Controls:
    """The controls left of the tabs. They call the page's actions and show the resulting view."""

    def __init__(
        self, judged: JudgedWindow, view: ViewState, references: Mapping[str, str], actions: ControlActions
    ) -> None:
        """Build inside the current container.

        Args:
            references: windows offered for comparison: texts by ``RUN/WINDOW``.
        """
        self._actions = actions
        self._references = dict(references)
        self._gates: dict[str, GateControl] = {}
        self._gate_choices: dict[str, ui.select] = {}
        self._view = view
        self._judged = judged
        with box("", "section"):
            label_text("Thresholds", "h2")
            self._gate_controls(FIRST_GATES)  # always shown; the others are folded away
        self._choices()
        with box("", "section"):
            label_text("Other thresholds", "h2")
            with box("", "details").mark("more-gates") as more:
                self._more_title = label_text("", "summary")
                self._more = box()
            more.on("toggle", self._open_more, [])
        with box("", "section") as self._recorder_section:
            label_text("Recorder's own verdict", "h2")
            self._recorder = label_text("", "div", "hint").mark("recorder")
        self._footer()

    def hint(self, changes: Mapping[str, str]) -> None:
        """Show the nearest change of verdict of each shown gate."""
        for name, control in self._gates.items():
            control.hint(changes[name])

    def show(self, judged: JudgedWindow, view: ViewState, recorder: str) -> None:
        """Show a verdict's view in every control.

        Args:
            recorder: comparison with the verdict stored by the recorder.
        """
        self._view, self._judged = view, judged
        for name, control in self._gates.items():
            control.show(getattr(view.gates, name))
        for name, choice in self._gate_choices.items():
            choice.value = getattr(view.gates, name)
        others = [name for name in view.gates.changed() if name not in FIRST_GATES]
        more = len(GATE_DOCS) + len(CHOICE_DOCS) - len(FIRST_GATES)
        changed = f"{len(others)} changed" if others else "all at their defaults"
        self._more_title.text = f"{more} more · {changed}"
        self._frontier.value = view.frontier
        self._frontier_hint.text = FRONTIER_HELP[view.frontier]
        if judged.diagnosis.frontier != view.frontier:
            self._frontier_hint.text = "Not available: step numbers have gaps. The step-aligned one is shown."
        self._baseline.value = view.baseline
        self._baseline_hint.text = BASELINE_HELP[view.baseline]
        show_options(self._group, _groups_offered(judged, view.group), view.group)
        self._node.value = None
        show_options(self._reference, self._references_offered(), _reference_choice(view))
        self._recorder.text = recorder
        self._recorder_section.set_visibility(bool(judged.diagnosis.recorder_labels))
        set_address(self._json, view.href(f"{window_page(judged.source.key)}.json"))

    @property
    def shown_gates(self) -> tuple[str, ...]:
        """Gates whose nearest change of verdict is shown."""
        return tuple(self._gates)

    def _gate_controls(self, names: tuple[str, ...]) -> None:
        for name in names:
            value = getattr(self._view.gates, name)
            self._gates[name] = GateControl(GATE_BY_NAME[name], value, self._actions.gate)

    def _open_more(self) -> None:
        """Build the other gates when they are first opened."""
        if len(self._gates) > len(FIRST_GATES):
            return
        with self._more:
            self._gate_controls(tuple(doc.name for doc in GATE_DOCS if doc.name not in FIRST_GATES))
            for doc in CHOICE_DOCS:
                self._choice_control(doc)
        self._actions.hint()

    def _choice_control(self, doc: ChoiceDoc) -> None:
        with box("gate"):
            with box("gate-head"):
                name = term(doc.symbol, "gate", doc.name, "gate-name")
                with_keys(name, label=f"What {doc.title} means")
                label_text(doc.title, "span", "gate-title")
            choice = ui.select(
                list(doc.help),
                value=getattr(self._view.gates, doc.name),
                on_change=lambda event: self._actions.gate(doc.name, event.value),
            )
            choice.props(f"dense outlined options-dense aria-label='{doc.title}'").mark(doc.name)
            self._gate_choices[doc.name] = choice
            choices = " ".join(f"{name}: {what}" for name, what in doc.help.items())
            label_text(choices, "div", "hint")

    def _choices(self) -> None:
        with box("", "section"):
            label_text("Baseline", "h2")
            self._baseline = self._toggle(BASELINE_NAMES, "baseline", self._view.baseline)
            self._baseline_hint = label_text("", "div", "hint")
        with box("", "section"):
            label_text("Frontier", "h2")
            self._frontier = self._toggle(FRONTIER_NAMES, "frontier", self._view.frontier)
            self._frontier_hint = label_text("", "div", "hint")
            paper = label_text("Use the paper's preset", "button", "plain")
            paper.on("click", self._use_paper).mark("preset-paper")
            paper.props["title"] = "Step-aligned frontier and the paper's thresholds; Reset goes back."
        with box("", "section"):
            label_text("Compared with", "h2")
            self._reference = self._select(
                self._references_offered(),
                _reference_choice(self._view),
                self._pick_reference,
                "reference",
            )
        with box("", "section"):
            label_text("Group", "h2")
            offered = _groups_offered(self._judged, self._view.group)
            self._group = self._select(offered, self._view.group, self._pick_group, "group")
            self._node = number_field("another node", "group: another node", self._pick_node)
            self._node.mark("group-node").set_visibility(len(self._judged.window.ranks.nodes) > MOST_LISTED)

    def _references_offered(self) -> dict[str, str]:
        return {"": _healthy_window(self._judged), **self._references}

    def _use_paper(self) -> None:
        """Judge as the paper does: its thresholds and its frontier."""
        self._actions.change(gates=Gates.preset("paper"), frontier=PRESET_FRONTIERS["paper"])

    def _toggle(self, names: Mapping[str, str], field: str, value: str) -> ui.toggle:
        return (
            ui.toggle(
                dict(names),
                value=value,
                on_change=lambda event: self._actions.change(**{field: event.value}),
            )
            .props("no-caps unelevated dense spread toggle-color=primary")
            .mark(field)
        )

    def _select(
        self, options: Mapping[str, str], value: str, changed: Callable[[Any], Any], name: str
    ) -> ui.select:
        searchable = len(options) > 12
        return (
            ui.select(dict(options), value=value, on_change=changed, with_input=searchable)
            .props(f"dense outlined options-dense {'input-debounce=100' if searchable else ''}")
            .props(f"aria-label='{name}'")
            .mark(name)
        )

    def _pick_reference(self, event: events.ValueChangeEventArguments[Any]) -> Any:
        return self._actions.change(reference=WindowKey.parse(event.value) if event.value else None)

    def _pick_group(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._actions.change(group=event.value or ALL_RANKS)

    def _pick_node(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value is not None:
            self._actions.group(f"node:{int(event.value)}")

    def _footer(self) -> None:
        with box("", "section"):
            label_text("This view", "h2")
            label_text("This URL saves the view: thresholds, tab, step and ranks.", "div", "hint")
            with box("actions"):
                undo = with_keys(label_text("Undo", "button", "plain"), "u Control+z", "Undo the last change")
                undo.on("click", self._actions.undo).mark("undo")
                label_text("Reset", "button", "plain").on("click", self._actions.reset).mark("reset")
                label_text("Copy link", "button", "plain").on("click", self._actions.copy)
                href = self._view.href(f"{window_page(self._judged.source.key)}.json")
                self._json = link(".json", href, "plain").mark("json")


def _healthy_window(judged: JudgedWindow) -> str:
    """Return the text for the run's own healthy windows among the offered windows."""
    reference = judged.reference
    if reference is not None and reference.run_id == judged.source.key.run_id:
        return healthy_windows(reference)
    return "the healthy windows"


def _digits(doc: GateDoc) -> str:
    """Return the format of a gate's value: as many digits as its step has."""
    return "%d" if doc.whole else "%.2f" if doc.step >= 0.01 else "%.3f"


def _reference_choice(view: ViewState) -> str:
    return "" if view.reference is None else str(view.reference)


def _groups_offered(judged: JudgedWindow, chosen: str) -> dict[str, str]:
    """Return the groups in the list: all ranks, roles and nodes; of many nodes, only the suspect's and the
    first ones. The chosen group is always included."""
    window = judged.window
    groups = [ALL_RANKS]
    if window.reduced is None:  # a reduced window has no groups
        nodes = nodes_offered(window.ranks.nodes, [aimed_node(judged.diagnosis, window.ranks)])
        groups += [*(f"role:{role}" for role in window.ranks.roles), *(f"node:{node}" for node in nodes)]
    return {group: _group_name(group) for group in dict.fromkeys((*groups, chosen))}


def _group_name(group: str) -> str:
    kind, _, name = group.partition(":")
    return "all ranks" if group == ALL_RANKS else f"{kind} {name}"
