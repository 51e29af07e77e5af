"""The window page while packets arrive: new windows, windows recorded again, refreshes that fail."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from nicegui.testing import User

from sfapp.app.window_session import WindowSession
from sfapp.errors import StoreError, WindowError
from sfapp.model.view import ViewState
from sfapp.service.judging import JudgedWindow, WindowSource
from sfapp.service.workspace import Workspace
from tests.app.page_elements import chooser, slider, until
from tests.app.recorded_job import SICK, job_window, put
from tests.builders import MS, OPTIMIZER


async def test_a_baseline_without_a_healthy_window_is_reported(watching_user: User, packets: Path) -> None:
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


async def test_the_healthy_windows_to_compare_with_are_those_of_now(
    watching_user: User, packets: Path
) -> None:
    user = watching_user
    await user.open(SICK)
    await user.should_see("callbacks on rank 3")
    assert chooser(user, "reference").options[""] == "healthy window 1"
    put(packets, job_window(1, {(OPTIMIZER, 6): 70 * MS}))
    await until(lambda: chooser(user, "reference").options[""] == "healthy window 4")


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


@pytest.mark.parametrize(("by", "shown"), [(1, 42), (-1, 40)])
def test_steps_go_on_from_one_that_the_window_has_lost(by: int, shown: int) -> None:
    changes: list[int] = []
    window = SimpleNamespace(step_N=np.array([40, 42, 43]))
    session = SimpleNamespace(
        view=ViewState(step=41),
        model=SimpleNamespace(window=window),
        change=lambda step: changes.append(step),
    )
    WindowSession.next_step(session, by)
    assert changes == [shown]
