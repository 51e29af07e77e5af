"""What the tabs of a window page hold: plots and tables by name, each with what it depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from nicegui import ui

from sfapp.app.panels.choosers import heatmap_choosers, node_chooser, rank_chooser
from sfapp.app.panels.data_tab import data_block
from sfapp.app.panels.plot_card import FigureCard, Plot, Reactions, plot_card
from sfapp.app.panels.straggler_cards import (
    cause_table,
    collective_table,
    files_card,
    headline_card,
    notes_card,
    operator_chooser,
    outlier_table,
    timeline_choosers,
)
from sfapp.app.panels.tables import data_table, evidence_table, gate_table, label_table, titled
from sfapp.app.panels.view_model import Follow, Key, TabViewModel
from sfapp.app.theme import box, label_text
from sfapp.model.view import NOTES, OVERVIEW, STRAGGLERS
from sfapp.views import figures, tables, text

RANKS_LISTED = 200
"""Ranks listed in the table of a window; the CSV has them all."""


@dataclass(frozen=True, slots=True)
class Block:
    """Anything beside a plot: built from a scene, and built again when its key changed.

    Attributes:
        build: may return what brings it up to date in place while only ``follows`` changes: what somebody
            works with must not be taken away under the pointer, nor the keyboard's focus with it.
        rests: it takes many judgements, so it follows once a drag rests.
    """

    build: Callable[[TabViewModel, Reactions], Follow | None]
    key: Callable[[TabViewModel], Key]
    span: int = 12
    rests: bool = False
    follows: Callable[[TabViewModel], Key] = lambda scene: ()


Item = Plot | Block


def _plot(name: str, span: int, height: int | None = None) -> Plot:
    """A plot by its name, with what it depends on and how it answers."""
    reads = _READS[name]
    return Plot(
        name,
        key=lambda scene: (
            *scene.matrix_key,
            *reads(scene),
            figures.notes_in(name, scene.notes, scene.view.step),
        ),
        span=span,
        height=height,
        picks_step=name in ("step_timeline", "rank_step_heatmap"),
        gates=_DRAGGED.get(name, ()),
    )


_READS: Mapping[str, Callable[[TabViewModel], Key]] = {
    "frontier_steps": lambda s: (*s.frontier_key, s.view.step),
    "prefix_crossings": lambda s: (*s.frontier_key, *s.aim_key, s.view.step, s.view.ranks),
    "step_timeline": lambda s: (*s.frontier_key, *s.aim_key, s.view.step),
    "routing_pareto": lambda s: s.verdict_key,
    "ambiguity_plane": lambda s: s.verdict_key,
    "verdict_regions": lambda s: s.verdict_key,
    "routing_over_tau": lambda s: s.verdict_key,
    "rank_step_heatmap": lambda s: (
        *s.frontier_key, *s.aim_key, s.view.stage, s.view.quantity, s.view.step,
    ),
    "handover_matrix": lambda s: (),
    "rules": lambda s: s.verdict_key,
    "node_ranks": lambda s: (*s.frontier_key, *s.aim_key),
    "node_sparklines": lambda s: (*s.frontier_key, *s.aim_key),
    "node_skew": lambda s: (*s.frontier_key, *s.aim_key),
    "straggler_distances": lambda s: (*s.examined_key, *s.aim_key),
    "straggler_scores": lambda s: (*s.examined_key, *s.aim_key, s.view.cause),
    "blame_path": lambda s: (*s.examined_key, s.view.cause),
    "operator_timeline": lambda s: (
        *s.examined_key, *s.aim_key, s.view.cause, s.view.ranks, s.view.step,
    ),
    "operator_frequency": lambda s: (*s.examined_key, s.view.cause, s.view.operator),
    "collective_split": lambda s: (*s.examined_key, s.view.step),
}  # fmt: skip
"""What of a scene each plot depends on, beside the matrix."""

_DRAGGED: Mapping[str, tuple[str, ...]] = {
    "routing_pareto": ("tau_c",),
    "routing_over_tau": ("tau_c",),
    "ambiguity_plane": ("gamma_a", "gamma_g"),
    "verdict_regions": ("gamma_a", "gamma_g"),
}
"""The thresholds drawn in a plot, which can be dragged there."""


def _stage_table() -> Block:
    def build(scene: TabViewModel, _: Reactions) -> None:
        with titled("Stages", "what each number means is in the column's tooltip"):
            data_table(tables.STAGE_COLUMNS, tables.stage_rows(scene.diagnosis), "stage")

    return Block(build, lambda s: (*s.matrix_key, *s.verdict_key))


def _rank_table(node: int | None = None) -> Block:
    def build(scene: TabViewModel, _: Reactions) -> None:
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
    def build(scene: TabViewModel, _: Reactions) -> None:
        with titled("Steps", "exposed time of each step, and who set it"):
            data_table(tables.STEP_COLUMNS, tables.step_rows(scene.measures, scene.diagnosis), "step")

    return Block(build, lambda s: (*s.matrix_key, *s.frontier_key))


def _evidence() -> Block:
    def build(scene: TabViewModel, _: Reactions) -> None:
        with titled("Evidence", text.agreement_words(scene.diagnosis)):
            evidence_table(scene.diagnosis)

    return Block(build, lambda s: (*s.matrix_key, *s.verdict_key), span=6)


def _labels() -> Block:
    def build(scene: TabViewModel, _: Reactions) -> None:
        with titled("Labels", "what each claims, and why it holds or was withheld"):
            label_table(scene.diagnosis)

    return Block(build, lambda s: (*s.matrix_key, *s.verdict_key), span=6)


def _gate_table() -> Block:
    def build(scene: TabViewModel, _: Reactions) -> None:
        with titled("Gates", "how far each is from the next change of verdict, the others as they are"):
            gate_table(scene.measures, scene.diagnosis)

    return Block(build, lambda s: (*s.matrix_key, *s.verdict_key), rests=True)


def _why() -> Block:
    def build(scene: TabViewModel, _: Reactions) -> None:
        with titled("Why", "the comparisons that decided"), box("lines", "ul"):
            for sentence in filter(
                None, (*text.why(scene.diagnosis), text.against_recorder(scene.diagnosis))
            ):
                label_text(sentence, "li")

    return Block(build, lambda s: (*s.matrix_key, *s.verdict_key))


def _straggler_items() -> Sequence[Item]:
    """Of a scene whose operators were examined: what they say, who differs, why, and the evidence."""

    def looked_into(scene: TabViewModel) -> Key:
        view = scene.view
        return *scene.examined_key, *scene.aim_key, view.cause, view.ranks, view.step

    return (
        Block(headline_card, lambda s: (*s.examined_key, s.agreement)),
        _plot("straggler_distances", 7),
        _plot("straggler_scores", 5),
        Block(cause_table, lambda s: s.examined_key, follows=lambda s: (s.view.cause, s.view.step)),
        _plot("blame_path", 12),
        Block(timeline_choosers, lambda s: s.examined_key, follows=looked_into),
        _plot("operator_timeline", 12),
        Block(files_card, lambda s: (*looked_into(s), s.view)),
        Block(operator_chooser, lambda s: s.examined_key, follows=lambda s: (s.view.cause, s.view.operator)),
        _plot("operator_frequency", 12),
        Block(outlier_table, lambda s: s.examined_key),
        _plot("collective_split", 12),
        Block(collective_table, lambda s: s.examined_key),
        Block(notes_card, lambda s: s.examined_key),
    )


def items_of(tab: str, node: int | None, many_nodes: bool) -> Sequence[Item]:
    """The plots and tables of a tab, in order.

    Args:
        node: whose tab it is, None for the others.
        many_nodes: nodes share one tab, so it needs a way to choose.
    """
    if node is not None:
        # The chooser is rebuilt with the verdict's marks; a change of node is another panel.
        chooser = Block(node_chooser, lambda s: (*s.matrix_key, *s.aim_key), follows=lambda s: (s.view.node,))
        return (
            *((chooser,) if many_nodes else ()),
            _plot("node_ranks", 12),
            _plot("node_sparklines", 7),
            _plot("node_skew", 5),
            _rank_table(node),
        )
    choosers = Block(
        heatmap_choosers,
        lambda s: (*s.matrix_key, *s.aim_key),
        follows=lambda s: (s.view.stage, s.view.quantity),
    )
    ranks = Block(rank_chooser, lambda s: s.matrix_key, follows=lambda s: (s.view.ranks,))
    tabs: dict[str, Sequence[Item]] = {
        OVERVIEW: (
            _plot("frontier_steps", 7, 400),
            _plot("prefix_crossings", 5, 400),
            _plot("routing_pareto", 4, 340),
            _plot("ambiguity_plane", 4, 340),
            _plot("rank_step_heatmap", 4, 340),
        ),
        "frontier": (
            ranks,
            _plot("frontier_steps", 6, 440),
            _plot("prefix_crossings", 6, 440),
            _plot("step_timeline", 12),
            _stage_table(),
        ),
        "ranks": (choosers, _plot("rank_step_heatmap", 12), _plot("handover_matrix", 12), _rank_table()),
        "ambiguity": (
            _plot("ambiguity_plane", 7, 420),
            _plot("routing_pareto", 5, 420),
            _plot("verdict_regions", 7),
            _plot("routing_over_tau", 5),
            _gate_table(),
            _stage_table(),
        ),
        STRAGGLERS: _straggler_items(),
        "evidence": (_evidence(), _labels(), _why(), _stage_table()),
        "rules": (_plot("rules", 12), _stage_table()),
        "data": (Block(data_block, lambda s: (s.judged.source,)), _step_table()),
        # The list is kept up to date by the notes_panel: what is being typed in it must stay.
        NOTES: (Block(lambda _, reactions: reactions.notes_panel.notes_list(), lambda s: ()),),
    }
    return tabs[tab]


class Panel:
    """One tab's content, built on first show; afterwards only what changed is drawn again."""

    def __init__(self, items: Sequence[Item], scene: TabViewModel, reactions: Reactions) -> None:
        """Build every item inside the current container."""
        self._items = items
        self._reactions = replace(reactions, look=self._look)
        self._asked = reactions.look
        self._following = False
        self._keys = [item.key(scene) for item in items]
        self._built: list[FigureCard | ui.element] = []
        self._follow: dict[int, Follow] = {}
        self._shown: dict[int, Key] = {}
        with box("grid"):
            for place, item in enumerate(items):
                self._built.append(self._build(place, item, scene))

    def update(self, scene: TabViewModel, *, resting: bool = False) -> None:
        """Draw again what depends on something that changed.

        Args:
            resting: no control is being dragged, so that what takes its time may follow too.
        """
        for place, item in enumerate(self._items):
            if isinstance(item, Block) and item.rests and not resting:
                continue
            key = item.key(scene)
            built = self._built[place]
            zoomed = (
                isinstance(item, Plot) and isinstance(built, FigureCard) and built.axes != item.axes(scene)
            )
            if key == self._keys[place] and not zoomed:
                if isinstance(item, Block):
                    self._bring_up_to_date(place, item, scene)
                continue
            self._keys[place] = key
            if isinstance(item, Plot) and isinstance(built, FigureCard):
                built.redraw(item.figure(scene), item.axes(scene))
            elif isinstance(item, Block) and isinstance(built, ui.element):
                built.clear()
                self._fill(place, item, built, scene)

    def _build(self, place: int, item: Item, scene: TabViewModel) -> FigureCard | ui.element:
        if isinstance(item, Plot):
            return plot_card(item, scene, self._reactions)
        container = box(f"span-{item.span}")
        self._fill(place, item, container, scene)
        return container

    def _fill(self, place: int, block: Block, container: ui.element, scene: TabViewModel) -> None:
        with container, self._quietly():
            follow = block.build(scene, self._reactions)
        self._follow.pop(place, None)
        if follow is not None:
            self._follow[place] = follow
            self._shown[place] = block.follows(scene)

    def _bring_up_to_date(self, place: int, block: Block, scene: TabViewModel) -> None:
        follow, wanted = self._follow.get(place), block.follows(scene)
        if follow is not None and wanted != self._shown.get(place):
            self._shown[place] = wanted
            with self._quietly():
                follow(scene)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """NiceGUI tells of every change of a value, also of one that only shows what is looked at already."""
        self._following = True
        try:
            yield
        finally:
            self._following = False

    def _look(self, **fields: Any) -> None:
        """Somebody picked something: it shows that already, whatever comes of it."""
        if not self._following:
            self._shown.clear()
            self._asked(**fields)
