"""The state of a window page as one frozen value and as a URL query.

``ViewState`` and the query are equivalent, so a link reproduces the view. Only differences from the defaults
are written. An invalid part of a query results in a notice and the default, never in an error page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import permutations
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, quote, urlencode

from sfapp.errors import GateError
from sfapp.model.fix import Fix
from sfapp.model.gates import (
    BASELINES,
    CHOICE_DOCS,
    DEFAULT_FRONTIER,
    FRONTIERS,
    GATE_DOCS,
    PRESET_FRONTIERS,
    PRESETS,
    Baseline,
    Frontier,
    GateDoc,
    Gates,
)
from sfapp.model.manifest import DIMENSIONS
from sfapp.model.parameters import (
    Parameter,
    nonempty,
    number_between,
    one_of,
    parsed_number,
    position,
    schema_of,
    whole_between,
)
from sfapp.model.parse import MOST_RANK, RUN_WINDOW, parse_ranks, parse_run_window, whole_number
from sfapp.model.window import ALL_RANKS, Window
from sfapp.terminal import quoted

Quantity = Literal["duration", "slack", "lag", "lead", "own", "wait"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)

OVERVIEW = "overview"
NOTES = "notes"
STRAGGLERS = "stragglers"
TABS = (OVERVIEW, "frontier", "ranks", "ambiguity", STRAGGLERS, "evidence", "rules", "data", NOTES)
"""Tabs that every window has; ``node:K`` stands for the tab of node K."""

_TAB_OF_TITLE = {"operators": STRAGGLERS, "analysis": "frontier", "nodes": "node:0"}
"""Titles of tabs on the page, which addresses may use, too; for one that groups others, the first of them."""

MAX_RANKS = 64
"""Maximum number of selected ranks: more lines cannot be distinguished in a plot."""


LONGEST_QUOTE = 40
"""Maximum number of characters of a link that a notice quotes."""

MAX_ZOOMS = 16
"""Maximum number of zoomed axes; the oldest is dropped."""

_DEFAULT_PRESET = "sfapp"

_OF_VERDICT = ("frontier", "baseline", "group", "reference")
_MEANINGS = {
    "frontier": "along which ranks' times the verdict is made",
    "baseline": "the usual time of a stage, from which gains are computed",
    "group": "all, role:NAME or node:K",
    "reference": "RUN/WINDOW to compare with; the run's healthy window if absent",
    "fix": "the part that the what-if makes typical: [STAGE][@RANK|@node:K|@all]; adds `what_if`",
    "step": "only this step; all if absent",
    "ranks": "only these ranks, as 3,5-8; all of the group if absent",
}
"""Meanings of the fields that the OpenAPI document has."""

_ZOOM = re.compile(r"(?P<plot>[a-z_]{1,40})\.(?P<axis>[xy]\d?):(?P<low>[^:]+):(?P<high>[^:]+)")


@dataclass(frozen=True, slots=True)
class WindowKey:
    """One window of one run; as text ``RUN/WINDOW``."""

    run_id: str
    window: int

    def __str__(self) -> str:
        return f"{self.run_id}/{self.window}"

    @classmethod
    def parse(cls, text: str) -> WindowKey:
        """Parse ``RUN/WINDOW``; the run id may hold slashes.

        Raises:
            ParseError: the text has another form.
        """
        return cls(*parse_run_window(text))


@dataclass(frozen=True, slots=True)
class Zoom:
    """The shown part of one axis of a plot; as text ``PLOT.AXIS:LOW:HIGH``.

    Attributes:
        plot: its name, as in ``sfapp.views.plot_registry.PLOTS``.
        axis: ``x``, ``y``, ``x2`` and so on.
        low, high: in the axis' own unit; the larger first on a reversed axis.
    """

    plot: str
    axis: str
    low: float
    high: float

    def __post_init__(self) -> None:
        # To the digits of the text, so that an address opens the same view.
        object.__setattr__(self, "low", float(f"{self.low:.9g}"))
        object.__setattr__(self, "high", float(f"{self.high:.9g}"))

    def __str__(self) -> str:
        return f"{self.plot}.{self.axis}:{self.low:.9g}:{self.high:.9g}"

    @classmethod
    def parse(cls, text: str) -> Zoom:
        """Parse ``PLOT.AXIS:LOW:HIGH``; raise ValueError for anything else."""
        found = _ZOOM.fullmatch(text)
        if not found:
            raise ValueError("must be PLOT.AXIS:LOW:HIGH")
        low, high = parsed_number(found["low"]), parsed_number(found["high"])
        if not math.isfinite(low) or not math.isfinite(high) or low == high:
            raise ValueError("must have two ends")
        return cls(found["plot"], found["axis"], low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """The complete view of a window page.

    Attributes:
        tab: one of ``TABS`` or ``node:K``.
        step: logical step number to show; None: the window's mean.
        gates, frontier, baseline, group: inputs of the verdict (accounting.md §4–§7).
        reference: the window to compare with; None: the run's healthy window.
        ranks: global ranks highlighted in the plots, ascending.
        stage: broad stage of the heatmap; None: the suspect's.
        quantity: the quantity in the heatmap.
        cause: zero-based position in the list of causes of the one whose path is shown; None: the first.
        operator: the operator whose frequency is shown; None: the cause's.
        axes: dimensions of rows and columns of the parallel layout; None: DP × PP, or what there is instead.
        fix: the part that the what-if makes typical; None: the suspect.
        zoom: shown parts of plots, one per axis, in the order in which they were zoomed.
    """

    tab: str = OVERVIEW
    step: int | None = None
    gates: Gates = field(default_factory=Gates)
    frontier: Frontier = DEFAULT_FRONTIER
    baseline: Baseline = "cohort_median"
    group: str = ALL_RANKS
    reference: WindowKey | None = None
    ranks: tuple[int, ...] = ()
    stage: str | None = None
    quantity: Quantity = "duration"
    cause: int | None = None
    operator: str | None = None
    axes: tuple[str, str] | None = None
    fix: Fix | None = None
    zoom: tuple[Zoom, ...] = ()

    @property
    def query(self) -> str:
        """The URL query without ``?``: differences from the defaults, in a fixed order."""
        default = ViewState()
        pairs: list[tuple[str, Any]] = []
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "gates":
                pairs.extend(value.changed().items())
            elif value != getattr(default, item.name):
                pairs.append((item.name, _text(value)))
        return urlencode(pairs, quote_via=quote, safe=":,/@")

    def href(self, path: str) -> str:
        """Return ``path`` with this view."""
        query = self.query
        return f"{path}?{query}" if query else path

    def with_gate(self, name: str, value: Any) -> ViewState:
        """Return this view with one gate changed; raise GateError if the value is out of range."""
        return replace(self, gates=self.gates.with_values(**{name: value}))

    @property
    def judging(self) -> ViewState:
        """The fields on which the verdict depends: equal for two views of the same verdict."""
        return replace(ViewState(), gates=self.gates, frontier=self.frontier, baseline=self.baseline,
                       group=self.group, reference=self.reference)  # fmt: skip

    def for_next_window(self) -> ViewState:
        """Return the view for another window: everything but step, cause and zoom."""
        return replace(self, step=None, cause=None, zoom=())

    def zoom_of(self, plot: str) -> tuple[Zoom, ...]:
        """Return the zoomed axes of one plot."""
        return tuple(zoom for zoom in self.zoom if zoom.plot == plot)

    def zoomed(self, plot: str, axes: Mapping[str, tuple[float, float] | None]) -> ViewState:
        """Return this view with some axes of a plot zoomed, or whole again if None."""
        kept = [zoom for zoom in self.zoom if zoom.plot != plot or zoom.axis not in axes]
        new = [Zoom(plot, axis, *ends) for axis, ends in axes.items() if ends is not None]
        return replace(self, zoom=tuple([*kept, *new][-MAX_ZOOMS:]))

    def fitted(self, window: Window) -> tuple[ViewState, list[str]]:
        """Return this view without selections that the window does not have, and a notice for each.

        Args:
            window: all ranks of the window.
        """
        notices: list[str] = []
        changes: dict[str, Any] = {}

        def take_back(name: str, default: Any, what: str, shown: str) -> None:
            changes[name] = default
            notices.append(f"This window has no {what}; {shown}.")

        if self.step is not None and self.step not in window.step_N.tolist():
            take_back("step", None, f"step {self.step}", "showing the window's mean")
        if self.group not in window.groups:
            take_back("group", ALL_RANKS, f"group {self.group!r}", "showing all ranks")
        if self.stage is not None and self.stage not in window.broad_stages:
            take_back("stage", None, f"stage {self.stage!r}", "showing the one the verdict points to")
        if self.axes is not None and not set(self.axes) <= set(window.layout):
            take_back("axes", None, f"coordinates in {' and '.join(self.axes)}", "showing those it has")
        unknown = sorted(set(self.ranks) - set(window.ranks.rank))
        if unknown:
            kept = tuple(rank for rank in self.ranks if rank not in unknown)
            take_back("ranks", kept, f"rank {unknown[0]}", "it is left out")
        lacking = None if self.fix is None else _lacking(self.fix, window)
        if lacking is not None:
            take_back("fix", None, lacking, "the what-if is about the likely cause")
        node = self.node
        if node is not None and node not in window.ranks.nodes:
            take_back("tab", OVERVIEW, f"node {node}", "showing the overview")
        return replace(self, **changes), notices

    @property
    def node(self) -> int | None:
        """The node whose tab is open."""
        kind, _, number = self.tab.partition(":")
        return whole_number(number) if kind == "node" else None


def parse_query(query: str | Iterable[tuple[str, str]]) -> tuple[ViewState, list[str]]:
    """Return the view of a query, and a notice for each part that is not understood.

    The last of several values counts. ``preset`` sets the defaults of the other parameters.
    """
    pairs = parse_qsl(query, keep_blank_values=True) if isinstance(query, str) else query
    # No address can hold a lone surrogate.
    parameters = {name: text.encode("utf-8", "replace").decode() for name, text in pairs}
    preset = parameters.pop("preset", _DEFAULT_PRESET)
    values: dict[str, Any] = {}
    notices: list[str] = []
    if preset not in PRESETS:
        known, given = ", ".join(PRESETS), quoted(preset, LONGEST_QUOTE)
        notices.append(f"In the link, preset must be one of {known}, not {given}; the default is used.")
        preset = _DEFAULT_PRESET
    gates, values["frontier"] = PRESETS[preset], PRESET_FRONTIERS[preset]
    for name, text in parameters.items():
        try:
            if name in _GATES:
                gates = gates.with_values(**{name: _GATES[name].parse(text)})
            elif name in _FIELDS:
                values[name] = _FIELDS[name].parse(text)
            else:
                notices.append(
                    f"The link's {quoted(name, LONGEST_QUOTE)} is not an option of this page; it is ignored."
                )
        except GateError as error:
            notices.append(f"In the link, {error}; the default is used.")
        except ValueError as error:
            notices.append(
                f"In the link, {name} {error}, not {quoted(text, LONGEST_QUOTE)}; the default is used."
            )
    return ViewState(gates=gates, **values), notices


def view_parameters(*further: str) -> list[dict[str, Any]]:
    """Return the query of a window's address, for the OpenAPI document.

    Args:
        further: names of fields to add that do not affect the verdict.
    """
    default = ViewState()
    named = [
        _PRESET.document("preset", "thresholds and frontier that the others start from", _DEFAULT_PRESET),
        *(
            _GATES[doc.name].document(doc.name, doc.help, getattr(default.gates, doc.name))
            for doc in GATE_DOCS
        ),
    ]
    for doc in CHOICE_DOCS:
        meaning = " ".join(f"{value}: {text}" for value, text in doc.help.items())
        named.append(_GATES[doc.name].document(doc.name, meaning, getattr(default.gates, doc.name)))
    for field_name in (*_OF_VERDICT, *further):
        value = getattr(default, field_name) or None
        named.append(_FIELDS[field_name].document(field_name, _MEANINGS[field_name], value))
    return named


def _lacking(fix: Fix, window: Window) -> str | None:
    """Return the part of a fix that the window does not have."""
    if fix.stage is not None and fix.stage not in window.broad_stages:
        return f"stage {fix.stage!r}"
    if fix.rank is not None and fix.rank not in window.ranks.rank:
        return f"rank {fix.rank}"
    if fix.node is not None and fix.node not in window.ranks.nodes:
        return f"node {fix.node}"
    return None


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _tab(text: str) -> str:
    text = _TAB_OF_TITLE.get(text, text)
    kind, _, number = text.partition(":")
    node = whole_number(number) if kind == "node" else None
    if text not in TABS and (node is None or str(node) != number):
        raise ValueError(f"must be one of {', '.join(TABS)}, node:K")
    return text


def _axes(text: str) -> tuple[str, str]:
    down, _, across = text.partition(",")
    if down not in DIMENSIONS or across not in DIMENSIONS or down == across:
        raise ValueError(f"must be two of {', '.join(DIMENSIONS)}")
    return down, across


def _zoom(text: str) -> tuple[Zoom, ...]:
    return tuple(Zoom.parse(part) for part in text.split(",")[:MAX_ZOOMS])


def _gate_parameter(doc: GateDoc) -> Parameter:
    return whole_between(int(doc.low), int(doc.high)) if doc.whole else number_between(doc.low, doc.high)


_GATES: Mapping[str, Parameter] = {
    **{doc.name: _gate_parameter(doc) for doc in GATE_DOCS},
    **{doc.name: one_of(tuple(doc.help)) for doc in CHOICE_DOCS},
}
_AXES = [",".join(pair) for pair in permutations(DIMENSIONS, 2)]
_PRESET = one_of(tuple(PRESETS))
_RANK_LIST = Parameter(
    lambda text: parse_ranks(text, MAX_RANKS),
    {
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": MOST_RANK},
        "minItems": 1,
        "maxItems": MAX_RANKS,
    },
    {"style": "form", "explode": False},
)
_FIELDS: Mapping[str, Parameter] = {
    "tab": Parameter(_tab, {"type": "string"}),
    "step": whole_between(-(2**62), 2**62),
    "frontier": one_of(FRONTIERS),
    "baseline": one_of(BASELINES),
    "group": nonempty(),
    "reference": Parameter(WindowKey.parse, schema_of(RUN_WINDOW)),
    "ranks": _RANK_LIST,
    "stage": nonempty(),
    "quantity": one_of(QUANTITIES),
    "cause": position(),
    "operator": nonempty(),
    "axes": Parameter(_axes, {"type": "string", "enum": _AXES}),
    "fix": Parameter(Fix.parse, {"type": "string", "minLength": 1}),
    "zoom": Parameter(_zoom, {"type": "string"}),
}
