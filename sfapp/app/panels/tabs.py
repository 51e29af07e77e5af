"""What the tabs of a window page hold: plots and tables by name, each with what it depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nicegui import ui

from sfapp.app.panels.choosers import heatmap_choosers, node_chooser, rank_chooser
from sfapp.app.panels.data import data_block
from sfapp.app.panels.figure import FigureCard, Plot, Reactions, plot_card
from sfapp.app.panels.scene import Key, Scene
from sfapp.app.panels.tables import data_table, evidence_table, label_table, titled
from sfapp.app.theme import box, text
from sfapp.model.view import OVERVIEW
from sfapp.views import figures, tables, words

RANKS_LISTED = 200
"""Ranks listed in the table of a window; the CSV has them all."""


@dataclass(frozen=True, slots=True)
class Block:
    """Anything beside a plot: built from a scene, and built again when its key changed."""

    build: Callable[[Scene, Reactions], None]
    key: Callable[[Scene], Key]
    span: int = 12


Item = Plot | Block


def _frontier_steps(span: int, height: int | None = None) -> Plot:
    return Plot(
        lambda s: figures.frontier_steps(s.measures, s.diagnosis, s.view.step, dark=s.dark),
        key=lambda s: (*s.matrix_key, *s.frontier_key, s.view.step),
        span=span,
        height=height,
        hint="frontier_steps",
    )


def _crossings(span: int, height: int | None = None) -> Plot:
    return Plot(
        lambda s: figures.prefix_crossings(
            s.measures, s.diagnosis, s.view.step, selected=s.view.ranks, dark=s.dark
        ),
        key=lambda s: (*s.matrix_key, *s.frontier_key, *s.aim_key, s.view.step, s.view.ranks),
        span=span,
        height=height,
        hint="prefix_crossings",
    )


def _steps() -> Plot:
    return Plot(
        lambda s: figures.step_timeline(s.measures, s.diagnosis, s.view.step, dark=s.dark),
        key=lambda s: (*s.matrix_key, *s.frontier_key, *s.aim_key, s.view.step),
        span=12,
        hint="step_timeline",
        picks_step=True,
    )


def _pareto(span: int, height: int | None = None) -> Plot:
    return Plot(
        lambda s: figures.routing_pareto(s.diagnosis, dark=s.dark),
        key=lambda s: (*s.matrix_key, *s.verdict_key),
        span=span,
        height=height,
        hint="routing_pareto",
        gates=("tau_c",),
    )


def _ambiguity(span: int, height: int | None = None) -> Plot:
    return Plot(
        lambda s: figures.ambiguity_plane(s.diagnosis, dark=s.dark),
        key=lambda s: (*s.matrix_key, *s.verdict_key),
        span=span,
        height=height,
        hint="ambiguity_plane",
        gates=("gamma_a", "gamma_g"),
    )


def _verdict_map() -> Plot:
    return Plot(
        lambda s: figures.verdict_regions(s.measures, s.diagnosis, dark=s.dark),
        key=lambda s: (*s.matrix_key, *s.verdict_key),
        span=7,
        hint="verdict_regions",
        gates=("gamma_a", "gamma_g"),
    )


def _routing_over_tau() -> Plot:
    return Plot(
        lambda s: figures.routing_over_tau(s.diagnosis, dark=s.dark),
        key=lambda s: (*s.matrix_key, *s.verdict_key),
        span=5,
        hint="routing_over_tau",
        gates=("tau_c",),
    )


def _heatmap(span: int, height: int | None = None) -> Plot:
    return Plot(
        lambda s: figures.rank_step_heatmap(
            s.measures, s.diagnosis, s.view.stage, s.view.quantity, step=s.view.step, dark=s.dark
        ),
        key=lambda s: (
            *s.matrix_key, *s.frontier_key, *s.aim_key, s.view.stage, s.view.quantity, s.view.step,
        ),
        span=span,
        height=height,
        hint="rank_step_heatmap",
        picks_step=True,
    )  # fmt: skip


def _handovers() -> Plot:
    return Plot(
        lambda s: figures.handover_matrix(s.measures, s.diagnosis, dark=s.dark),
        key=lambda s: s.matrix_key,
        span=12,
        hint="handover_matrix",
    )


def _rules() -> Plot:
    return Plot(
        lambda s: figures.rules(s.diagnosis, dark=s.dark),
        key=lambda s: (*s.matrix_key, *s.verdict_key),
        span=12,
        hint="rules",
    )


def _of_node(node: int, name: str, span: int) -> Plot:
    draw = {
        "node_ranks": figures.node_ranks,
        "node_sparklines": figures.node_sparklines,
        "node_skew": figures.node_skew,
    }[name]
    return Plot(
        lambda s: draw(s.measures, s.diagnosis, node, dark=s.dark),
        key=lambda s: (*s.matrix_key, *s.frontier_key, *s.aim_key),
        span=span,
        hint=name,
    )


def _stage_table() -> Block:
    def build(scene: Scene, _: Reactions) -> None:
        with titled("Stages", "what each number means is in the column's tooltip"):
            data_table(tables.STAGE_COLUMNS, tables.stage_rows(scene.diagnosis), "stage")

    return Block(build, lambda s: (*s.matrix_key, *s.verdict_key))


def _rank_table(node: int | None = None) -> Block:
    def build(scene: Scene, _: Reactions) -> None:
        rows = tables.rank_rows(scene.measures, scene.diagnosis)
        if node is not None:
            rows = [row for row in rows if row["node_rank"] == node]
        shown = sorted(rows, key=lambda row: -row["lead"])[:RANKS_LISTED]
        subtitle = "those that lead the aim's stage most often come first"
        if len(shown) < len(rows):
            subtitle += f"; the first {len(shown)} of {len(rows)}, all are in the CSV of the Data tab"
        with titled("Ranks", subtitle):
            data_table(tables.RANK_COLUMNS, shown, "rank")

    return Block(build, lambda s: (*s.matrix_key, *s.frontier_key, *s.aim_key))


def _step_table() -> Block:
    def build(scene: Scene, _: Reactions) -> None:
        with titled("Steps", "exposed time of each step, and who set it"):
            data_table(tables.STEP_COLUMNS, tables.step_rows(scene.measures, scene.diagnosis), "step")

    return Block(build, lambda s: (*s.matrix_key, *s.frontier_key))


def _evidence() -> Block:
    def build(scene: Scene, _: Reactions) -> None:
        with titled("Evidence", words.agreement_words(scene.diagnosis)):
            evidence_table(scene.diagnosis)

    return Block(build, lambda s: (*s.matrix_key, *s.verdict_key), span=6)


def _labels() -> Block:
    def build(scene: Scene, _: Reactions) -> None:
        with titled("Labels", "what each claims, and why it holds or was withheld"):
            label_table(scene.diagnosis)

    return Block(build, lambda s: (*s.matrix_key, *s.verdict_key), span=6)


def _gate_table() -> Block:
    def build(scene: Scene, _: Reactions) -> None:
        with titled("Gates", "how far each is from the next change of verdict, the others as they are"):
            data_table(tables.GATE_COLUMNS, tables.gate_rows(scene.measures, scene.diagnosis), "gate")

    return Block(build, lambda s: (*s.matrix_key, *s.verdict_key))


def _why() -> Block:
    def build(scene: Scene, _: Reactions) -> None:
        with titled("Why", "the comparisons that decided"), box("lines", "ul"):
            for sentence in (*words.why(scene.diagnosis), words.against_recorder(scene.diagnosis)):
                text(sentence, "li")

    return Block(build, lambda s: (*s.matrix_key, *s.verdict_key))


def items_of(tab: str, node: int | None, many_nodes: bool) -> Sequence[Item]:
    """The plots and tables of a tab, in order.

    Args:
        node: whose tab it is, None for the others.
        many_nodes: nodes share one tab, so it needs a way to choose.
    """
    if node is not None:
        # The chooser is rebuilt with the verdict's marks; a change of node is another panel.
        chooser = Block(node_chooser, lambda s: (*s.matrix_key, *s.aim_key))
        return (
            *((chooser,) if many_nodes else ()),
            _of_node(node, "node_ranks", 12),
            _of_node(node, "node_sparklines", 7),
            _of_node(node, "node_skew", 5),
            _rank_table(node),
        )
    choosers = Block(heatmap_choosers, lambda s: (*s.matrix_key, s.view.stage, s.view.quantity, *s.aim_key))
    ranks = Block(rank_chooser, lambda s: (*s.matrix_key, s.view.ranks))
    tabs: dict[str, Sequence[Item]] = {
        OVERVIEW: (
            _frontier_steps(7, 400),
            _crossings(5, 400),
            _pareto(4, 340),
            _ambiguity(4, 340),
            _heatmap(4, 340),
        ),
        "frontier": (ranks, _frontier_steps(6, 440), _crossings(6, 440), _steps(), _stage_table()),
        "ranks": (choosers, _heatmap(12), _handovers(), _rank_table()),
        "ambiguity": (
            _ambiguity(7, 420),
            _pareto(5, 420),
            _verdict_map(),
            _routing_over_tau(),
            _gate_table(),
            _stage_table(),
        ),
        "evidence": (_evidence(), _labels(), _why(), _stage_table()),
        "rules": (_rules(), _stage_table()),
        "data": (Block(data_block, lambda s: (s.judged.source,)), _step_table()),
    }
    return tabs[tab]


class Panel:
    """One tab's content, built on first show; afterwards only what changed is drawn again."""

    def __init__(self, items: Sequence[Item], scene: Scene, reactions: Reactions) -> None:
        """Build every item inside the current container."""
        self._items = items
        self._reactions = reactions
        self._keys = [item.key(scene) for item in items]
        self._built: list[FigureCard | ui.element] = []
        with box("grid"):
            for item in items:
                self._built.append(self._build(item, scene))

    def update(self, scene: Scene) -> None:
        """Draw again what depends on something that changed."""
        for place, item in enumerate(self._items):
            key = item.key(scene)
            built = self._built[place]
            zoomed = (
                isinstance(item, Plot) and isinstance(built, FigureCard) and built.axes != item.axes(scene)
            )
            if key == self._keys[place] and not zoomed:
                continue
            self._keys[place] = key
            if isinstance(item, Plot) and isinstance(built, FigureCard):
                built.redraw(item.figure(scene), item.axes(scene))
            elif isinstance(item, Block) and isinstance(built, ui.element):
                built.clear()
                with built:
                    item.build(scene, self._reactions)

    def _build(self, item: Item, scene: Scene) -> FigureCard | ui.element:
        if isinstance(item, Plot):
            return plot_card(item, scene, self._reactions)
        with box(f"span-{item.span}") as container:
            item.build(scene, self._reactions)
        return container
