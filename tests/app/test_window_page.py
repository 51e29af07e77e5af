"""The window page as its operator works it: controls, verdict, tabs, links."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from builders import MS, OPTIMIZER
from nicegui import ui
from nicegui.testing import User
from page_elements import chooser, fire, href, number, one, plot, slider
from recorded_job import job_window, put

from sfapp.errors import StoreError, WindowError
from sfapp.model.view import ViewState
from sfapp.service.judging import JudgedWindow, WindowSource
from sfapp.service.workspace import Workspace

SICK = "/w/job/2"
"""The window in which rank 3's callback is slow."""


async def test_the_first_thing_said_is_where_to_aim(user: User) -> None:
    await user.open(SICK)
    await user.should_see("callbacks on rank 3")
    await user.should_see("Likely cause")
    await user.should_see("delays carry over")
    await user.should_see("Evidence")


async def test_moving_a_gate_changes_the_labels_and_their_reasons(user: User) -> None:
    # Given a window whose step-aligned shares are co-critical because clipping backward gains little
    await user.open(f"{SICK}?frontier=step")
    await user.should_see("little gain alone")
    # When dominance is asked of more than any stage has
    slider(user, "gamma_a").value = 0.99
    # Then no stage is named
    await user.should_not_see("little gain alone")
    await user.should_see("not above γA 0.99: no stage label.")


async def test_a_typed_number_is_a_moved_gate(user: User) -> None:
    await user.open(SICK)
    number(user, "gamma_a").value = 0.99
    await user.should_see("no stage label.")
    assert slider(user, "gamma_a").value == 0.99


async def test_a_number_out_of_range_is_refused_in_words(user: User) -> None:
    await user.open(SICK)
    number(user, "gamma_a").value = 1.7
    await user.should_see("gamma_a must lie between 0 and 1")
    assert slider(user, "gamma_a").value == 0.4


async def test_a_refused_number_is_explained_at_its_field_which_then_shows_the_value_in_use(
    user: User,
) -> None:
    # Given a gate at 0.9
    await user.open(SICK)
    slider(user, "gamma_a").value = 0.9
    # When a number outside its range is typed
    number(user, "gamma_a").value = 7
    refusal = "gamma_a must lie between 0 and 1, not 7.0; 0.9 stays in use"
    await user.should_see(marker="error-gamma_a", content=refusal)
    # Then the field shows the value in use once it is left, and the reason stays until a value is accepted
    user.find(marker="number-gamma_a").trigger("blur")
    assert number(user, "gamma_a").value == 0.9
    assert number(user, "gamma_a").props["model-value"] == "0.90"
    await user.should_see(marker="error-gamma_a", content="must lie between 0 and 1")
    number(user, "gamma_a").value = 0.5
    await user.should_not_see("must lie between 0 and 1")


@pytest.mark.parametrize("gate", ["gamma_a", "tau_c"])
async def test_an_emptied_gate_field_shows_the_value_in_use_once_it_is_left(user: User, gate: str) -> None:
    await user.open(SICK)
    used = slider(user, gate).value
    number(user, gate).value = None
    user.find(marker=f"number-{gate}").trigger("blur")
    assert number(user, gate).value == slider(user, gate).value == used


async def test_undo_takes_back_one_change_and_reset_all(user: User) -> None:
    await user.open(SICK)
    slider(user, "tau_c").value = 0.5
    slider(user, "gamma_a").value = 0.99
    user.find(marker="undo").click()
    await user.should_not_see("no stage label.")
    assert slider(user, "gamma_a").value == 0.4
    assert slider(user, "tau_c").value == 0.5
    user.find(marker="reset").click()
    assert slider(user, "tau_c").value == 0.8


async def test_one_drag_is_undone_at_once(user: User) -> None:
    await user.open(SICK)
    for value in (0.5, 0.6, 0.7, 0.8):
        slider(user, "gamma_a").value = value
    user.find(marker="undo").click()
    assert slider(user, "gamma_a").value == 0.4


async def test_every_gate_says_how_far_the_nearest_change_is(user: User) -> None:
    await user.open(SICK)
    await user.should_see("γA ≥")
    slider(user, "gamma_a").value = 0.99
    await user.should_see("γA ≤")
    await user.should_see("default 0.4")


async def test_the_other_gates_come_on_demand(user: User) -> None:
    await user.open(SICK)
    await user.should_see("18 more · all at their defaults")
    user.find(marker="more-gates").trigger("toggle")
    await user.should_see("leader confidence")
    number(user, "max_residual").value = 0.5
    await user.should_see("18 more · 1 changed")


async def test_the_step_aligned_frontier_moves_the_blame(user: User) -> None:
    await user.open(SICK)
    assert chooser(user, "frontier").value == "carry_over"
    await user.should_see("Routing set: callbacks")
    chooser(user, "frontier").value = "step"
    await user.should_see("Routing set: backward")


async def test_the_paper_s_preset_sets_its_frontier_and_its_thresholds(user: User) -> None:
    # Given the gates with names open, and a gate of the user's own
    await user.open(SICK)
    user.find(marker="more-gates").trigger("toggle")
    await user.should_see("leader confidence")
    slider(user, "tau_c").value = 0.5
    # When the paper's preset is chosen
    user.find(marker="preset-paper").click()
    # Then frontier and gates are the paper's, and the controls show it
    await user.should_see("Routing set: backward")
    assert chooser(user, "frontier").value == "step"
    assert one(user, ui.select, "model_fit").value == "declared"
    assert slider(user, "tau_c").value == 0.8
    # And one click takes it back
    user.find(marker="undo").click()
    await user.should_see("Routing set: callbacks")
    assert one(user, ui.select, "model_fit").value == "measured"


async def test_a_link_with_the_paper_s_preset_starts_there(user: User) -> None:
    await user.open(f"{SICK}?preset=paper")
    await user.should_see("Routing set: backward")
    assert chooser(user, "frontier").value == "step"


async def test_the_baseline_is_measured_anew(user: User) -> None:
    await user.open("/w/job/3")
    chooser(user, "baseline").value = "reference"
    await user.should_see("Clips each stage to its median in the healthy window.")


async def test_one_node_can_be_judged_by_itself(user: User) -> None:
    await user.open(SICK)
    chooser(user, "group").value = "node:1"
    # On node 1 nothing is wrong: the slow callback is on node 0.
    await user.should_not_see("callbacks on rank 3")


async def test_another_window_can_be_compared_with(user: User) -> None:
    await user.open(SICK)
    chooser(user, "reference").value = "job/4"
    await user.should_see("Suspect: callbacks grew most since window 4")


async def test_a_link_restores_the_view(user: User) -> None:
    await user.open(f"{SICK}?gamma_a=0.99&frontier=step&tab=evidence&step=85")
    assert slider(user, "gamma_a").value == 0.99
    assert chooser(user, "frontier").value == "step"
    await user.should_see("step 85")
    await user.should_see("the comparisons that decide the verdict")


async def test_what_a_link_gets_wrong_is_told(user: User) -> None:
    await user.open(f"{SICK}?gamma_a=7&step=9999&group=role:x&tab=node:9&ranks=0,77&reference=job/70&sort=up")
    for notice in (
        "gamma_a must lie between 0 and 1",
        "no step 9999",
        "no group 'role:x'",
        "no node 9",
        "no rank 77",
        "no window job/70 to compare with",
        "'sort' is not an option",
    ):
        await user.should_see(notice)
    assert slider(user, "gamma_a").value == 0.4


async def test_the_baseline_without_a_healthy_window_is_told(watching_user: User, packets: Path) -> None:
    user = watching_user
    put(packets, job_window(0, {}, run_id="alone"))
    await user.open("/windows")
    await user.should_see("alone")
    await user.open("/w/alone/0?baseline=reference")
    await user.should_see("no healthy window to take as the baseline")
    assert chooser(user, "baseline").value == "cohort_median"


async def test_a_new_window_of_the_run_is_announced(watching_user: User, packets: Path) -> None:
    user = watching_user
    await user.open(SICK)
    await user.should_see("callbacks on rank 3")
    put(packets, job_window(5, {}))
    await user.should_see("Window 5 arrived")


async def test_a_window_that_was_recorded_again_is_judged_again(watching_user: User, packets: Path) -> None:
    user = watching_user
    await user.open(SICK)
    await user.should_see("callbacks on rank 3")
    put(packets, job_window(2, {(OPTIMIZER, 6): 70 * MS}))
    await user.should_see("optimizer on rank 6")


async def test_a_gate_moved_while_new_packets_are_judged_keeps_its_verdict(
    watching_user: User, own_workspace: Workspace, packets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a page whose window was recorded again and is being judged anew
    user, judge = watching_user, own_workspace.judge
    judged, resume = threading.Event(), threading.Event()

    def judge_slowly(source: WindowSource, view: ViewState) -> JudgedWindow:
        found = judge(source, view)
        judged.set()
        resume.wait(20)
        return found

    await user.open(SICK)
    await user.should_see("gain depends on waits")
    monkeypatch.setattr(own_workspace, "judge", judge_slowly)
    put(packets, job_window(2, {(OPTIMIZER, 6): 70 * MS}))
    assert await asyncio.to_thread(judged.wait, 20)
    # When a gate is moved before the result is there
    slider(user, "gamma_a").value = 0.99
    await user.should_see("no stage label.")
    resume.set()
    # Then the new durations are judged under the gate as it is now
    await user.should_see("optimizer on rank 6")
    await user.should_see("no stage label.")
    assert slider(user, "gamma_a").value == 0.99


async def test_a_baseline_that_new_packets_take_away_is_replaced(
    watching_user: User, own_workspace: Workspace, packets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a window judged against the run's healthy window
    user, judge = watching_user, own_workspace.judge

    def judge_without_healthy_window(source: WindowSource, view: ViewState) -> JudgedWindow:
        if view.baseline == "reference":
            raise WindowError(
                "this run has no healthy window to take as the baseline; choose a reference window"
            )
        return judge(source, view)

    await user.open(f"{SICK}?baseline=reference")
    assert chooser(user, "baseline").value == "reference"
    # When its packets change and no window of the run is healthy any more
    monkeypatch.setattr(own_workspace, "judge", judge_without_healthy_window)
    put(packets, job_window(2, {(OPTIMIZER, 6): 70 * MS}))
    # Then the page is refreshed against the default baseline, and says so
    await user.should_see("optimizer on rank 6")
    await user.should_see("no healthy window to take as the baseline")
    assert chooser(user, "baseline").value == "cohort_median"


async def test_a_refresh_that_fails_keeps_the_page_and_the_next_one_works(
    watching_user: User, own_workspace: Workspace, packets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, judge = watching_user, own_workspace.judge

    def fail(source: WindowSource, view: ViewState) -> JudgedWindow:
        raise StoreError("the window's packet is damaged")

    await user.open(SICK)
    monkeypatch.setattr(own_workspace, "judge", fail)
    put(packets, job_window(5, {}))
    await user.should_see("the window's packet is damaged")
    await user.should_not_see("StoreError")
    await user.should_see("callbacks on rank 3")
    monkeypatch.setattr(own_workspace, "judge", judge)
    put(packets, job_window(2, {(OPTIMIZER, 6): 70 * MS}))
    await user.should_see("optimizer on rank 6")


@pytest.mark.parametrize(
    ("tab", "shows"),
    [
        ("overview", "Critical-path time by stage"),
        ("frontier", "Exposed time per step"),
        ("ranks", "Changes of the slowest rank"),
        ("node:0", "Ranks of node 0"),
        ("ambiguity", "Ambiguity plane"),
        ("evidence", "what each label claims, and why it holds or is suppressed"),
        ("rules", "Comparison with other rules"),
        ("data", "metadata written by the recorder"),
    ],
)
async def test_every_tab_has_its_content(user: User, tab: str, shows: str) -> None:
    await user.open(f"{SICK}?tab={tab}")
    await user.should_see(shows)


async def test_tabs_are_built_when_first_opened(user: User) -> None:
    await user.open(SICK)
    await user.should_see("Critical-path time by stage")
    await user.should_not_see("Changes of the slowest rank")
    user.find(kind=ui.tab, content="Ranks").click()
    await user.should_see("Changes of the slowest rank")
    await user.should_not_see("Critical-path time by stage")


async def test_the_node_with_the_slow_rank_is_marked(user: User) -> None:
    await user.open(SICK)
    await user.should_see("Node 0 ▲")
    await user.should_see("Node 1")
    await user.should_not_see("Node 1 ▲")


async def test_steps_are_walked_from_end_to_end(user: User) -> None:
    await user.open(SICK)
    await user.should_see("window mean")
    user.find(marker="next-step").click()
    await user.should_see("step 80")
    user.find(marker="previous-step").click()
    await user.should_see("step 80")
    user.find(marker="step").click()
    await user.should_see("window mean")
    user.find(marker="previous-step").click()
    await user.should_see("step 119")


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


async def test_ranks_are_picked_out_by_number(user: User) -> None:
    await user.open(f"{SICK}?tab=frontier")
    await user.should_see(marker="ranks")
    field = one(user, ui.input, "ranks")
    field.value = "5, 1"
    user.find(marker="ranks").trigger("keydown.enter")
    await user.should_see(marker="json")
    assert "ranks=1,5" in href(user, "json")
    one(user, ui.input, "ranks").value = "5, 900"
    user.find(marker="ranks").trigger("keydown.enter")
    await user.should_see("This window has no rank 900")


async def test_the_json_link_carries_the_view(user: User) -> None:
    await user.open(SICK)
    slider(user, "gamma_a").value = 0.5
    assert href(user, "json") == "/w/job/2.json?gamma_a=0.5"


async def test_a_missing_window_says_which_there_are(watching_user: User) -> None:
    response = await watching_user.http_client.get("/w/job/77")
    assert response.status_code == 404
    assert "it has 5, from 0 to 4" in response.text


async def test_a_zoom_is_part_of_the_view_and_of_what_undo_takes_back(user: User) -> None:
    # Given somebody who zooms the frontier of the mean step
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
