"""Lay out the tabs of a window page: the registered plots, and the tables and choosers between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nicegui import ui

from sfapp.accounting import layout_axes
from sfapp.app.panels.choosers import heatmap_choosers, layout_chooser, node_chooser, rank_chooser
from sfapp.app.panels.data_tab import data_block
from sfapp.app.panels.plot_card import FigureCard, PlacedPlot, Reactions, plot_card
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
from sfapp.app.panels.tables import data_table, refill, titled
from sfapp.app.panels.verdict_tables import evidence_table, gate_table, label_table, refill_gates
from sfapp.app.panels.view_model import Follow, Key, TabViewModel
from sfapp.app.theme import box, label_text
from sfapp.model.view import NOTES, STRAGGLERS
from sfapp.views import format, tables, text
from sfapp.views.gate_tables import gate_rows
from sfapp.views.plot_registry import NODE_TAB, PLOTS
from sfapp.views.rank_rows import rank_rows
from sfapp.views.table_columns import Row

RANKS_LISTED = 200
"""Maximum number of ranks in the table of a window; the CSV has all of them."""


@dataclass(frozen=True, slots=True)
class TabBlock:
    """A table, chooser or card on a tab: built from the view model, and built again when its key changes.

    Attributes:
        build: may return a function that updates it in place while only ``follows`` changes, so that a
            control in use keeps the pointer and the keyboard focus.
        is_slow: takes many judgements, so it is updated only once a drag has ended.
        compute: computes what ``build`` shows, for the model to keep; on a thread where the window is large.
        applies: whether it is shown for a window.
    """

    build: Callable[[TabViewModel, Reactions], Follow | None]
    key: Callable[[TabViewModel], Key]
    span: int = 12
    is_slow: bool = False
    follows: Callable[[TabViewModel], Key] = lambda model: ()
    compute: Callable[[TabViewModel], object] = lambda model: None
    applies: Callable[[TabViewModel], bool] = lambda model: True


Item = PlacedPlot | TabBlock


def _stage_table() -> TabBlock:
    def build(model: TabViewModel, _: Reactions) -> Follow:
        with titled("Stages", "hover a column title for its meaning"):
            rows = tables.stage_rows(model.diagnosis)
            table = data_table(tables.stage_columns(rows), rows, "stage")

        def follow(model: TabViewModel) -> None:
            rows = tables.stage_rows(model.diagnosis)
            refill(table, tables.stage_columns(rows), rows, "stage")

        return follow

    return TabBlock(build, lambda model: model.matrix_key, follows=lambda model: model.verdict_key)


def _rank_table(node: int | None = None) -> TabBlock:
    def key(model: TabViewModel) -> Key:
        return *model.matrix_key, *model.frontier_key, *model.aim_key

    def compute(model: TabViewModel) -> tuple[list[Row], int]:
        def rows() -> tuple[list[Row], int]:
            places = tables.slowest_first(model.measures, model.diagnosis, node)
            return rank_rows(model.measures, model.diagnosis).rows(places[:RANKS_LISTED]), len(places)

        return model.computed.get(f"rank table {node}", key(model), rows)

    def build(model: TabViewModel, _: Reactions) -> None:
        shown, count = compute(model)
        subtitle = "those that are slowest at the suspect stage most often come first"
        if len(shown) < count:
            first = f"the first {format.count(len(shown))} of {format.count(count)}"
            subtitle += f"; {first}; the CSV on the Data tab has all"
        with titled("Ranks", subtitle):
            data_table(tables.rank_columns(shown), shown, "rank")

    return TabBlock(build, key, compute=compute)


def _step_table() -> TabBlock:
    def key(model: TabViewModel) -> Key:
        return *model.matrix_key, *model.frontier_key

    def compute(model: TabViewModel) -> list[Row]:
        rows = partial(tables.step_rows, model.measures, model.diagnosis)
        return model.computed.get("step table", key(model), rows)

    def build(model: TabViewModel, _: Reactions) -> None:
        with titled("Steps", "exposed time of each step, and its slowest rank"):
            data_table(tables.STEP_COLUMNS, compute(model), "step")

    return TabBlock(build, key, compute=compute)


def _evidence() -> TabBlock:
    def build(model: TabViewModel, _: Reactions) -> None:
        with titled("Evidence", text.agreement_words(model.diagnosis)):
            evidence_table(model.diagnosis)

    return TabBlock(build, lambda model: (*model.matrix_key, *model.verdict_key), span=6)


def _labels() -> TabBlock:
    def build(model: TabViewModel, _: Reactions) -> None:
        with titled("Labels", "what each label claims, and why it holds or is suppressed"):
            label_table(model.diagnosis)

    return TabBlock(build, lambda model: (*model.matrix_key, *model.verdict_key), span=6)


def _gate_table() -> TabBlock:
    def key(model: TabViewModel) -> Key:
        return *model.matrix_key, *model.verdict_key

    def compute(model: TabViewModel) -> list[Row]:
        rows = partial(gate_rows, model.measures, model.diagnosis)
        return model.computed.get("gate table", key(model), rows)

    def build(model: TabViewModel, _: Reactions) -> Follow:
        with titled("Gates", "distance to the next change of verdict, other thresholds fixed"):
            table = gate_table(compute(model))
        return lambda model: refill_gates(table, compute(model))

    return TabBlock(build, lambda model: model.matrix_key, is_slow=True, follows=key, compute=compute)


def _why() -> TabBlock:
    def build(model: TabViewModel, _: Reactions) -> None:
        with titled("Why", "the comparisons that decide the verdict"), box("lines", "ul"):
            for sentence in filter(
                None, (*text.why(model.diagnosis), text.against_recorder(model.diagnosis))
            ):
                label_text(sentence, "li")

    return TabBlock(build, lambda model: (*model.matrix_key, *model.verdict_key))


def _operators_shown(model: TabViewModel) -> Key:
    view = model.view
    return *model.examined_key, *model.aim_key, view.cause, view.ranks, view.step


def _blocks(tab: str, node: int | None, many_nodes: bool) -> Mapping[int, TabBlock]:
    """Return the blocks of a tab by their positions between its plots."""
    if node is not None:
        # The chooser is rebuilt with the verdict's marks; a change of node opens another panel.
        chooser = TabBlock(
            node_chooser,
            lambda model: (*model.matrix_key, *model.aim_key),
            follows=lambda model: (model.view.node,),
        )
        return {**({10: chooser} if many_nodes else {}), 50: _rank_table(node)}
    return _BLOCKS.get(tab, {})


_BLOCKS: Mapping[str, Mapping[int, TabBlock]] = {
    "frontier": {
        10: TabBlock(rank_chooser, lambda model: model.matrix_key, follows=lambda model: (model.view.ranks,)),
        50: _stage_table(),
    },
    "ranks": {
        10: TabBlock(
            heatmap_choosers,
            lambda model: (*model.matrix_key, *model.aim_key),
            follows=lambda model: (model.view.stage, model.view.quantity),
        ),
        25: TabBlock(
            layout_chooser,
            lambda model: model.matrix_key,
            follows=lambda model: (model.view.axes,),
            applies=lambda model: len(layout_axes(model.window.layout)) > 1,
        ),
        40: _rank_table(),
    },
    "ambiguity": {50: _gate_table(), 60: _stage_table()},
    STRAGGLERS: {
        10: TabBlock(headline_card, lambda model: (*model.examined_key, model.agreement)),
        40: TabBlock(
            cause_table,
            lambda model: model.examined_key,
            follows=lambda model: (model.view.cause, model.view.step),
        ),
        60: TabBlock(timeline_choosers, lambda model: model.examined_key, follows=_operators_shown),
        80: TabBlock(files_card, lambda model: (*_operators_shown(model), model.view)),
        90: TabBlock(
            operator_chooser,
            lambda model: model.examined_key,
            follows=lambda model: (model.view.cause, model.view.operator),
        ),
        110: TabBlock(outlier_table, lambda model: model.examined_key),
        130: TabBlock(collective_table, lambda model: model.examined_key),
        140: TabBlock(notes_card, lambda model: model.examined_key),
    },
    "evidence": {10: _evidence(), 20: _labels(), 30: _why(), 40: _stage_table()},
    "rules": {20: _stage_table()},
    "data": {10: TabBlock(data_block, lambda model: (model.judged.source,)), 20: _step_table()},
    # The notes panel updates its list itself, so that unsaved text in it is kept.
    NOTES: {10: TabBlock(lambda _, reactions: reactions.notes_panel.notes_list(), lambda model: ())},
}


def items_of(
    tab: str, node: int | None, many_nodes: bool, model: TabViewModel | None = None
) -> Sequence[Item]:
    """Return the plots and blocks of a tab in order of position.

    Args:
        node: the node of a node's tab, None for the others.
        many_nodes: whether the nodes share one tab, which then needs a chooser.
        model: leave out what does not apply to this window.
    """
    items = [item for _, item in placed_items(tab, node, many_nodes)]
    return [item for item in items if model is None or item.applies(model)]


def placed_items(tab: str, node: int | None, many_nodes: bool) -> Sequence[tuple[int, Item]]:
    """Return the plots and blocks of a tab with their positions; no two share one."""
    shown = NODE_TAB if node is not None else tab
    placed: list[tuple[int, Item]] = [*_blocks(tab, node, many_nodes).items()]
    placed += [(place.position, PlacedPlot(spec, place)) for spec, place in PLOTS.on_tab(shown)]
    return sorted(placed, key=lambda each: each[0])


def compute_items(items: Sequence[Item], model: TabViewModel, resting: bool) -> None:
    """Compute what items show of a model, for the model to keep. May run on any thread.

    Args:
        resting: whether slow blocks are computed too.
    """
    for item in items:
        if isinstance(item, PlacedPlot):
            item.figure(model)
        elif resting or not item.is_slow:
            item.compute(model)


class Panel:
    """The content of one tab, built when first shown; afterwards only changed parts are drawn again."""

    def __init__(self, items: Sequence[Item], model: TabViewModel, reactions: Reactions) -> None:
        """Build every item inside the current container."""
        self._items = items
        self._reactions = replace(reactions, look=self._look)
        self._asked = reactions.look
        self._following = False
        self._keys = [item.key(model) for item in items]
        self._built: list[FigureCard | ui.element] = []
        self._follow: dict[int, Follow] = {}
        self._shown: dict[int, Key] = {}
        with box("grid"):
            for place, item in enumerate(items):
                self._built.append(self._build(place, item, model))

    def update(self, model: TabViewModel, *, resting: bool = False) -> None:
        """Draw the changed parts again.

        Args:
            resting: whether no control is being dragged, so that slow blocks are updated too.
        """
        for place, item in enumerate(self._items):
            if isinstance(item, TabBlock) and item.is_slow and not resting:
                continue
            key = item.key(model)
            built = self._built[place]
            zoomed = (
                isinstance(item, PlacedPlot)
                and isinstance(built, FigureCard)
                and built.axes != item.axes(model)
            )
            if key == self._keys[place] and not zoomed:
                if isinstance(item, TabBlock):
                    self._bring_up_to_date(place, item, model)
                continue
            self._keys[place] = key
            if isinstance(item, PlacedPlot) and isinstance(built, FigureCard):
                built.redraw(item.figure(model), item.axes(model))
            elif isinstance(item, TabBlock) and isinstance(built, ui.element):
                built.clear()
                self._fill(place, item, built, model)

    def _build(self, place: int, item: Item, model: TabViewModel) -> FigureCard | ui.element:
        if isinstance(item, PlacedPlot):
            return plot_card(item, model, self._reactions)
        container = box(f"span-{item.span}")
        self._fill(place, item, container, model)
        return container

    def _fill(self, place: int, block: TabBlock, container: ui.element, model: TabViewModel) -> None:
        with container, self._quietly():
            follow = block.build(model, self._reactions)
        self._follow.pop(place, None)
        if follow is not None:
            self._follow[place] = follow
            self._shown[place] = block.follows(model)

    def _bring_up_to_date(self, place: int, block: TabBlock, model: TabViewModel) -> None:
        follow, wanted = self._follow.get(place), block.follows(model)
        if follow is not None and wanted != self._shown.get(place):
            self._shown[place] = wanted
            with self._quietly():
                follow(model)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Ignore change events while controls are updated: NiceGUI reports programmatic changes too."""
        self._following = True
        try:
            yield
        finally:
            self._following = False

    def _look(self, **fields: Any) -> None:
        """Forward the user's choice, which the control already shows."""
        if not self._following:
            self._shown.clear()
            self._asked(**fields)
