"""Plots of the window page: clicks, drags and zoom change the view."""

from __future__ import annotations

import pytest
from nicegui import ui
from nicegui.testing import User

from sfapp.app.panels.plot_card import PlotElement
from sfapp.views.figures import Figure
from tests.app.page_elements import fire, href, plot, slider, until
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
    await until(lambda: dominance()["value_text"] == "0.7")


async def test_a_plot_that_a_gate_does_not_change_is_not_sent_again(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a page that notes which plots it sends
    await user.open(SICK)
    await user.should_see("Work and waiting by rank")
    sent: list[str] = []
    update = PlotElement.update_figure

    def noted(element: PlotElement, figure: Figure) -> None:
        sent.append(figure["layout"]["meta"]["title"])
        update(element, figure)

    monkeypatch.setattr(PlotElement, "update_figure", noted)
    # When a gate is moved that the swim-lane does not show
    slider(user, "tau_c").value = 0.5
    await user.should_see("default 0.8")
    assert "tau_c=0.5" in href(user, "json")
    assert sent == []
    # Then another step is drawn nevertheless
    user.find(marker="next-step").click()
    assert "Work and waiting by rank" in sent


async def test_tables_that_follow_a_gate_keep_their_elements(user: User) -> None:
    # Given the tables of the Analysis tab, which a user may have sorted
    await user.open(f"{SICK}?tab=ambiguity")
    await user.should_see("distance to the next change of verdict")
    before = {table.id: list(table.rows) for table in user.find(kind=ui.table).elements}
    # When a gate moves, then rows change in place
    slider(user, "tau_c").value = 0.5
    now: dict[int, list[dict[str, object]]] = {}

    def changed() -> bool:
        now.update({table.id: list(table.rows) for table in user.find(kind=ui.table).elements})
        gates = [row for rows in now.values() for row in rows if row.get("gate") == "tau_c"]
        return [row["value"] for row in gates] == [0.5]

    await until(changed)
    assert list(now) == list(before)
