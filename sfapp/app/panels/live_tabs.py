"""What the tabs of a live page hold; each part is drawn again only where what it shows has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from sfapp.app.panels.plot_card import FigureCard
from sfapp.app.panels.plot_help import ReadingAids
from sfapp.app.panels.tables import data_table, refill, titled
from sfapp.app.theme import box, label_text, link
from sfapp.service.live import LiveRunSnapshot
from sfapp.views import text
from sfapp.views.figures import Figure
from sfapp.views.live_tables import NODE_COLUMNS, RANK_COLUMNS, SHARD, SHARD_COLUMNS, shard_rows
from sfapp.views.plot_registry import LIVE_NODE_TAB, LIVE_TAB, PLOTS, LiveInput, Placement, PlotSpec
from sfapp.views.tables import TableColumn

Drawn = Figure | list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class LivePart:
    """A plot, or a table where it has columns.

    Attributes:
        name: unique on its tab; a table's title.
        draw: returns its figure or its rows, given the scene and whether the theme is dark.
        span: width in columns of the page grid.
        columns: of a table; the first one is the key of its rows.
        nothing: shown in the place of a table without rows.
    """

    name: str
    draw: Callable[[LiveRunSnapshot, bool], Drawn]
    span: int = 12
    columns: tuple[TableColumn, ...] = ()
    subtitle: str = ""
    nothing: str = ""


def parts_of(scene: LiveRunSnapshot) -> Sequence[LivePart]:
    """Return the parts of the open tab in order of position."""
    node = scene.state.node
    tab, tables = (LIVE_TAB, _OVERVIEW_TABLES) if node is None else (LIVE_NODE_TAB, _node_tables(node))
    given = live_input(scene)
    placed = [
        (place.position, _plot(spec, place)) for spec, place in PLOTS.on_tab(tab) if spec.applies(given)
    ]
    return [part for _, part in sorted((*placed, *tables.items()), key=lambda each: each[0])]


def live_input(scene: LiveRunSnapshot) -> LiveInput:
    """Return what the live plots are drawn from."""
    node = scene.state.node
    return LiveInput(
        run=scene.run_id,
        times=scene.times,
        silent_s=scene.silent_s,
        node=0 if node is None else node,
        node_samples=scene.history.nodes,
        gpu_samples=scene.history.gpus,
        window=scene.window,
        no_samples_reason="" if scene.history.nodes else _NO_SAMPLES,
        no_gpus_reason="" if node is None else _no_gpus_reason(scene, node),
    )


def _plot(spec: PlotSpec[LiveInput], place: Placement) -> LivePart:
    return LivePart(spec.name, lambda scene, dark: spec.build(live_input(scene), dark), place.span)


_OVERVIEW_TABLES: Mapping[int, LivePart] = {
    40: LivePart("Nodes", lambda s, _: s.node_table, columns=NODE_COLUMNS, subtitle="in the newest step")
}


def _node_tables(node: int) -> Mapping[int, LivePart]:
    return {
        20: LivePart(
            "Ranks of the node",
            lambda scene, _: scene.rank_table(node),
            6,
            columns=RANK_COLUMNS,
            subtitle="newest values; CPU and memory are those of the rank's process",
        ),
        70: LivePart(
            "Shards",
            lambda scene, _: shard_rows(scene.window, node),
            6,
            columns=SHARD_COLUMNS,
            subtitle="parameters by rank, from the newest finished window",
            nothing=f"No shard sizes: perf.watch_memory(model) measures them, also under FSDP ({SHARD}).",
        ),
    }


_NO_SAMPLES = "no samples of this node in this time; its leader needs psutil, which sfapp[stream] installs"


def _no_gpus_reason(scene: LiveRunSnapshot, node: int) -> str:
    """Return why the node has no GPU samples; empty where it has some."""
    if any(row["node_rank"] == node for row in scene.gpus):
        return ""
    newest = next((row for row in scene.nodes if row["node_rank"] == node), None)
    return (newest and newest["no_gpu_because"]) or "the node's leader has not reported any GPU"


class LivePanel:
    """The content of one tab; ``bring`` is given what was drawn for it elsewhere."""

    def __init__(self, parts: Sequence[LivePart], drawn: Sequence[Drawn], aids: ReadingAids) -> None:
        """Build every part inside the current container."""
        self.names = [part.name for part in parts]
        self._parts = parts
        self._drawn = list(drawn)
        self._aids = aids
        self._placed: set[str] = set()
        self._built: list[FigureCard | _TableCard] = []
        with box("grid"):
            for part, one in zip(parts, drawn, strict=True):
                self._built.append(self._build(part, one))

    def bring(self, drawn: Sequence[Drawn]) -> None:
        """Show these; what is as it was is not sent to the browser again."""
        for place, one in enumerate(drawn):
            if one == self._drawn[place]:
                continue
            self._drawn[place] = one
            built = self._built[place]
            if isinstance(built, FigureCard) and isinstance(one, dict):
                built.redraw(one)
            elif isinstance(built, _TableCard) and isinstance(one, list):
                built.show(one)

    def _build(self, part: LivePart, drawn: Drawn) -> FigureCard | _TableCard:
        if isinstance(drawn, dict):
            # Plots of one kind share one help, which stands at the first of them.
            shared = PLOTS[part.name].help_name
            is_first = shared not in self._placed
            self._placed.add(shared)
            aid = (lambda head: self._aids.place(part.name, head, part.span)) if is_first else None
            return FigureCard(drawn, part.span, aid=aid)
        return _TableCard(part, drawn)


class _TableCard:
    """A table with its title; the same element as long as there are rows, so that it stays sorted."""

    def __init__(self, part: LivePart, rows: list[dict[str, Any]]) -> None:
        self._part = part
        self._box = box(f"span-{part.span}")
        self._table: ui.table | None = None
        self.show(rows)

    def show(self, rows: list[dict[str, Any]]) -> None:
        part = self._part
        key = part.columns[0].field
        if self._table is not None and rows:
            refill(self._table, part.columns, rows, key)
            return
        self._box.clear()
        with self._box, titled(part.name, part.subtitle):
            if rows or not part.nothing:
                self._table = data_table(part.columns, rows, key)
            else:
                self._table = None
                label_text(part.nothing, "p", "muted")


class LiveHead:
    """Over the tabs: how the job stands, who is silent, what was lost, the newest verdict."""

    def __init__(self) -> None:
        """Build it empty."""
        self._shown: object = None
        self._box = box("card live-head", "section").mark("live-head")
        self._box.props["aria-live"] = "polite"

    def show(self, scene: LiveRunSnapshot) -> None:
        """Say how it is now, where that differs."""
        said, kind = text.standing(len(scene.links), scene.silent_s, scene.left)
        silences = text.silences(scene.silent_s)
        counters = text.counters(scene.links, scene.aggregator)
        if (shown := (said, silences, counters, scene.verdict, scene.state.until)) == self._shown:
            return
        self._shown = shown
        self._box.clear()
        with self._box:
            self._fill(scene, said, kind, silences, counters)

    def _fill(
        self,
        scene: LiveRunSnapshot,
        said: str,
        kind: str,
        silences: Sequence[str],
        counters: Sequence[tuple[str, str, str]],
    ) -> None:
        with box("live-standing"):
            label_text(said, "h1", f"standing standing-{kind}").mark("standing")
            if scene.state.until is not None:
                label_text(f"frozen at {scene.at:%H:%M:%S} UTC", "span", "badge badge-warn").mark("frozen")
        if silences:
            with box("lines silences", "ul"):
                for silence in silences:
                    label_text(silence, "li")
        with box("live-facts"):
            for content, weight, meaning in counters:
                badge = label_text(content, "span", "badge badge-warn" if weight == "warn" else "badge")
                badge.props["title"] = meaning
            box("grow")
            if scene.verdict:
                label_text("newest verdict", "span", "muted")
                link(scene.verdict["said"], scene.verdict["href"], "badge").mark("newest-window")
            else:
                label_text("no window has been finished yet", "span", "muted")
