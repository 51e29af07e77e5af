"""Declare plots: one ``PlotSpec`` per plot, from which every surface derives what it shows.

A plot is added by declaring a ``PlotSpec`` at module level in one file of ``sfapp/views/figures/``, next to
the function that draws it. ``PLOTS`` finds it there. Tabs, plot help, reports, notebooks, the note form and
the links of notes read the registry, so a plot is listed nowhere else. Some pages draw a plot directly,
such as the timeline of windows on the first page.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sfapp.accounting import Comparison, Measures, Onset, RollingHistory, RollingVerdict, StepTimes
from sfapp.model import Diagnosis, Window
from sfapp.model.gates import GATE_BY_NAME
from sfapp.model.view import STRAGGLERS, TABS, ViewState
from sfapp.operators import Findings

Figure = dict[str, Any]
"""A plain Plotly figure: ``data``, ``layout`` and ``config``. ``layout.meta`` holds ``title``, ``subtitle``,
``alt`` (one sentence for screen readers) and ``notes`` (downsampling and the like) as plain text."""

Row = Mapping[str, Any]

NODE_TAB = "node"
"""Placeholder for the tab ``node:K`` of every node."""

LIVE_TAB, LIVE_NODE_TAB, COMPARE_TAB = "live", "live:node", "compare"
"""The tabs of a live page, and the page of a comparison."""

PLOT_TABS = (*TABS, NODE_TAB, COMPARE_TAB, LIVE_TAB, LIVE_NODE_TAB)
"""Every place of the app that lays out plots from the registry, in order."""

VIEW_FIELDS = ("step", "ranks", "stage", "quantity", "cause", "operator", "axes", "node")
"""Fields of ``ViewState`` that a plot can read."""

LIVE_PARTS = ("history", "newest", "rolling", "window")
"""Parts of a live page that a plot can read: step times and samples over its span, the newest samples, the
verdict on the last steps, and the newest finished window."""

VERDICT_PARTS = ("frontier", "aim", "leaders", "verdict", "findings")
"""Parts of a judged window that a plot can read: the frontier in use, the suspect stage and rank, which
leaders count (ηQ, γelig), everything that a gate changes, and the findings in operators. Every plot reads the
durations and the theme."""

GRID_COLUMNS = 12
"""Columns of the page grid that a placement's ``span`` counts."""


class PlotSpecError(ValueError):
    """A plot's declaration is incomplete, contradicts itself, or clashes with another one."""


@dataclass(frozen=True, slots=True)
class WindowInput:
    """Input of a plot of a judged window."""

    measures: Measures
    diagnosis: Diagnosis
    view: ViewState

    @property
    def node(self) -> int:
        """The node whose tab is open; the first node if none is."""
        node = self.view.node
        return self.measures.window.ranks.nodes[0] if node is None else node


@dataclass(frozen=True, slots=True)
class FindingsInput:
    """Input of a plot of a window's operators."""

    findings: Findings
    diagnosis: Diagnosis
    view: ViewState


@dataclass(frozen=True, slots=True)
class ComparisonInput:
    """Input of a plot of a comparison."""

    comparison: Comparison

    @property
    def has_several_windows(self) -> bool:
        """Whether a side has more than one window."""
        return any(len(side.windows) > 1 for side in self.comparison.sides)


@dataclass(frozen=True, slots=True)
class RunInput:
    """Input of a plot over the windows of one or more runs.

    Attributes:
        rows: windows as ``Store.timeline`` gives them, ascending.
        selected: (run_id, window) to frame.
        reference: number of the run's healthy window.
    """

    rows: Sequence[Row]
    selected: tuple[str, int] | None = None
    reference: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveInput:
    """Input of a plot of a running job.

    Attributes:
        times: step times over the shown span.
        silent_s: seconds since the last sample, by global rank.
        node: the node whose tab is open; None on the overview.
        node_samples, gpu_samples: samples of that node over the span.
        window: the newest finished window.
        rolling: the verdict on the last steps; None if their rows are not known.
        stages: exposed time by stage of the last steps; None likewise.
        no_samples_reason, no_gpus_reason: why there are none; empty if there are some.
    """

    run: str
    times: StepTimes
    silent_s: Mapping[int, float] = field(default_factory=dict)
    node: int = 0
    node_samples: Sequence[Row] = ()
    gpu_samples: Sequence[Row] = ()
    window: Window | None = None
    rolling: RollingVerdict | None = None
    stages: RollingHistory | None = None
    no_samples_reason: str = ""
    no_gpus_reason: str = ""

    @property
    def onsets(self) -> tuple[Onset, ...]:
        """The observed onsets of effects."""
        return () if self.stages is None else self.stages.onsets


INPUTS: tuple[type, ...] = (WindowInput, FindingsInput, ComparisonInput, RunInput, LiveInput)

InputT = TypeVar("InputT")


def _always(_: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Placement:
    """Position of a plot on a tab.

    Attributes:
        tab: one of ``PLOT_TABS``.
        position: order within the tab, among its plots and the tables of ``sfapp/app/panels/tabs.py`` or
            ``live_tabs.py``; unique.
        span: width in columns of the page grid.
        height: in pixels, to line up with its neighbours; the figure's own if None.
    """

    tab: str
    position: int
    span: int = GRID_COLUMNS
    height: int | None = None


@dataclass(frozen=True, kw_only=True)
class PlotSpec(Generic[InputT]):
    """The declaration of one plot.

    Attributes:
        name: identifies the plot in links, notes, zooms and cookies; never changes.
        title: as shown above the plot; a plot of one node has ``a node`` in the place of the number.
        help: how to read it, in a few sentences. Reports and notebooks show it too, so it must not tell the
            reader to click or drag.
        source: the class of its input.
        build: draws it from its input and ``dark``.
        reads: the parts of ``VERDICT_PARTS``, or of ``LIVE_PARTS``, and of ``VIEW_FIELDS`` on which it
            depends; it is drawn again when one changes. The view fields, in this order, are the arguments of
            its notebook method.
        tabs: where the app shows it; empty if a page places it itself.
        report: its position among the plots of its source in a report; None if reports leave it out.
        notebook: the method of ``window.figures`` that draws it in a notebook; None if there is none.
        gates: the thresholds that can be dragged in it.
        picks_step: whether a click chooses the step under the pointer.
        has_step_axis: whether its x axis counts steps, so that notes on a step are marked there.
        shows_one_step: whether it shows one step, so that notes on other steps are left out.
        help_name: name under which its help is dismissed, shared by plots of one kind; by default its own
            name.
        applies: whether the plot is shown for an input; not for plots of operators. That of a window depends
            on its ranks only: it is asked once, when its tab is opened.
    """

    name: str
    title: str
    help: str
    source: type[InputT]
    build: Callable[[InputT, bool], Figure]
    reads: tuple[str, ...]
    tabs: tuple[Placement, ...]
    report: int | None
    notebook: str | None
    gates: tuple[str, ...] = ()
    picks_step: bool = False
    has_step_axis: bool = False
    shows_one_step: bool = False
    help_name: str = ""
    applies: Callable[[InputT], bool] = _always

    def __post_init__(self) -> None:
        if not self.help_name:
            object.__setattr__(self, "help_name", self.name)
        for problem in self._problems():
            raise PlotSpecError(f"plot {self.name!r}: {problem}")

    def _problems(self) -> Iterator[str]:
        if not self.name.isidentifier() or self.name != self.name.lower():
            yield "the name must be in snake_case"
        for text in ("title", "help"):
            if not getattr(self, text).strip():
                yield f"{text} is empty"
        if self.source not in INPUTS:
            yield f"source must be one of {', '.join(each.__name__ for each in INPUTS)}"
        for name in self.reads:
            if name not in (known := (*VERDICT_PARTS, *LIVE_PARTS, *VIEW_FIELDS)):
                yield f"reads {name!r}, which is none of {', '.join(known)}"
        for place in self.tabs:
            if place.tab not in PLOT_TABS:
                yield f"tab {place.tab!r} is none of {', '.join(PLOT_TABS)}"
            if self.source is FindingsInput and place.tab != STRAGGLERS:
                yield f"it is drawn from operator findings, which tab {place.tab!r} does not have"
            if not 1 <= place.span <= GRID_COLUMNS:
                yield f"span {place.span} is not within 1 to {GRID_COLUMNS}"
        for gate in self.gates:
            if gate not in GATE_BY_NAME:
                yield f"{gate!r} is no gate"
        if self.notebook is not None and not self.notebook.isidentifier():
            yield f"the notebook name {self.notebook!r} is no identifier"

    def title_of(self, node: int) -> str:
        """Return the title with the number of the node that is shown."""
        return self.title.replace("a node", f"node {node}")

    @property
    def options(self) -> tuple[str, ...]:
        """The view fields that it reads."""
        return tuple(name for name in self.reads if name in VIEW_FIELDS)


class PlotRegistry:
    """Plots by name, in a fixed order: by source, then by first tab and position, then by name.

    With a package, its modules are imported on first use, in the order of their names.
    """

    def __init__(self, specs: Iterable[PlotSpec[Any]] = (), *, package: str | None = None) -> None:
        self._package = package
        self._specs: dict[str, PlotSpec[Any]] = {}
        self._add(specs)

    def __getitem__(self, name: str) -> PlotSpec[Any]:
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded

    def __iter__(self) -> Iterator[PlotSpec[Any]]:
        return iter(self._loaded.values())

    def __len__(self) -> int:
        return len(self._loaded)

    def get(self, name: str) -> PlotSpec[Any] | None:
        """Return the plot of that name, or None."""
        return self._loaded.get(name)

    def of(self, source: type[InputT]) -> tuple[PlotSpec[InputT], ...]:
        """Return the plots that are drawn from one kind of input."""
        return tuple(spec for spec in self if spec.source is source)

    @property
    def of_windows(self) -> tuple[PlotSpec[Any], ...]:
        """The plots of a window page, which notes can be pinned to: of windows and of their operators."""
        return (*self.of(WindowInput), *self.of(FindingsInput))

    def on_tab(self, tab: str) -> tuple[tuple[PlotSpec[Any], Placement], ...]:
        """Return the plots of a tab with their placements, in order of position."""
        found = [(spec, place) for spec in self for place in spec.tabs if place.tab == tab]
        return tuple(sorted(found, key=lambda each: each[1].position))

    def in_report(self, source: type[InputT]) -> tuple[PlotSpec[InputT], ...]:
        """Return the plots of a report that are drawn from one kind of input, in order."""
        placed = [(spec.report, spec) for spec in self.of(source) if spec.report is not None]
        return tuple(spec for _, spec in sorted(placed, key=lambda each: (each[0], each[1].name)))

    @property
    def notebook_methods(self) -> Mapping[str, PlotSpec[WindowInput]]:
        """The plots of a window by the name of their method in a notebook."""
        return {spec.notebook: spec for spec in self.of(WindowInput) if spec.notebook is not None}

    @contextmanager
    def extended(self, *specs: PlotSpec[Any]) -> Iterator[None]:
        """Add plots for the time of a ``with`` block.

        Raises:
            PlotSpecError: one clashes with a plot that is there.
        """
        before = dict(self._loaded)
        self._add(specs)
        try:
            yield
        finally:
            self._specs = before

    @property
    def _loaded(self) -> dict[str, PlotSpec[Any]]:
        if self._package is not None:
            self._add(declared_in(self._package))
            self._package = None
        return self._specs

    def _add(self, specs: Iterable[PlotSpec[Any]]) -> None:
        known = dict(self._specs)
        for spec in specs:
            if known.setdefault(spec.name, spec) is not spec:
                raise PlotSpecError(f"plot {spec.name!r} is declared twice")
        _check_unique("notebook name", ((spec.notebook, spec) for spec in known.values() if spec.notebook))
        _check_unique(
            "position",
            (
                (f"{place.position} on tab {place.tab}", spec)
                for spec in known.values()
                for place in spec.tabs
            ),
        )
        self._specs = {spec.name: spec for spec in sorted(known.values(), key=_order)}


def declared_in(package: str) -> Iterator[PlotSpec[Any]]:
    """Import the modules of a package in order of name, and yield the plots that they declare.

    A plot is declared by a module-level constant that is a ``PlotSpec`` or a tuple of them.
    """
    found: dict[int, PlotSpec[Any]] = {}
    path = importlib.import_module(package).__path__
    for name in sorted(info.name for info in pkgutil.iter_modules(path)):
        for value in vars(importlib.import_module(f"{package}.{name}")).values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, PlotSpec):
                    found[id(each)] = each
    yield from found.values()


def _check_unique(what: str, pairs: Iterable[tuple[str | None, PlotSpec[Any]]]) -> None:
    taken: dict[str | None, PlotSpec[Any]] = {}
    for key, spec in pairs:
        other = taken.setdefault(key, spec)
        if other is not spec:
            raise PlotSpecError(f"plots {other.name!r} and {spec.name!r} share the {what} {key}")


def _order(spec: PlotSpec[Any]) -> tuple[int, int, int, str]:
    first = spec.tabs[0] if spec.tabs else None
    tab, position = (len(PLOT_TABS), 0) if first is None else (PLOT_TABS.index(first.tab), first.position)
    return INPUTS.index(spec.source), tab, position, spec.name


PLOTS = PlotRegistry(package="sfapp.views.figures")
"""Every plot of sfapp."""
