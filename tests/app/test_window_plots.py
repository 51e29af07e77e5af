"""Plots of the window page: clicks, drags and zoom change the view."""

from __future__ import annotations

import asyncio

from nicegui import ui
from nicegui.testing import User

from tests.app.page_elements import fire, href, plot, slider
from tests.app.recorded_job import SICK


async def test_clicking_a_step_in_a_plot_picks_it(user: User) -> None:
    await user.open(f"{SICK}?tab=frontier")
    await user.should_see("Exposed time per step")
    fire(user, plot(user, "Exposed time per step"), "plotly_click", {"x": 92, "y": 1.0, "customdata": 92})
    await user.should_see("step 92")


async def test_a_threshold_dragged_in_a_plot_moves_its_gate(user: User) -> None:
    await user.open(f"{SICK}?tab=ambiguity")
    await user.should_see("Ambiguity plane")
    plane = plot(user, "Ambiguity plane")
    place = [shape.get("name") for shape in plane.figure["layout"]["shapes"]].index("gamma_a")
    fire(user, plane, "plotly_relayout", {f"shapes[{place}].x0": 0.613, f"shapes[{place}].x1": 0.613})
    assert slider(user, "gamma_a").value == 0.61


async def test_a_message_that_names_no_line_of_a_plot_moves_nothing(user: User) -> None:
    await user.open(f"{SICK}?tab=ambiguity")
    await user.should_see("Ambiguity plane")
    before = slider(user, "gamma_a").value
    for place in ("²", "9" * 5000, "-1", ""):
        fire(user, plot(user, "Ambiguity plane"), "plotly_relayout", {f"shapes[{place}].x0": 0.613})
    assert slider(user, "gamma_a").value == before


async def test_a_zoom_is_part_of_the_view_and_of_what_undo_takes_back(user: User) -> None:
    # Given a user who zooms the frontier of the mean step
    await user.open(f"{SICK}?tab=frontier")
    await user.should_see("Critical-path time by stage")
    zoomed = plot(user, "Critical-path time by stage")
    fire(user, zoomed, "plotly_relayout", {"xaxis": [1.0, 3.0]})
    await user.should_see("Undo")
    # Then the next drawing keeps to it, and the address has it
    assert "zoom=frontier_steps.x:1:3" in href(user, "json")
    slider(user, "tau_c").value = 0.5
    # And undone it is whole again
    user.find(marker="undo").click()
    user.find(marker="undo").click()
    assert "zoom" not in href(user, "json")
    assert plot(user, "Critical-path time by stage").figure["layout"]["xaxis"].get("range") != [
        1.0,
        3.0,
    ]


async def test_a_link_restores_the_zoom_and_a_double_click_ends_it(user: User) -> None:
    await user.open(f"{SICK}?tab=frontier&zoom=frontier_steps.x:1:3")
    await user.should_see("Critical-path time by stage")
    shown = plot(user, "Critical-path time by stage")
    assert shown.figure["layout"]["xaxis"]["range"] == [1.0, 3.0]
    # When the browser resets the axis to what it came with
    fire(user, shown, "plotly_relayout", {"xaxis": [1.0, 3.0]})
    assert "zoom" not in href(user, "json")
    assert shown.figure["layout"]["xaxis"].get("range") != [1.0, 3.0]


async def test_the_ambiguity_tab_shows_where_verdicts_change(user: User) -> None:
    await user.open(f"{SICK}?tab=ambiguity")
    await user.should_see("distance to the next change of verdict")
    # Given the verdict at dominance 0.4, when its line is dragged past the share of the top stage
    card = plot(user, "Verdict map")
    before = card.figure["layout"]["meta"]["alt"]
    assert before.startswith("Now: gain depends on waits, callbacks")
    fire(user, card, "plotly_relayout", {"shapes[0].x0": 0.99, "shapes[0].x1": 0.99})
    # Then the gate has moved, and with it what the map says of now; τC is dragged on its own plot
    assert slider(user, "gamma_a").value == 0.99
    assert plot(user, "Verdict map").figure["layout"]["meta"]["alt"].startswith("Now: no stage label")
    fire(user, plot(user, "Routing set over τC"), "plotly_relayout", {"shapes[0].x0": 0.2})
    assert slider(user, "tau_c").value == 0.2


async def test_the_table_of_gates_follows_once_a_drag_rests(user: User) -> None:
    # Given the table of all gates with their distance to the next verdict
    await user.open(f"{SICK}?tab=ambiguity")
    await user.should_see("distance to the next change of verdict")

    def dominance() -> dict[str, object]:
        tables = user.find(kind=ui.table).elements
        return next(row for table in tables for row in table.rows if row.get("gate") == "gamma_a")

    before = dominance()
    # When dominance is dragged
    for value in (0.5, 0.6, 0.7):
        slider(user, "gamma_a").value = value
    assert dominance() == before
    # Then the table follows, once, after the last move
    await asyncio.sleep(0.1)
    assert dominance()["value_text"] == "0.7"
