"""The glossary: nothing a verdict can say is left out."""

from __future__ import annotations

import httpx
from fastapi import FastAPI
from nicegui import ui
from nicegui.testing import User
from page_elements import one

from sfapp.app import api
from sfapp.app.workspace import Workspace
from sfapp.model import CULPRITS, GATE_DOCS, LABELS, REASONS
from sfapp.views.glossary import glossary


async def test_every_label_gate_reason_and_culprit_has_its_anchor_and_meaning(user: User) -> None:
    await user.open("/glossary")
    wanted = [
        *(("label", name, meaning) for name, meaning in LABELS.items()),
        *(("gate", doc.name, doc.help) for doc in GATE_DOCS),
        *(("reason", name, meaning) for name, meaning in REASONS.items()),
        *(("culprit", name, meaning) for name, meaning in CULPRITS.items()),
    ]
    for kind, name, meaning in wanted:
        assert one(user, ui.element, f"{kind}-{name}").props["href"] == f"#{kind}-{name}"
        assert meaning
    for _, _, meaning in wanted[:3]:
        await user.should_see(meaning)


async def test_the_glossary_as_data_is_the_same_table(workspace: Workspace) -> None:
    application = FastAPI()
    api.build(application, workspace)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/glossary.json")).json() == glossary()
