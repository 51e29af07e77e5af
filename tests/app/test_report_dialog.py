"""Making a report from the window page: what is looked at is what is handed over."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
import time
import zipfile
from pathlib import Path

import pytest
from nicegui import ui
from nicegui.testing import User

from sfapp.app.panels.report_dialog import AT_ONCE, ReportDialog
from sfapp.errors import WindowNotFoundError
from sfapp.incidents import IncidentEditor
from sfapp.model import Gates, Window
from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import packet_path
from sfapp.report import REPORT_FORMATS
from sfapp.report.workspace_report import (
    CancelledReportError,
    ReportOptions,
    ReportProgress,
    incident_report,
    window_report,
)
from sfapp.service.workspace import Workspace
from tests.app.page_elements import one, slider
from tests.app.recorded_job import RUN, job_window, put

SICK = WindowKey(RUN, 2)
"""The window in which rank 3's callback is slow."""


async def asked(user: User, ending: str) -> None:
    user.find(marker="report").click()
    one(user, ui.radio, "report-format").value = ending
    user.find(marker="report-start").click()


async def test_a_report_is_made_of_what_is_looked_at(user: User) -> None:
    # Given a moved gate
    await user.open(f"/w/{RUN}/2")
    slider(user, "gamma_a").value = 0.99
    # When a report is asked for
    await asked(user, ".json")
    found = await user.download.next(timeout=20)
    # Then it is downloaded, says so, and has the gate
    assert found.status_code == 200
    document = json.loads(found.content)
    assert "--gamma-a 0.99" in document["report"]["command"]
    await user.should_see("Done: sfapp-job-window-2.json")


async def test_another_report_can_be_made_after_one(user: User) -> None:
    await user.open(f"/w/{RUN}/2")
    await asked(user, ".json")
    await user.download.next(timeout=20)
    await user.should_see("Done: sfapp-job-window-2.json")
    one(user, ui.checkbox, "report-redact").value = True
    one(user, ui.radio, "report-format").value = ".html"
    user.find(marker="report-start").click()
    found = await user.download.next(timeout=20)
    page = found.content.decode()
    assert "<title>Window 2 of run-1</title>" in page
    assert "--redact" in page


async def test_a_failure_is_shown_and_can_be_retried(watching_user: User, packets: Path) -> None:
    # Given a window whose packet is taken away while it is looked at
    user = watching_user
    await user.open(f"/w/{RUN}/2")
    packet_path(packets, RUN, 2).unlink()
    # When a report is requested, then the reason for its absence is shown
    await asked(user, ".json")
    await user.should_see("Failed:", retries=50)
    # And another one can be asked for
    await user.should_see(marker="report-start")


async def test_two_reports_are_made_at_once_until_their_pages_are_left(user: User) -> None:
    making, left = threading.Semaphore(0), []

    def make(_: ReportOptions, progress: ReportProgress) -> tuple[str, bytes]:
        making.release()
        try:
            while True:
                progress.report("collecting")
                time.sleep(0.01)
        except CancelledReportError:
            left.append(progress)
            raise

    await user.open("/")
    with user:
        dialogs = [ReportDialog("a window", lambda: make) for _ in range(64)]
    for dialog in dialogs:
        dialog.start()
    # Then two are being made, and threads are left for pages
    async with asyncio.timeout(10):
        for _ in range(AT_ONCE):
            assert await asyncio.to_thread(making.acquire, timeout=5)
        assert not await asyncio.to_thread(making.acquire, timeout=0.2)
        # And once their page is left, none goes on
        assert user.client is not None
        user.client.delete()
        while len(left) < len(dialogs):
            await asyncio.sleep(0.01)


def made(
    workspace: Workspace, ending: str, redact: bool = False, view: ViewState | None = None
) -> tuple[str, bytes]:
    return window_report(workspace, SICK, view or ViewState())(
        ReportOptions(ending, redact), ReportProgress()
    )


@pytest.mark.parametrize("ending", sorted(REPORT_FORMATS))
def test_every_format_comes_as_one_file(workspace: Workspace, ending: str) -> None:
    name, content = made(workspace, ending)
    assert name in ("sfapp-job-window-2.zip", f"sfapp-job-window-2{ending}")
    assert content
    if ending == ".md":  # has drawings
        assert name == "sfapp-job-window-2.zip"
    if name == "sfapp-job-window-2.zip":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            assert archive.testzip() is None
            first, *drawings = archive.namelist()
        assert first == f"sfapp-job-window-2{ending}"
        assert drawings
        assert all(drawing.startswith("sfapp-job-window-2_files/") for drawing in drawings)
    assert (name, content) == made(workspace, ending)


def test_redacting_opens_only_the_packets_of_the_report_and_of_its_neighbours(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, int]] = []
    window = workspace.store.window

    def reading(run: str, number: int) -> Window:
        read.append((run, number))
        return window(run, number)

    monkeypatch.setattr(workspace.store, "window", reading)
    _, page = made(workspace, ".html", redact=True)
    # Where the effect in window 2 began and ended is seen in the windows next to it
    assert set(read) <= {(RUN, 1), (RUN, 2), (RUN, 3)}
    hosts = {host for number in range(5) for host in window(RUN, number).hostnames}
    assert workspace.store.hostnames() == hosts
    assert not any(host in page.decode() for host in hosts)


def test_app_and_command_give_the_same_text(workspace: Workspace) -> None:
    view = ViewState(gates=Gates(gamma_a=0.9), frontier="step", group="node:0", baseline="rank_median")
    shown = json.loads(made(workspace, ".json", view=view)[1])["report"]
    hidden = json.loads(made(workspace, ".json", redact=True, view=view)[1])["report"]
    for document in (shown, hidden):
        (section,) = document["windows"]
        diagnosis = section["diagnosis"]
        judged = workspace.judge(workspace.source(SICK), view).diagnosis
        assert diagnosis["shares"] == judged.shares
        assert diagnosis["frontier"] == "step"
    assert RUN in json.dumps(shown)
    assert f'"{RUN}"' not in json.dumps(hidden)


def test_an_incident_is_handed_over_with_what_was_collected(own_workspace: Workspace) -> None:
    own_workspace.store.ingest()
    ada = IncidentEditor(own_workspace.incident_log, "Ada")
    incident_id = ada.open_incident("Slow callback", severity="high", summary=f"{RUN} is slow.")
    incident = own_workspace.incident_log.state().incident(incident_id)
    ada.add_window(incident, SICK, "gamma_a=0.6")
    incident = own_workspace.incident_log.state().incident(incident_id)
    ada.add_window(incident, WindowKey(RUN, 77))  # is not there
    name, content = incident_report(own_workspace, incident_id)(
        ReportOptions(".html", False), ReportProgress()
    )
    page = content.decode()
    assert name == f"sfapp-{RUN}-incident-{incident.short_id}.html"
    for expected in ("<h1>Slow callback</h1>", "job is slow.", "γA 0.6 (default 0.4)", "callbacks on rank 3"):
        assert expected in page
    assert f"sfapp report {incident.short_id} " in page
    hidden = incident_report(own_workspace, incident_id)(ReportOptions(".html", True), ReportProgress())[
        1
    ].decode()
    assert "run-1 is slow." in hidden
    assert "run-1/77: " in hidden
    assert "node-0" not in hidden
    assert not re.search(rf"\b{RUN}\b", re.sub(r"(?s)<script.*?</script>", "", hidden))


@pytest.mark.parametrize("redact", [False, True], ids=["named", "redacted"])
def test_an_incident_is_reported_after_packets_of_a_window_are_gone(
    own_workspace: Workspace, packets: Path, redact: bool
) -> None:
    # Given an incident with two windows, of one of which only the verdict is left
    own_workspace.store.ingest()
    ada = IncidentEditor(own_workspace.incident_log, "Ada")
    incident_id = ada.open_incident("Slow callback", severity="high", summary="")
    for number in (1, 2):
        incident = own_workspace.incident_log.state().incident(incident_id)
        ada.add_window(incident, WindowKey(RUN, number))
    packet_path(packets, RUN, 2).unlink()
    # When its report is made
    _, content = incident_report(own_workspace, incident_id)(ReportOptions(".html", redact), ReportProgress())
    # Then the reason stands in place of that window
    page = content.decode()
    assert page.count('<section class="window"') == 1
    reason = "only its verdict is here" if redact else "were removed or changed after the last scan"
    assert reason in page


def test_names_are_hidden_as_the_command_hides_them(workspace: Workspace) -> None:
    page = made(workspace, ".html", redact=True)[1].decode()
    assert "run-1" in page
    assert "node-0" not in page
    assert "host-1" in page


def test_a_long_name_of_a_run_is_hidden_in_the_title_too(own_workspace: Workspace, packets: Path) -> None:
    run = f"secret-project-{'x' * 80}"
    put(packets, job_window(0, {}, run))
    own_workspace.store.ingest()
    maker = window_report(own_workspace, WindowKey(run, 0), ViewState())

    page = maker(ReportOptions(".md", True), ReportProgress())[1]
    with zipfile.ZipFile(io.BytesIO(page)) as archive:
        text = archive.read(archive.namelist()[0]).decode()

    assert "secret" not in text
    assert text.startswith("# Window 0 of run-")


def test_a_cancelled_report_ends_at_its_next_step(workspace: Workspace) -> None:
    progress = ReportProgress()
    progress.cancel()
    with pytest.raises(CancelledReportError):
        window_report(workspace, SICK, ViewState())(ReportOptions(".html", True), progress)


def test_a_deleted_window_is_reported(workspace: Workspace) -> None:
    with pytest.raises(WindowNotFoundError):
        window_report(workspace, WindowKey(RUN, 999), ViewState())(
            ReportOptions(".html", False), ReportProgress()
        )


async def test_making_a_report_leaves_the_app_free(workspace: Workspace) -> None:
    ticks = 0
    done = threading.Event()

    async def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    maker = window_report(workspace, SICK, ViewState())
    await asyncio.to_thread(maker, ReportOptions(".html", True), ReportProgress())
    done.set()
    await ticking
    assert ticks >= 5
