"""A problem's page: independent sources, episodes, roles, and always something to do next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement
from nicegui.testing import User

from sfapp.model.incidents import Pin
from sfapp.model.view import ViewState, WindowKey
from sfapp.service.workspace import Workspace
from sfapp.store import Store, WindowQuery
from sfapp.views.address import problem_page
from sfapp.views.text.problem_evidence import episode_rows, problem_sources, sources_summary
from sfapp.views.text.problems import is_about, problem_action
from tests.app.page_elements import href, one, until
from tests.app.recorded_job import RUN, job_window, put
from tests.app.second_editor import second_editor
from tests.app.simulation import simulated

SAMPLE = Path(__file__).parent.parent.parent / "sample_data" / "packets"
ROLES = WindowKey("moe-two-roles", 2)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store.open([SAMPLE], memory=True) as store:
        store.ingest()
        yield store


@pytest.fixture
def workspace(store: Store) -> Workspace:
    return Workspace(store, [SAMPLE])


@pytest.fixture
async def user(workspace: Workspace) -> AsyncIterator[User]:
    async with simulated(workspace) as user:
        yield user


def test_every_problem_has_a_next_action_even_where_its_window_is_gone(workspace: Workspace) -> None:
    for problem in workspace.problems():
        key = WindowKey(problem.run_id, problem.windows[-1])
        judged = workspace.judge(workspace.source(key), ViewState())
        assert problem_action(problem, judged.diagnosis)
        assert problem_action(problem, None)


def test_sources_are_counted_once_each(workspace: Workspace) -> None:
    for problem in workspace.problems("gpt-small-ddp"):
        key = WindowKey(problem.run_id, problem.windows[-1])
        diagnosis = workspace.judge(workspace.source(key), ViewState()).diagnosis
        sources = problem_sources(problem, diagnosis if is_about(diagnosis, problem) else None)
        titles = [source.title for source in sources]
        assert len(set(titles)) == len(titles)
        assert titles[0] == "Stage durations"
        assert sources[-1].title == "Operator events"
        assert sources[-1].agrees is None
        telling = sum(source.agrees is not None for source in sources)
        summary = sources_summary(sources)
        assert f" of {telling} independent sources" in summary if telling > 1 else "one source" in summary


def test_episodes_join_windows_with_onset_and_end(workspace: Workspace) -> None:
    late = next(
        one
        for one in workspace.problems("gpt-small-ddp")
        if one.ranks == (3,) and "data" in (one.stage or "")
    )
    (row,) = episode_rows(late)
    assert (row["windows"], row["ranks"], row["began"]) == ("3", "3", "step 120")
    assert row["ended"].startswith("step 161")


async def test_the_page_shows_evidence_episodes_and_what_to_do(user: User, workspace: Workspace) -> None:
    late = next(
        one
        for one in workspace.problems("gpt-small-ddp")
        if one.ranks == (3,) and "data" in (one.stage or "")
    )
    await user.open(f"/problems/{late.id}")
    await user.should_see("independent sources agree")
    await user.should_see("Episodes")
    await user.should_see("Capture rank 3 for a few steps")
    (table,) = user.find(kind=ui.table, marker="episodes").elements
    assert isinstance(table, ui.table)
    assert table.rows[0]["began"] == "step 120"


async def test_the_page_shows_what_a_fix_of_the_likely_cause_would_bring(
    user: User, workspace: Workspace
) -> None:
    late = next(
        one
        for one in workspace.problems("gpt-small-ddp")
        if one.ranks == (3,) and "data" in (one.stage or "")
    )
    await user.open(f"/problems/{late.id}")
    await user.should_see("Make rank 3 typical in data: 167.1 ms →", retries=50)
    (lost,) = [one for one in workspace.problems() if one.kind == "missing"]
    await user.open(f"/problems/{lost.id}")
    await user.should_not_see(marker="problem-what-if")


async def test_a_missing_rank_is_the_first_thing_on_its_window_and_its_problem(
    user: User, workspace: Workspace
) -> None:
    (lost,) = [one for one in workspace.problems() if one.kind == "missing"]
    await user.open(f"/problems/{lost.id}")
    await user.should_see("Rank 7 is missing")
    await user.should_see("1 rank of 8 expected wrote no rows")
    await user.should_see("Look at the logs of these processes")
    await user.open(f"/w/{lost.run_id}/{lost.windows[-1]}")
    headline = next(
        element for element in user.find(kind=ui.element).elements if "headline" in element.classes
    )
    first = next(child for child in headline.descendants() if isinstance(child, TextElement))
    assert first.text == "Rank 7 is missing"


async def test_roles_are_judged_by_themselves(user: User, workspace: Workspace) -> None:
    await user.open(f"/w/{ROLES}")
    user.find(marker="group-role:expert").click()
    await user.should_see("expert")
    (late,) = workspace.problems(ROLES.run_id)
    await user.open(f"/problems/{late.id}?group=role:dense")
    await user.should_see("All ranks")
    assert href(user, "group-role:expert") == f"/problems/{late.id}?group=role:expert"
    assert href(user, "group-all") == f"/problems/{late.id}"


async def test_windows_of_one_role_have_no_role_buttons(user: User) -> None:
    await user.open("/w/gpt-small-ddp/10")
    await user.should_see("callbacks on rank 3")
    await user.should_not_see("All ranks")


async def test_words_that_are_being_typed_stay_while_packets_and_notes_arrive(
    watching_user: User, own_workspace: Workspace, packets: Path
) -> None:
    user, grace = watching_user, second_editor(own_workspace.incident_log)
    problem = own_workspace.problems(RUN)[0]
    pin = Pin(window=WindowKey(RUN, problem.windows[-1]))
    grace.write_note("Rank 3 waits.", pin)
    # Given a new note and one that is edited, neither of them saved
    await user.open(problem_page(problem))
    await user.should_see("Rank 3 waits.")
    user.find(marker="edit-note").click()
    await user.should_see(marker="note-words")
    one(user, ui.textarea, "note-words").value = "Rank 3 waits for its disk."
    one(user, ui.textarea, "new-note").value = "Its cache is cold."
    # When a packet of another run arrives, and another note on this window
    put(packets, job_window(0, {}, run_id="other"))
    grace.write_note("I see it too.", pin)
    await user.should_see("I see it too.")
    await until(lambda: bool(own_workspace.windows(WindowQuery(run="other")).rows))
    # Then both are as they were, and are saved
    assert one(user, ui.textarea, "new-note").value == "Its cache is cold."
    user.find(marker="save-note").click()
    await user.should_see("Note changed")
    user.find(marker="add-note").click()
    await user.should_see("Note added")
    texts = [note.text for note in own_workspace.incident_log.state().notes_on(pin.window)]
    assert texts == ["Rank 3 waits for its disk.", "I see it too.", "Its cache is cold."]
    assert one(user, ui.textarea, "new-note").value == ""
