"""The glossary: nothing a verdict can say is left out."""

from __future__ import annotations

import httpx
from fastapi import FastAPI
from nicegui import ui
from nicegui.testing import User

from sfapp.app import api
from sfapp.model import CULPRITS, GATE_DOCS, LABELS, REASONS
from sfapp.service.workspace import Workspace
from sfapp.views.glossary import glossary
from tests.app.page_elements import one


async def test_every_label_gate_reason_and_culprit_has_its_anchor_and_meaning(user: User) -> None:
    await user.open("/glossary")
    wanted = [
        *(("label", name, spec.glossary_text) for name, spec in LABELS.items()),
        *(("gate", doc.name, doc.help) for doc in GATE_DOCS),
        *(("reason", name, spec.explanation) for name, spec in REASONS.items()),
        *(("culprit", name, spec.explanation) for name, spec in CULPRITS.items()),
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


async def test_every_word_of_the_card_and_the_rail_leads_to_its_meaning(user: User) -> None:
    # Given a window with a label, reasons and a culprit
    await user.open("/w/job/2?frontier=step")
    await user.should_see("callbacks on rank 3")
    # Then each of them, and each gate, leads to its anchor in a tab of its own
    anchors = {f"/glossary#{row['kind']}-{row['name']}" for row in glossary()}
    links = [
        element
        for element in user.find(kind=ui.element).elements
        if str(element.props.get("href", "")).startswith("/glossary#")
    ]
    found = {link.props["href"] for link in links}
    assert found <= anchors
    assert found >= {
        "/glossary#label-co_critical",
        "/glossary#reason-low_static_gain",
        "/glossary#reason-carry_over",
        "/glossary#culprit-chronic",
        "/glossary#gate-tau_c",
        "/glossary#gate-gamma_a",
    }
    assert {(link.props["target"], link.props["rel"]) for link in links} == {("_blank", "noopener")}


async def test_tables_of_labels_evidence_and_gates_lead_to_their_meaning(user: User) -> None:
    anchors = {f"/glossary#{row['kind']}-{row['name']}" for row in glossary()}
    for tab, some in (("evidence", "/glossary#evidence-delta"), ("ambiguity", "/glossary#gate-eta_q")):
        await user.open(f"/w/job/2?tab={tab}")
        await user.should_see(kind=ui.table)
        rows = [row for table in user.find(kind=ui.table).elements for row in table.rows]
        found = {row["term"] for row in rows if "term" in row}
        assert some in found
        assert found <= anchors
