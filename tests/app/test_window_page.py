"""The window page: controls, verdict, tabs, links."""

from __future__ import annotations

import pytest
from nicegui import ui
from nicegui.testing import User

from sfapp.model import CHOICE_DOCS, GATE_DOCS
from sfapp.views.glossary import FIRST_GATES
from tests.app.page_elements import chooser, href, number, one, slider
from tests.app.recorded_job import SICK


async def test_the_first_sentence_is_the_likely_cause(user: User) -> None:
    await user.open(SICK)
    await user.should_see("callbacks on rank 3")
    await user.should_see("Likely cause")
    await user.should_see("delays carry over")
    await user.should_see("Evidence")


async def test_moving_a_gate_changes_the_labels_and_their_reasons(user: User) -> None:
    # Given a window whose step-aligned shares are co-critical because clipping backward gains little
    await user.open(f"{SICK}?frontier=step")
    await user.should_see("little gain in backward alone")
    # When dominance is asked of more than any stage has
    slider(user, "gamma_a").value = 0.99
    # Then no stage is named
    await user.should_not_see("little gain in backward alone")
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


async def test_every_gate_shows_the_distance_to_the_nearest_change(user: User) -> None:
    await user.open(SICK)
    await user.should_see("γA ≥")
    slider(user, "gamma_a").value = 0.99
    await user.should_see("γA ≤")
    await user.should_see("default 0.4")


async def test_the_other_gates_come_on_demand(user: User) -> None:
    await user.open(SICK)
    more = len(GATE_DOCS) + len(CHOICE_DOCS) - len(FIRST_GATES)
    await user.should_see(f"{more} more · all at their defaults")
    user.find(marker="more-gates").trigger("toggle")
    await user.should_see("leader confidence")
    number(user, "max_residual").value = 0.5
    await user.should_see(f"{more} more · 1 changed")


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


async def test_errors_in_a_link_are_reported(user: User) -> None:
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


async def test_a_missing_window_lists_those_that_exist(watching_user: User) -> None:
    response = await watching_user.http_client.get("/w/job/77")
    assert response.status_code == 404
    assert "it has 5, from 0 to 4" in response.text


async def test_an_address_of_thousands_of_unknown_options_shows_a_few_notices(user: User) -> None:
    unknown = "&".join(f"option{number}=1" for number in range(3000))
    for page in (SICK, "/", "/windows", "/compare"):
        answer = await user.http_client.get(f"{page}?{unknown}")
        assert "2,992 more like these are not shown." in answer.text
        assert "option2999" not in answer.text


async def test_links_lead_to_the_previous_and_the_next_window_in_the_same_view(user: User) -> None:
    await user.open("/w/job/3?gamma_a=0.9")
    assert href(user, "previous") == "/w/job/2?gamma_a=0.9"
    assert href(user, "next") == "/w/job/4?gamma_a=0.9"
    # The first window of a run has none before it
    await user.open("/w/job/0")
    await user.should_not_see(marker="previous")
    assert href(user, "next") == "/w/job/1"
