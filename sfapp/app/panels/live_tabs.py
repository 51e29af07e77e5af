"""What the tabs of a live page hold; each part is drawn again only where what it shows has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from sfapp.app.live import LiveScene
from sfapp.app.panels.plot_card import FigureCard
from sfapp.app.panels.plot_help import ReadingAids
from sfapp.app.panels.tables import data_table, refill, titled
from sfapp.app.theme import box, label_text, link
from sfapp.views import figures, text
from sfapp.views.figures import Figure
from sfapp.views.live_tables import NODE_COLUMNS, RANK_COLUMNS, SHARD, SHARD_COLUMNS, shard_rows
from sfapp.views.tables import Column

Drawn = Figure | list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Part:
    """A plot, or a table where it has columns.

    Attributes:
        name: tells it from the other parts of its tab.
        draw: its figure or its rows, given what is known and whether the theme is dark.
        span: width in twelfths of the page.
        aid: its reading aid in ``text.LIVE_HINTS``.
        columns: of a table, whose title is ``name`` and whose rows have the first column as their key.
        nothing: said in the place of a table without rows.
    """

    name: str
    draw: Callable[[LiveScene, bool], Drawn]
    span: int = 12
    aid: str = ""
    columns: tuple[Column, ...] = ()
    subtitle: str = ""
    nothing: str = ""


def parts_of(scene: LiveScene) -> Sequence[Part]:
    """The parts of the open tab, in order."""
    node = scene.state.node
    if node is None:
        return _OVERVIEW
    return (
        Part("courses", lambda s, dark: figures.live_courses(s.times, node, run=s.run_id, dark=dark), 6,
             "live_courses"),
        Part("Ranks of the node", lambda s, _: s.rank_table(node), 6, columns=RANK_COLUMNS,
             subtitle="newest of each; CPU and memory are those of the rank's process"),
        *(_of_node(field, title) for field, title in _NODE_FIELDS.items()),
        *(_gpu_parts(scene, node)),
        Part("layers", lambda s, dark: figures.live_layers(s.window, node, run=s.run_id, dark=dark), 6,
             "live_layers"),
        Part("Shards", lambda s, _: shard_rows(s.window, node), 6, columns=SHARD_COLUMNS,
             subtitle="parameters by rank, from the newest finished window",
             nothing=f"Nobody measured any: perf.watch_memory(model) does, under FSDP too ({SHARD})."),
    )  # fmt: skip


_OVERVIEW: Sequence[Part] = (
    Part("steps", lambda s, dark: figures.live_steps(s.times, run=s.run_id, dark=dark), 7, "live_steps"),
    Part(
        "ranks",
        lambda s, dark: figures.live_ranks(s.times, s.silent_s, run=s.run_id, dark=dark),
        5,
        "live_ranks",
    ),
    Part("skew", lambda s, dark: figures.live_skew(s.times, run=s.run_id, dark=dark), 12, "live_skew"),
    Part("Nodes", lambda s, _: s.node_table, columns=NODE_COLUMNS, subtitle="in the newest step of all"),
)

_NODE_FIELDS: Mapping[str, str] = {
    "cpu_percent": "CPU",
    "load_1min": "Load, over a minute",
    "memory_used_bytes": "Memory in use",
    "disk_read_bytes_per_s": "Read from disks",
    "disk_written_bytes_per_s": "Written to disks",
    "network_received_bytes_per_s": "Received",
    "network_sent_bytes_per_s": "Sent",
}

_GPU_FIELDS: Mapping[str, str] = {
    "utilisation_percent": "GPU utilisation",
    "memory_used_bytes": "GPU memory",
    "temperature_celsius": "GPU temperature",
    "power_watts": "GPU power",
    "sm_clock_mhz": "GPU clock",
}


def _of_node(field: str, title: str) -> Part:
    """One of the node's own values over time."""

    def draw(scene: LiveScene, dark: bool) -> Figure:
        return figures.samples_over_time(
            scene.history.nodes, field, title=title, run=scene.run_id, dark=dark, why=_why_no_sample(scene)
        )

    return Part(field, draw, 4, "samples_over_time")


def _why_no_sample(scene: LiveScene) -> str:
    if scene.history.nodes:
        return ""
    return "nothing was said of this node in this time; its leader needs psutil, which sfapp[stream] brings"


def _gpu_parts(scene: LiveScene, node: int) -> Sequence[Part]:
    """A plot a value of the node's GPUs; where there is none, why."""
    if not any(row["node_rank"] == node for row in scene.gpus):
        return (Part("GPUs", lambda s, dark: figures.no_gpus(_why_no_gpu(s, node), dark=dark), 4),)
    return [_of_gpus(field, title) for field, title in _GPU_FIELDS.items()]


def _of_gpus(field: str, title: str) -> Part:
    def draw(scene: LiveScene, dark: bool) -> Figure:
        return figures.samples_over_time(
            scene.history.gpus,
            field,
            title=title,
            subject="gpu",
            why="the driver does not say for these GPUs",
            run=scene.run_id,
            dark=dark,
        )

    return Part(f"gpu {field}", draw, 4, "samples_over_time")


def _why_no_gpu(scene: LiveScene, node: int) -> str:
    newest = next((row for row in scene.nodes if row["node_rank"] == node), None)
    return (newest and newest["no_gpu_because"]) or "the node's leader has said nothing of GPUs"


class LivePanel:
    """The content of one tab; ``bring`` is given what was drawn for it elsewhere."""

    def __init__(self, parts: Sequence[Part], drawn: Sequence[Drawn], aids: ReadingAids) -> None:
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

    def _build(self, part: Part, drawn: Drawn) -> FigureCard | _TableCard:
        if isinstance(drawn, dict):
            # One reading aid for all plots of a kind.
            aided = part.aid and part.aid not in self._placed
            self._placed.add(part.aid)
            aid = (lambda head: self._aids.place(part.aid, head, part.span)) if aided else None
            return FigureCard(drawn, part.span, aid=aid)
        return _TableCard(part, drawn)


class _TableCard:
    """A table with its title; the same element as long as there are rows, so that it stays sorted."""

    def __init__(self, part: Part, rows: list[dict[str, Any]]) -> None:
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

    def show(self, scene: LiveScene) -> None:
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
        scene: LiveScene,
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
