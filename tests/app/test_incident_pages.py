"""Incidents: created, filled, listed in order, edited by several users, handed over."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from nicegui import ui
from nicegui.testing import User, UserInteraction

from sfapp.app import api
from sfapp.app.pages.incident import MOST_ITEMS
from sfapp.app.pages.incidents import MOST_LISTED
from sfapp.app.panels.notes_panel import MOST_NOTES
from sfapp.app.panels.revisions import MOST_CONFLICTS
from sfapp.incidents import IncidentLog, document_of, parse
from sfapp.model.incidents import Incident, Pin
from sfapp.model.view import WindowKey
from sfapp.service.workspace import Workspace
from tests.app.page_elements import chooser, href, one, plot, until
from tests.app.recorded_job import HOSTILE, RUN, SICK
from tests.app.second_editor import second_editor

KEY = WindowKey(RUN, 2)


def only(workspace: Workspace) -> Incident:
    """The only incident there is, as it stands in the file."""
    (incident,) = workspace.incident_log.state().incidents
    return incident


@pytest.fixture
def graces_incident(own_workspace: Workspace) -> Incident:
    """Grace's incident: a window, a plot of it, a note, and a window without packets."""
    grace = second_editor(own_workspace.incident_log)
    opened = grace.open_incident("Slow callback", severity="high")
    grace.add_window(only(own_workspace), KEY, "gamma_a=0.5&step=85")
    grace.add_plot(only(own_workspace), KEY, "step_timeline", "zoom=step_timeline.x:84.5:90.5")
    note = grace.write_note("It begins here.", Pin(window=KEY, step=85))
    grace.add_note(only(own_workspace), note)
    grace.add_window(only(own_workspace), WindowKey("gone", 7))
    assert only(own_workspace).id == opened
    return only(own_workspace)


async def test_a_window_is_added_to_a_new_incident(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    # Given a window looked at with a gate moved, and a note on it
    note = second_editor(own_workspace.incident_log).write_note("It begins here.", Pin(window=KEY, step=85))
    await user.open(f"{SICK}?gamma_a=0.99&step=85")
    await user.should_see(marker="add-window")
    # When it is added to a new incident, together with its note
    user.find(marker="add-window").click()
    await user.should_see("Add window 2 to an incident")
    await user.should_see("With its note")
    one(user, ui.input, "incident-title").value = "Slow callback"
    user.find(marker="add-to-incident").click()
    await user.should_see("Window 2 added")
    await user.should_see("Open “Slow callback”")
    # Then the incident has both, the window as it was looked at
    window, noted = only(own_workspace).items
    assert (window.kind, str(window.window), window.view) == ("window", "job/2", "step=85&gamma_a=0.99")
    assert noted.note is not None
    assert noted.note.id == note
    # And the next item goes to the same incident by default
    user.find(marker="add-frontier_steps").click()
    assert chooser(user, "incident-choice").value == only(own_workspace).id
    user.find(marker="add-to-incident").click()
    await user.should_see("The plot “Critical-path time by stage” added")
    assert [item.kind for item in only(own_workspace).items] == ["window", "note", "plot"]
    # And all of it can be undone
    user.find(marker="undo-edit").click()
    await user.should_see("Undone: The plot “Critical-path time by stage” added")
    assert [item.kind for item in only(own_workspace).items] == ["window", "note"]


async def test_evidence_is_shown_as_it_was_viewed_and_missing_packets_are_reported(
    watching_user: User, graces_incident: Incident
) -> None:
    user = watching_user
    await user.open(f"/incident/{graces_incident.short_id}")
    await user.should_see("step 85 · 1 threshold changed")
    await user.should_see("callbacks on rank 3")
    await user.should_see("It begins here.")
    await user.should_see("No longer available: no run 'gone' in the store")
    shown = plot(user, "Exposed time per step").figure["layout"]
    assert shown["xaxis"]["range"] == [84.5, 90.5]
    # The note is marked in the plot, too
    assert shown["annotations"][-1]["text"] == "<b>1</b>"
    links = [element.props["href"] for element in user.find(marker="item-link").elements]
    assert "/w/job/2?step=85&gamma_a=0.5" in links


def _button(user: User, evidence: str, marker: str) -> ui.element:
    """A button on one piece of evidence."""
    cards = user.find(marker="item").elements
    (card,) = (card for card in cards if card.props["aria-label"] == evidence)
    buttons = user.find(marker=marker).elements
    (button,) = (button for button in buttons if button in set(card.descendants()))
    return button


async def test_evidence_is_moved_and_taken_out_and_back(
    watching_user: User, own_workspace: Workspace, graces_incident: Incident
) -> None:
    user = watching_user
    await user.open(f"/incident/{graces_incident.id}")
    await user.should_see("It begins here.")
    UserInteraction(user, {_button(user, "Item 4", "move-up")}, None).click()
    await user.should_see("Item moved to position 3")
    kinds = [item.kind for item in only(own_workspace).items]
    assert kinds == ["window", "plot", "window", "note"]
    user.find(marker="undo-edit").click()
    await user.should_see("Undone: Item moved")
    assert [item.kind for item in only(own_workspace).items] == ["window", "plot", "note", "window"]


async def test_each_field_is_saved_by_itself(
    watching_user: User, own_workspace: Workspace, graces_incident: Incident
) -> None:
    user = watching_user
    await user.open(f"/incident/{graces_incident.id}")
    await user.should_see(marker="title")
    # Given a user who is writing a summary
    one(user, ui.textarea, "summary").value = "A checkpoint on rank 3"
    # While Grace changes the status
    second_editor(own_workspace.incident_log).edit_incident(graces_incident, status="mitigated")
    await own_workspace.incident_service.current()
    # Then the page has her status, and what is being written stays
    await until(lambda: chooser(user, "status").value == "mitigated")
    assert one(user, ui.textarea, "summary").value == "A checkpoint on rank 3"
    # And each is saved for itself
    chooser(user, "severity").value = "critical"
    await user.should_see("Severity changed")
    user.find(marker="summary").trigger("blur")
    await user.should_see("Summary changed")
    found = only(own_workspace)
    assert (found.severity, found.status, found.summary) == (
        "critical",
        "mitigated",
        "A checkpoint on rank 3",
    )
    assert found.overwritten == ()


async def test_a_title_that_two_people_change_is_shown_twice(
    watching_user: User, own_workspace: Workspace, graces_incident: Incident
) -> None:
    user = watching_user
    await user.open(f"/incident/{graces_incident.id}")
    await user.should_see(marker="title")
    one(user, ui.input, "title").value = "Slow disk"
    second_editor(own_workspace.incident_log).edit_incident(graces_incident, title="Slow checkpoint")
    await own_workspace.incident_service.current()
    assert one(user, ui.input, "title").value == "Slow disk"
    user.find(marker="title").trigger("blur")
    await user.should_see("set the title at the same time:")
    await user.should_see("Slow checkpoint")
    # Kept, there is nothing left to settle
    user.find(marker="keep-mine").click()
    await user.should_not_see("at the same time:")
    assert (only(own_workspace).title, only(own_workspace).overwritten) == ("Slow disk", ())


async def test_an_incident_needs_a_title(
    watching_user: User, own_workspace: Workspace, graces_incident: Incident
) -> None:
    user = watching_user
    await user.open(f"/incident/{graces_incident.id}")
    await user.should_see(marker="title")
    one(user, ui.input, "title").value = "  "
    user.find(marker="title").trigger("blur")
    await user.should_see("An incident needs a title")
    assert one(user, ui.input, "title").value == "Slow callback"


async def test_windows_and_notes_are_added_on_the_page_itself(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    opened = second_editor(own_workspace.incident_log).open_incident("Slow callback")
    await user.open(f"/incident/{opened}")
    await user.should_see("No evidence yet")
    chooser(user, "add-a-window").value = "job/3"
    await user.should_see("Window 3 added")
    one(user, ui.input, "free-note").value = "It went away by itself."
    user.find(marker="add-free-note").click()
    await user.should_see("Note added")
    window, note = only(own_workspace).items
    assert str(window.window) == "job/3"
    assert note.note is not None
    assert (note.note.text, note.note.pin) == ("It went away by itself.", None)
    await user.should_not_see("No evidence yet")


async def test_a_removed_incident_stays_on_the_open_page_and_can_come_back(
    watching_user: User, own_workspace: Workspace, graces_incident: Incident
) -> None:
    user = watching_user
    await user.open(f"/incident/{graces_incident.id}")
    await user.should_see(marker="remove-incident")
    user.find(marker="remove-incident").click()
    await user.should_see("Incident removed")
    assert own_workspace.incident_log.state().incidents == ()
    assert (await user.http_client.get(f"/incident/{graces_incident.id}")).status_code == 404
    user.find(marker="undo-edit").click()
    await user.should_see("Undone: Incident removed")
    assert only(own_workspace).title == "Slow callback"


async def test_a_comparison_has_a_one_sentence_summary(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    await user.open("/compare?a=job/1&b=job/2")
    await user.should_see(marker="add-comparison")
    user.find(marker="add-comparison").click()
    await user.should_see("Add this comparison to an incident")
    user.find(marker="add-to-incident").click()
    await user.should_see("This comparison added")
    await user.open(f"/incident/{only(own_workspace).id}")
    await user.should_see("per step slower than A")
    assert href(user, "item-link") == "/compare?a=job/1&b=job/2"


async def test_the_list_has_the_worst_or_the_latest_first(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    await user.open("/incidents")
    await user.should_see("No incidents yet")
    grace = second_editor(own_workspace.incident_log)
    for title, severity in (("first", "critical"), ("second", "low"), (HOSTILE, "high")):
        grace.open_incident(title, severity=severity)
    await own_workspace.incident_service.current()
    await user.should_see("second")

    def order() -> list[str]:
        links = user.find(marker="incident-link").elements
        return [element.text for element in sorted(links, key=lambda element: element.id)]

    assert order() == [HOSTILE, "second", "first"]
    await user.open("/incidents?sort=severity")
    await user.should_see("second")
    assert order() == ["first", HOSTILE, "second"]


async def test_an_incident_is_begun_from_the_list(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    await user.open("/incidents")
    await user.should_see(marker="new-title")
    user.find(marker="new-incident").click()
    await user.should_see("An incident needs a title")
    one(user, ui.input, "new-title").value = "Slow callback"
    user.find(marker="new-incident").click()
    await user.should_see("No evidence yet")
    assert only(own_workspace).title == "Slow callback"


async def upload(user: User, content: bytes) -> None:
    chosen = one(user, ui.upload, "import")
    await chosen.handle_uploads([ui.upload.SmallFileUpload("incident.json", "application/json", content)])


async def test_an_export_is_imported_and_what_is_none_is_refused_in_words(
    watching_user: User, own_workspace: Workspace, tmp_path: Path
) -> None:
    user = watching_user
    other = IncidentLog.for_packets(tmp_path)
    opened = second_editor(other).open_incident("From elsewhere")
    content = msgspec.json.encode(document_of(other.state(), opened))
    await user.open("/incidents")
    await user.should_see(marker="import")
    await upload(user, content)
    await user.should_see("1 edit imported")
    await user.should_see("From elsewhere")
    assert only(own_workspace) == other.state().incident(opened)
    # Twice is once
    await upload(user, content)
    await user.should_see("Nothing new to import")
    # Nothing of what is wrong is taken in
    for wrong in (
        b"{",
        b"[]",
        b'{"format": "x", "version": 1, "events": []}',
        content.replace(b'"v":1', b'"v":9'),
    ):
        before = own_workspace.incident_log.path.read_bytes()
        await upload(user, wrong)
        await user.should_see("incident.json was not imported")
        assert own_workspace.incident_log.path.read_bytes() == before


async def test_incidents_are_data_that_can_be_imported(
    own_workspace: Workspace, graces_incident: Incident
) -> None:
    application = FastAPI(title="sfapp", version="1", description="as data", docs_url=None, redoc_url=None)
    api.build(application, own_workspace)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        one_of_them = await client.get(f"/incident/{graces_incident.short_id}.json")
        every = await client.get("/incidents.json")
        missing = await client.get("/incident/absent.json")
        described = (await client.get("/openapi.json")).json()["paths"]
    assert json.loads(one_of_them.text)["incidents"][0]["title"] == "Slow callback"
    assert len(parse(every.content)) == len(own_workspace.incident_log.state().events)
    assert (missing.status_code, missing.json()) == (404, {"error": "there is no incident 'absent'"})
    assert {"/incidents.json", "/incident/{incident}.json"} <= described.keys()


async def test_unreadable_lines_are_reported(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    second_editor(own_workspace.incident_log).open_incident("Slow callback")
    with own_workspace.incident_log.path.open("ab") as file:
        file.write(b'{"v":2}\n')
    await user.open("/incidents")
    await user.should_see("line 2: written in format 2; this sfapp reads format 1")
    await user.should_see("Slow callback")


async def test_evidence_without_packets_is_marked_and_the_rest_stays(
    watching_user: User, own_workspace: Workspace, graces_incident: Incident, packets: Path
) -> None:
    user = watching_user
    await user.open(f"/incident/{graces_incident.id}")
    await user.should_see("callbacks on rank 3")
    # When the packets are deleted while the page is open
    packet = own_workspace.source(KEY).packets[0].path
    content = packet.read_bytes()
    packet.unlink()
    await user.should_see("No longer available: run 'job' has no window 2")
    await user.should_not_see("callbacks on rank 3")
    await user.should_see("It begins here.")
    # And come back, so does the evidence
    packet.write_bytes(content)
    await user.should_see("callbacks on rank 3")


async def test_a_note_is_added_by_itself(
    watching_user: User, own_workspace: Workspace, graces_incident: Incident
) -> None:
    user = watching_user
    note = second_editor(own_workspace.incident_log).write_note("It ends here.", Pin(window=KEY, step=119))
    await user.open(f"{SICK}?tab=notes")
    await user.should_see("It ends here.")
    last = max(user.find(marker="add-note-to-incident").elements, key=lambda button: button.id)
    UserInteraction(user, {last}, None).click()
    await user.should_see("Add this note to an incident")
    chooser(user, "incident-choice").value = graces_incident.id
    user.find(marker="add-to-incident").click()
    await user.should_see("This note added")
    last_item = only(own_workspace).items[-1]
    assert last_item.note is not None
    assert last_item.note.id == note


async def test_an_import_of_any_size_leaves_pages_that_open(
    watching_user: User, own_workspace: Workspace
) -> None:
    """A page of 3,000 notes used to keep the server from answering for a minute."""
    user, log = watching_user, own_workspace.incident_log

    def line(kind: str, name: str, target: str = "", **fields: object) -> str:
        head = {"v": 1, "kind": kind, "id": name, "target": target or name, "by": "Eve"}
        return json.dumps(head | {"at": "2026-11-21T00:00:00Z", "fields": fields}) + "\n"

    incident = "incident0000"
    lines = [line("incident", incident, title="large")]
    for number in range(MOST_LISTED + 1):
        note, pin = f"note{number:06d}", {"window": str(KEY), "plot": "step_timeline", "step": 85}
        lines += [
            line("note", note, text=f"note {number}", pin=pin),
            line("item", f"item{number:06d}", incident=incident, item="note", note=note, place=float(number)),
            line("incident", f"edit{number:06d}", target=incident, summary=f"summary {number}"),
            line("incident", f"other{number:06d}", title=f"title {number}"),
        ]
    log.path.parent.mkdir(exist_ok=True)
    log.path.write_text("".join(lines))

    await user.open(f"/incident/{incident}")
    await user.should_see(f"{MOST_ITEMS} of {MOST_LISTED + 1} items are shown; the export has all.")
    await user.should_see(f"{MOST_CONFLICTS} of {MOST_LISTED} edits that were made at the same time")
    assert len(user.find(marker="note").elements) <= MOST_ITEMS
    await user.open("/incidents")
    await user.should_see(f"{MOST_LISTED} of {MOST_LISTED + 2} incidents are shown; the export has all.")
    await user.open(f"{SICK}?tab=notes")
    await user.should_see(f"{MOST_NOTES} of {MOST_LISTED + 1} notes are shown; the export has all.")
    await user.should_see(f"note {MOST_LISTED}")
