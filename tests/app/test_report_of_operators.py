"""A report from the app on a window that was profiled: what its operators say goes along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sfapp.model.view import ViewState, WindowKey
from sfapp.report.workspace_report import ReportOptions, ReportProgress, window_report
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.profiled import PROFILED, put_profiled

TITLES = ("Rank similarity", "Path from cause to delayed rank", "Suspect vs typical rank")


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    root = tmp_path_factory.mktemp("packets")
    put_profiled(root, tmp_path_factory.mktemp("traces"))
    with Store.open([root], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [root])
        yield workspace
        workspace.close()


@pytest.mark.parametrize("redact", [False, True])
def test_findings_of_operators_are_in_the_report(examined: Workspace, redact: bool) -> None:
    make = window_report(examined, WindowKey(PROFILED, 0), ViewState())
    _, content = make(ReportOptions(".html", redact), ReportProgress())
    page = content.decode()
    for title in TITLES:
        assert title in page
    assert len(content) < 1_000_000


def test_files_that_cannot_be_read_are_no_reason_for_no_report(
    examined: Workspace, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    put_profiled(tmp_path, tmp_path_factory.mktemp("traces"))
    (events,) = tmp_path.rglob("*ops.parquet")
    events.write_bytes(b"nothing of the kind")
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [tmp_path])
        make = window_report(workspace, WindowKey(PROFILED, 0), ViewState())
        page = make(ReportOptions(".html", False), ReportProgress())[1].decode()
        workspace.close()
    # Then stages stand in, and the plots say so
    assert TITLES[0] in page
    assert "Based on stages, not on operators." in page
