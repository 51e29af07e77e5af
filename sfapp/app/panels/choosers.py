"""Build the choosers inside tabs: the heatmap's stage and quantity, ranks, node, step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from nicegui import events, ui

from sfapp.accounting import layout_axes
from sfapp.app.panels.plot_card import Reactions
from sfapp.app.panels.view_model import Follow, TabViewModel
from sfapp.app.theme import box, label_text
from sfapp.model.view import QUANTITIES
from sfapp.views import format
from sfapp.views.figures import QUANTITY_WORDS

MOST_LISTED = 64
"""Maximum number of ranks, and of nodes, in a list; any other can be typed."""


def heatmap_choosers(model: TabViewModel, reactions: Reactions) -> Follow:
    """Show choosers for stage and quantity of the heatmap."""
    stages = format.short_stages(model.window.broad_stages)
    aim = model.diagnosis.aim
    aimed = aim.stage if aim else model.diagnosis.top_stage or model.window.broad_stages[0]
    with box("card toolbar", "section"):
        label_text("Heatmap", "h2")
        stage = ui.select(
            {stage: f"{name}{' (suspect)' if stage == aimed else ''}" for stage, name in stages.items()},
            value=model.view.stage or aimed,
            on_change=lambda event: reactions.look(stage=None if event.value == aimed else event.value),
        ).props("dense outlined options-dense aria-label='stage of the heatmap'")
        stage.mark("heatmap-stage")
        quantity = ui.toggle(
            list(QUANTITIES),
            value=model.view.quantity,
            on_change=lambda event: reactions.look(quantity=event.value),
        ).props("no-caps unelevated toggle-color=primary")
        quantity.classes("segmented").mark("heatmap-quantity")
        meaning = label_text(QUANTITY_WORDS[model.view.quantity], "span", "muted")

    def follow(model: TabViewModel) -> None:
        stage.value = model.view.stage or aimed
        quantity.value = model.view.quantity
        meaning.text = QUANTITY_WORDS[model.view.quantity]

    return follow


def layout_chooser(model: TabViewModel, reactions: Reactions) -> Follow:
    """Show a chooser for rows and columns of the parallel layout."""
    default, *others = layout_axes(model.window.layout)

    def pick(event: events.ValueChangeEventArguments[Any]) -> None:
        axes = tuple(str(event.value).split(","))
        reactions.look(axes=None if axes == default else axes)

    with box("card toolbar", "section"):
        label_text("Parallel layout", "h2")
        axes = ui.select(
            {",".join(pair): " by ".join(pair) for pair in (default, *others)},
            value=",".join(model.view.axes or default),
            on_change=pick,
        ).props("dense outlined options-dense aria-label='rows and columns of the parallel layout'")
        axes.mark("layout-axes")

    def follow(model: TabViewModel) -> None:
        axes.value = ",".join(model.view.axes or default)

    return follow


def rank_chooser(model: TabViewModel, reactions: Reactions) -> Follow:
    """Show a field for the ranks to highlight."""

    def listed(model: TabViewModel) -> str:
        return ", ".join(str(rank) for rank in model.view.ranks)

    with box("card toolbar", "section"):
        label_text("Highlight ranks", "h2")
        field = (
            ui.input(placeholder="0, 5, 17", value=listed(model))
            .props("dense outlined aria-label='ranks to highlight'")
            .mark("ranks")
        )
        field.on("change", lambda: reactions.pick_ranks(field.value or ""))
        field.on("keydown.enter", lambda: reactions.pick_ranks(field.value or ""))
        label_text("their curves are labelled; empty: slowest ranks only", "span", "muted")

    def follow(model: TabViewModel) -> None:
        field.value = listed(model)

    return follow


def node_chooser(model: TabViewModel, reactions: Reactions) -> Follow:
    """Show a chooser for the node if there are too many for a tab each; nodes with stragglers come first."""
    ranks = model.window.ranks
    nodes = ranks.nodes
    hosts = dict(zip(ranks.node_rank, ranks.hostname, strict=True))
    marked = model.straggling_nodes

    def names(model: TabViewModel) -> dict[int, str]:
        return {
            node: f"Node {node}{' ▲' if node in marked else ''} · {format.clip(hosts[node], 32)}"
            for node in nodes_offered(nodes, (*sorted(marked), model.view.node))
        }

    def pick(event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value is None:
            return
        if event.value in hosts:
            reactions.look(tab=f"node:{int(event.value)}")
        else:
            ui.notify(f"This window has no node {event.value:g}.", type="warning")

    with box("card toolbar", "section"):
        label_text("Node", "h2")
        node = ui.select(names(model), value=model.view.node, with_input=True, on_change=pick)
        node.props("dense outlined options-dense aria-label='node'")
        node.classes("wide").mark("node")
        another = number_field("another node", "another node", pick).mark("another-node")
        another.set_visibility(len(nodes) > MOST_LISTED)
        label_text(
            f"{format.counted(len(marked), 'node')} with a rank that delays others (▲)", "span", "muted"
        )

    def follow(model: TabViewModel) -> None:
        show_options(node, names(model), model.view.node)
        another.value = None

    return follow


def nodes_offered(nodes: Sequence[int], named: Iterable[int | None]) -> list[int]:
    """Return the nodes that a list offers: the named ones, then the first of the others.

    Args:
        named: None means no node.
    """
    known = [node for node in dict.fromkeys(named) if node is not None]
    return list(dict.fromkeys((*known, *islice(nodes, MOST_LISTED))))[:MOST_LISTED]


def number_field(
    placeholder: str, label: str, changed: Callable[[events.ValueChangeEventArguments[Any]], Any]
) -> ui.number:
    """Build a field for the number of a rank or node, for lists that cannot hold all."""
    # The limit is not in ``props``, because it would be text there and not compare with a number.
    field = ui.number(placeholder=placeholder, on_change=changed, format="%d", min=0, step=1)
    field.props("dense outlined debounce=300")
    field.props["aria-label"] = label
    return field


def show_options(select: ui.select, options: Mapping[Any, str], value: Any) -> None:
    """Set the options of a select, and its value."""
    if (select.options, select.value) != (options, value):
        select.set_options(dict(options), value=value)
