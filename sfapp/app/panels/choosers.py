"""Small choosers inside tabs: what the heatmap shows, and which ranks are picked out."""

from __future__ import annotations

from nicegui import ui

from sfapp.app.panels.figure import Reactions
from sfapp.app.panels.scene import Scene
from sfapp.app.state import QUANTITIES
from sfapp.app.theme import box, text
from sfapp.views import format
from sfapp.views.figures import QUANTITY_WORDS


def heatmap_choosers(scene: Scene, reactions: Reactions) -> None:
    """Stage and quantity of the heatmap."""
    stages = format.short_stages(scene.window.broad_stages)
    aim = scene.diagnosis.aim
    aimed = aim.stage if aim else scene.diagnosis.top_stage or scene.window.broad_stages[0]
    with box("card toolbar", "section"):
        text("Heatmap", "h2")
        ui.select(
            {stage: f"{name}{' (aimed at)' if stage == aimed else ''}" for stage, name in stages.items()},
            label="stage",
            value=scene.view.stage or aimed,
            on_change=lambda event: reactions.look(stage=None if event.value == aimed else event.value),
        ).props("dense outlined options-dense").mark("heatmap-stage")
        ui.toggle(
            list(QUANTITIES),
            value=scene.view.quantity,
            on_change=lambda event: reactions.look(quantity=event.value),
        ).props("no-caps unelevated toggle-color=primary").classes("segmented").mark("heatmap-quantity")
        text(QUANTITY_WORDS[scene.view.quantity], "span", "muted")


def rank_chooser(scene: Scene, reactions: Reactions) -> None:
    """Ranks to pick out in the crossings."""
    with box("card toolbar", "section"):
        text("Pick out ranks", "h2")
        field = (
            ui.input(
                placeholder="0, 5, 17",
                value=", ".join(str(rank) for rank in scene.view.ranks),
            )
            .props("dense outlined aria-label='ranks to pick out'")
            .mark("ranks")
        )
        field.on("change", lambda: reactions.pick_ranks(field.value or ""))
        field.on("keydown.enter", lambda: reactions.pick_ranks(field.value or ""))
        text("their curves are drawn by name; empty draws the leaders only", "span", "muted")
