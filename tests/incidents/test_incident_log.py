"""Notes, incidents and decisions: concurrent edits, undo, order of items."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sfapp.errors import IncidentNotFoundError
from sfapp.incidents import IncidentLog
from sfapp.incidents.events import ItemEdit, ItemFields
from sfapp.model.incidents import Pin
from sfapp.model.onsets import StepEstimate
from sfapp.model.problems import Problem
from sfapp.model.view import WindowKey, Zoom
from tests.incidents.incident_editors import WINDOW, author


def test_a_note_is_kept_with_the_packets_with_its_pin_author_and_time(log: IncidentLog) -> None:
    pin = Pin(
        window=WINDOW,
        step=161,
        stage="callbacks.cpu_wall",
        rank=3,
        plot="frontier_steps",
        region=(Zoom("frontier_steps", "x", 1.0, 2.5),),
    )
    author(log, "Ada").write_note("It begins here.", pin)

    (note,) = IncidentLog(log.path).state().notes_on(WINDOW)
    assert (note.text, note.pin, note.written.by) == ("It begins here.", pin, "Ada")
    assert note.written.at == datetime(2026, 11, 21, tzinfo=UTC)
    assert note.changed is None
    assert log.path.parent.name == ".sfapp"


def test_an_edit_shows_its_author_and_keeps_what_was_there_in_the_history(log: IncidentLog) -> None:
    ada, grace = author(log, "Ada"), author(log, "Grace")
    note_id = ada.write_note("rank 3?", Pin(window=WINDOW))
    grace.edit_note(log.state().note(note_id), "rank 3, its disk")

    note = log.state().note(note_id)
    assert note.text == "rank 3, its disk"
    assert note.changed is not None
    assert note.changed.by == "Grace"
    assert note.overwritten == ()
    history = log.state().history(note_id)
    assert [revision.fields.get("text") for revision in history] == ["rank 3?", "rank 3, its disk"]


def test_concurrent_writers_lose_nothing(log: IncidentLog) -> None:
    ada, grace, lin = (author(log, name) for name in ("Ada", "Grace", "Lin"))
    note_id = ada.write_note("first", Pin(window=WINDOW))
    shown = log.state().note(note_id)  # both have this on their screens

    grace.edit_note(shown, "from Grace")
    lin.edit_note(shown, "from Lin")

    note = log.state().note(note_id)
    assert note.text == "from Lin"
    assert [(lost.value, lost.stamp.by) for lost in note.overwritten] == [("from Grace", "Grace")]

    ada.edit_note(note, "from Grace and Lin")  # having seen both
    assert log.state().note(note_id).overwritten == ()


def test_two_edits_of_different_fields_of_an_incident_are_both_kept(log: IncidentLog) -> None:
    ada, grace = author(log, "Ada"), author(log, "Grace")
    incident_id = ada.open_incident("slow loader")
    shown = log.state().incident(incident_id)

    ada.edit_incident(shown, severity="high")
    grace.edit_incident(shown, status="mitigated", summary="moved the data")

    incident = log.state().incident(incident_id)
    assert (incident.severity, incident.status, incident.summary) == ("high", "mitigated", "moved the data")
    assert incident.overwritten == ()


def test_undo_takes_back_one_edit_whatever_came_after_it_and_can_be_undone(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    incident_id = ada.open_incident("slow loader", severity="low")
    raised = ada.edit_incident(log.state().incident(incident_id), severity="critical")
    ada.edit_incident(log.state().incident(incident_id), title="slow disk")

    undone = ada.undo(raised)
    incident = log.state().incident(incident_id)
    assert (incident.severity, incident.title) == ("low", "slow disk")

    ada.undo(undone)
    assert log.state().incident(incident_id).severity == "critical"


def test_a_removed_note_comes_back_by_undo_with_its_place_in_the_incident(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    incident_id = ada.open_incident("slow loader")
    note_id = ada.write_note("look", Pin(window=WINDOW))
    ada.add_note(log.state().incident(incident_id), note_id)

    removed = ada.remove_note(log.state().note(note_id))
    assert log.state().notes == ()
    assert log.state().incident(incident_id).items == ()
    with pytest.raises(IncidentNotFoundError, match="may have been removed"):
        log.state().note(note_id)

    ada.undo(removed)
    (item,) = log.state().incident(incident_id).items
    assert item.note == log.state().note(note_id)


def test_items_are_listed_in_the_order_in_which_they_were_added(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    incident_id = ada.open_incident("slow loader")
    for number in range(4):
        ada.add_window(log.state().incident(incident_id), WindowKey("r", number), "tau_c=0.9")

    def numbers() -> list[int]:
        items = log.state().incident(incident_id).items
        return [item.window.window for item in items if item.window is not None]

    def move(number: int, index: int) -> None:
        incident = log.state().incident(incident_id)
        ada.move_item(incident, incident.items[numbers().index(number)], index)

    move(3, 0)
    assert numbers() == [3, 0, 1, 2]
    move(0, 2)
    assert numbers() == [3, 1, 0, 2]
    move(3, 99)
    assert numbers() == [1, 0, 2, 3]
    ada.remove_item(log.state().incident(incident_id).items[0])
    assert numbers() == [0, 2, 3]


def windows_in(log: IncidentLog, incident_id: str) -> list[int]:
    items = log.state().incident(incident_id).items
    return [item.window.window for item in items if item.window is not None]


def test_windows_that_are_added_to_one_state_of_an_incident_stay_in_order(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    incident_id = ada.open_incident("slow loader")
    as_shown = log.state().incident(incident_id)
    for number in range(8):
        ada.add_window(as_shown, WindowKey("r", number))
    assert windows_in(log, incident_id) == [*range(8)]
    # And what is added to an incident that was removed meanwhile comes back with it
    removed = ada.remove_incident(as_shown)
    ada.add_window(as_shown, WindowKey("r", 8))
    ada.undo(removed)
    assert 8 in windows_in(log, incident_id)


def test_an_item_is_moved_between_two_of_the_same_place(log: IncidentLog) -> None:
    # Given four items of one place, as two people add them at the same time
    ada = author(log, "Ada")
    incident_id = ada.open_incident("slow loader")
    for number in range(4):
        fields = ItemFields(incident=incident_id, item="window", window=f"r/{number}", view="", place=1.0)
        new = f"{number}" * 32
        at = datetime(2026, 11, 21, tzinfo=UTC)
        log.append([ItemEdit(id=new, target=new, at=at, by="Ada", fields=fields)])
    assert windows_in(log, incident_id) == [0, 1, 2, 3]
    # When the last is moved between the first two
    incident = log.state().incident(incident_id)
    moved = ada.move_item(incident, incident.items[3], 1)
    # Then it is there, and back where it was once all of that is undone
    assert windows_in(log, incident_id) == [0, 3, 1, 2]
    for edit in reversed(moved):
        ada.undo(edit)
    assert windows_in(log, incident_id) == [0, 1, 2, 3]


def test_an_item_is_moved_any_number_of_times(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    incident_id = ada.open_incident("slow loader")
    for number in range(3):
        ada.add_window(log.state().incident(incident_id), WindowKey("r", number))
    for _ in range(40):
        for order in ([0, 2, 1], [0, 1, 2]):
            incident = log.state().incident(incident_id)
            ada.move_item(incident, incident.items[2], 1)
            assert windows_in(log, incident_id) == order


def test_plots_and_comparisons_are_collected_as_shown(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    incident_id = ada.open_incident("slow loader")
    ada.add_plot(log.state().incident(incident_id), WINDOW, "prefix_crossings", "step=161&ranks=3")
    ada.add_comparison(log.state().incident(incident_id), "a=r/12&b=r/13&c=r/14")

    plot, comparison = log.state().incident(incident_id).items
    assert (plot.kind, plot.window, plot.plot, plot.view) == (
        "plot",
        WINDOW,
        "prefix_crossings",
        "step=161&ranks=3",
    )
    assert (comparison.kind, comparison.view) == ("comparison", "a=r/12&b=r/13&c=r/14")


def test_an_incident_is_found_by_the_beginning_of_its_id(log: IncidentLog) -> None:
    incident_id = author(log, "Ada").open_incident("slow loader")
    assert log.state().incident(incident_id[:8]).id == incident_id
    assert log.state().incident(incident_id).short_id == incident_id[:8]
    with pytest.raises(IncidentNotFoundError, match="no incident 'zzz'"):
        log.state().incident("zzz")
    with pytest.raises(IncidentNotFoundError):
        log.state().incident("")


def problem(problem_id: str = "a1b2c3d4", *other_ids: str) -> Problem:
    return Problem(
        id=problem_id, other_ids=other_ids, run_id="job", kind="rank", stage="data.next_wait", ranks=(3,),
        hostname="node-0", windows=(3, 4), world=8, began=StepEstimate(120, 118, 121), ended=None,
    )  # fmt: skip


def test_a_mute_is_kept_with_reason_end_and_author_and_can_be_undone(log: IncidentLog) -> None:
    ada, end = author(log, "Ada"), datetime(2026, 11, 22, tzinfo=UTC)
    muting = ada.mute_problem(problem(), None, "node is drained", until=end)

    mark = log.state().mark(problem())
    assert mark is not None
    assert mark.muted is not None
    assert (mark.muted.by, mark.muted_until, mark.reason) == ("Ada", end, "node is drained")

    ada.undo(muting)
    assert log.state().mark(problem()) is None


def test_two_decisions_about_a_problem_at_once_are_both_kept(log: IncidentLog) -> None:
    ada, grace = author(log, "Ada"), author(log, "Grace")
    ada.mute_problem(problem(), None, "known")
    grace.mark_fixed(problem(), None, through=4)  # without having seen the mute

    mark = log.state().mark(problem())
    assert mark is not None
    assert mark.fixed is not None
    assert (mark.reason, mark.fixed_through, mark.fixed.by) == ("known", 4, "Grace")
    ada.unmute_problem(problem(), mark)
    ada.mark_not_fixed(problem(), log.state().mark(problem()))
    mark = log.state().mark(problem())
    assert mark is not None
    assert mark.muted is mark.fixed is None


def test_a_decision_follows_a_problem_that_got_another_id(log: IncidentLog) -> None:
    author(log, "Ada").mute_problem(problem("0ld0ld0ld0"), None, "known")
    mark = log.state().mark(problem("newnewnew", "0ld0ld0ld0"))
    assert mark is not None
    assert mark.reason == "known"
    assert log.state().mark(problem("newnewnew")) is None
