"""Incidents: begun, collected, told in order, edited by several people, handed over."""

from __future__ import annotations

from nicegui import ui
from nicegui.testing import User
from page_elements import chooser, one

from sfapp.app.workspace import Workspace

SICK = "/w/job/2"


async def test_a_window_is_added_to_a_new_incident(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    # Given a window looked at with a gate moved
    await user.open(f"{SICK}?gamma_a=0.99&step=85")
    await user.should_see(marker="add-window")
    # When it is added to a new incident
    user.find(marker="add-window").click()
    await user.should_see("Add window 2 to an incident")
    one(user, ui.input, "incident-title").value = "Slow callback"
    user.find(marker="collect").click()
    await user.should_see("window 2 added")
    # Then the incident has it as it was looked at
    (incident,) = own_workspace.incidents.book().incidents
    assert incident.title == "Slow callback"
    (item,) = incident.items
    assert (item.kind, str(item.window), item.view) == ("window", "job/2", "step=85&gamma_a=0.99")
    # And the page of the incident shows it
    await user.open(f"/incident/{incident.id}")
    await user.should_see("step 85 · 1 gate moved")
    await user.should_see("callbacks on rank 3", retries=20)
    await user.open("/incidents")
    await user.should_see("Slow callback")
