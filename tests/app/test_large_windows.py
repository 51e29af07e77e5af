"""Windows so large that what a page shows of them is computed on threads: the same page, the loop free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from nicegui.testing import User

from sfapp.accounting import GateChange, Measures
from sfapp.app.panels import tabs, view_model
from sfapp.model import Diagnosis
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views.rank_rows import RankTableRows
from sfapp.views.table_columns import Row
from tests.app.page_elements import href, slider, until
from tests.app.recorded_job import job_window, put
from tests.builders import CALLBACKS, MS


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """A window that counts as large, in the place of the recorded job."""
    monkeypatch.setattr(view_model, "LARGE", 1)
    put(tmp_path, job_window(0, {(CALLBACKS, 3): 60 * MS}))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        yield Workspace(store, [tmp_path])


async def test_tables_are_computed_off_the_event_loop(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given tables that note the thread that computes them
    threads: dict[str, list[threading.Thread]] = {"ranks": [], "gates": []}
    rank_rows, gate_rows = tabs.rank_rows, tabs.gate_rows

    def noted_ranks(measures: Measures, diagnosis: Diagnosis) -> RankTableRows:
        threads["ranks"].append(threading.current_thread())
        return rank_rows(measures, diagnosis)

    def noted_gates(measures: Measures, diagnosis: Diagnosis) -> list[Row]:
        threads["gates"].append(threading.current_thread())
        return gate_rows(measures, diagnosis)

    monkeypatch.setattr(tabs, "rank_rows", noted_ranks)
    monkeypatch.setattr(tabs, "gate_rows", noted_gates)
    # When their tabs are opened
    await user.open("/w/job/0?tab=ranks")
    await user.should_see("those that are slowest at the suspect stage")
    await user.open("/w/job/0?tab=ambiguity")
    await user.should_see("distance to the next change of verdict")
    # Then each was computed once for its page, and never on the event loop's thread
    assert all(len(found) == 1 for found in threads.values())
    assert threading.main_thread() not in [each for found in threads.values() for each in found]


async def test_judgements_of_any_window_leave_the_event_loop_free_while_a_gate_moves(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a window that is not large, and the thread noted that looks for changes of its verdict
    monkeypatch.setattr(view_model, "LARGE", 1 << 20)
    await user.open("/w/job/0?tab=ambiguity")
    await user.should_see("distance to the next change of verdict")
    threads: list[threading.Thread] = []
    gate_rows = tabs.gate_rows

    def noted(measures: Measures, diagnosis: Diagnosis) -> list[Row]:
        threads.append(threading.current_thread())
        return gate_rows(measures, diagnosis)

    monkeypatch.setattr(tabs, "gate_rows", noted)
    # When a gate has moved
    slider(user, "tau_c").value = 0.5
    await until(lambda: bool(threads))
    # Then they were made on a thread
    assert threading.main_thread() not in threads


async def test_a_page_of_any_window_is_opened_without_judgements_on_the_event_loop(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_model, "LARGE", 1 << 20)
    threads: list[threading.Thread] = []
    nearest_changes = view_model.nearest_changes

    def noted(
        measures: Measures, diagnosis: Diagnosis, gates: tuple[str, ...]
    ) -> Mapping[str, tuple[GateChange, ...]]:
        threads.append(threading.current_thread())
        return nearest_changes(measures, diagnosis, gates)

    monkeypatch.setattr(view_model, "nearest_changes", noted)
    await user.open("/w/job/0")
    await user.should_see("Thresholds")
    assert len(threads) == 1
    assert threading.main_thread() not in threads


async def test_a_large_window_shows_changes_of_the_view(user: User) -> None:
    await user.open("/w/job/0?tab=ranks")
    await user.should_see("those that are slowest at the suspect stage")
    user.find(marker="next-step").click()
    async with asyncio.timeout(20):
        while href(user, "json") != "/w/job/0.json?tab=ranks&step=0":
            await asyncio.sleep(0.02)
    await user.should_see("step 0")


async def test_a_table_of_many_ranks_counts_those_that_it_leaves_out(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabs, "RANKS_LISTED", 3)
    await user.open("/w/job/0?tab=ranks")
    await user.should_see("come first; the first 3 of 8; the CSV on the Data tab has all")
