"""The tabs of a live page; a part is drawn again only if its content changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from sfapp.app.panels.plot_card import FigureCard, SharedFigure
from sfapp.app.panels.plot_help import PlotHelp
from sfapp.app.panels.tables import data_table, refill, titled
from sfapp.app.theme import box, label_text
from sfapp.service.live import LiveRunSnapshot
from sfapp.views.figures import Figure
from sfapp.views.live_tables import NODE_COLUMNS, RANK_COLUMNS, SHARD, SHARD_COLUMNS, shard_rows
from sfapp.views.plot_registry import LIVE_NODE_TAB, LIVE_TAB, PLOTS, LiveInput, Placement, PlotSpec
from sfapp.views.table_columns import TableColumn

PartContent = Figure | list[dict[str, Any]]
"""A figure, or the rows of a table."""


@dataclass(frozen=True, slots=True)
class LivePart:
    """A plot, or a table if it has columns.

    Attributes:
        name: unique on its tab; a table's title.
        draw: returns its figure or rows for a snapshot and a theme (dark or not).
        span: width in columns of the page grid.
        columns: of a table; the first column is the key of its rows.
        no_rows: shown instead of a table without rows.
        shows_history: whether it shows the history only, which is read less often than the page is updated.
    """

    name: str
    draw: Callable[[LiveRunSnapshot, bool], PartContent]
    span: int = 12
    columns: tuple[TableColumn, ...] = ()
    subtitle: str = ""
    no_rows: str = ""
    shows_history: bool = False

    def content(self, snapshot: LiveRunSnapshot, dark: bool) -> PartContent:
        """Return what ``draw`` returns, or has returned for the same history."""
        if not self.shows_history:
            return self.draw(snapshot, dark)
        drawn, key = snapshot.history.drawn, (self.name, dark)
        if key not in drawn:
            drawn[key] = self.draw(snapshot, dark)
        found: PartContent = drawn[key]
        return found


def parts_of(snapshot: LiveRunSnapshot) -> Sequence[LivePart]:
    """Return the parts of the open tab in order of position."""
    node = snapshot.state.node
    tab = LIVE_TAB if node is None else LIVE_NODE_TAB
    given = live_input(snapshot)
    placed = [
        (place.position, _plot(spec, place)) for spec, place in PLOTS.on_tab(tab) if spec.applies(given)
    ]
    return [part for _, part in sorted((*placed, *tables_of(node).items()), key=lambda each: each[0])]


def tables_of(node: int | None) -> Mapping[int, LivePart]:
    """Return the tables of a node's tab, or of the overview if None, by position between its plots."""
    return _OVERVIEW_TABLES if node is None else _node_tables(node)


def live_input(snapshot: LiveRunSnapshot) -> LiveInput:
    """Return the input of the live plots."""
    node = snapshot.state.node
    return LiveInput(
        run=snapshot.run_id,
        times=snapshot.times,
        silent_s=snapshot.silent_s,
        node=0 if node is None else node,
        node_samples=snapshot.history.nodes,
        gpu_samples=snapshot.history.gpus,
        window=snapshot.window,
        rolling=None if snapshot.rolling is None else snapshot.rolling.verdict,
        stages=None if snapshot.rolling is None else snapshot.rolling.history,
        no_samples_reason="" if snapshot.history.nodes else _NO_SAMPLES,
        no_gpus_reason="" if node is None else _no_gpus_reason(snapshot, node),
    )


def _plot(spec: PlotSpec[LiveInput], place: Placement) -> LivePart:
    def draw(snapshot: LiveRunSnapshot, dark: bool) -> PartContent:
        return SharedFigure(spec.build(live_input(snapshot), dark))

    return LivePart(spec.name, draw, place.span, shows_history=set(spec.reads) <= {"history", "node"})


_OVERVIEW_TABLES: Mapping[int, LivePart] = {
    40: LivePart("Nodes", lambda s, _: s.node_table, columns=NODE_COLUMNS, subtitle="in the newest step")
}


def _node_tables(node: int) -> Mapping[int, LivePart]:
    return {
        20: LivePart(
            "Ranks of the node",
            lambda snapshot, _: snapshot.rank_table(node),
            6,
            columns=RANK_COLUMNS,
            subtitle="newest values; CPU and memory are those of the rank's process",
        ),
        70: LivePart(
            "Shards",
            lambda snapshot, _: shard_rows(snapshot.window, node),
            6,
            columns=SHARD_COLUMNS,
            subtitle="parameters by rank, from the newest finished window",
            no_rows=f"No shard sizes: perf.watch_memory(model) measures them, also under FSDP ({SHARD}).",
        ),
    }


_NO_SAMPLES = "no samples of this node in this time; its leader needs psutil, which sfapp[stream] installs"


def _no_gpus_reason(snapshot: LiveRunSnapshot, node: int) -> str:
    """Return why the node has no GPU samples; empty if it has some."""
    if any(row["node_rank"] == node for row in snapshot.gpus):
        return ""
    newest = next((row for row in snapshot.nodes if row["node_rank"] == node), None)
    return (newest and newest["no_gpu_because"]) or "the node's leader has not reported any GPU"


class LivePanel:
    """The parts of one tab on the page. Their contents are drawn on a thread."""

    def __init__(
        self, parts: Sequence[LivePart], contents: Sequence[PartContent], plot_help: PlotHelp
    ) -> None:
        """Build every part inside the current container."""
        self.names = [part.name for part in parts]
        self._parts = parts
        self._contents = list(contents)
        self._plot_help = plot_help
        self._placed: set[str] = set()
        self._built: list[FigureCard | _TableCard] = []
        with box("grid"):
            for part, content in zip(parts, contents, strict=True):
                self._built.append(self._build(part, content))

    def update(self, contents: Sequence[PartContent]) -> None:
        """Show new contents; unchanged parts are not sent to the browser again."""
        for place, content in enumerate(contents):
            if content == self._contents[place]:
                continue
            self._contents[place] = content
            built = self._built[place]
            if isinstance(built, FigureCard) and isinstance(content, dict):
                built.redraw(content)
            elif isinstance(built, _TableCard) and isinstance(content, list):
                built.show(content)

    def _build(self, part: LivePart, content: PartContent) -> FigureCard | _TableCard:
        if isinstance(content, dict):
            # Plots of one kind share one tip, shown at the first of them.
            shared = PLOTS[part.name].help_name
            is_first = shared not in self._placed
            self._placed.add(shared)
            add_help = (lambda head: self._plot_help.place(part.name, head, part.span)) if is_first else None
            return FigureCard(content, part.span, add_help=add_help)
        return _TableCard(part, content)


class _TableCard:
    """A table with its title. Its element is kept while there are rows, so that the sort order is kept."""

    def __init__(self, part: LivePart, rows: list[dict[str, Any]]) -> None:
        self._part = part
        self._box = box(f"span-{part.span}")
        self._table: ui.table | None = None
        self.show(rows)

    def show(self, rows: list[dict[str, Any]]) -> None:
        """Show rows, or the part's text if there are none."""
        part = self._part
        key = part.columns[0].field
        if self._table is not None and rows:
            refill(self._table, part.columns, rows, key)
            return
        self._box.clear()
        with self._box, titled(part.name, part.subtitle):
            if rows or not part.no_rows:
                self._table = data_table(part.columns, rows, key)
            else:
                self._table = None
                label_text(part.no_rows, "p", "muted")
