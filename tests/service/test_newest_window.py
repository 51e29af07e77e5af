"""The newest window of a running job: in memory as long as it is the newest."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

from sfapp.model import Window
from sfapp.model.view import WindowKey
from sfapp.packets import packet_path, write_packet
from sfapp.service.live import live_run_snapshot
from sfapp.service.live_address import LiveState
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.live_job import LIVE, LiveJob
from tests.app.recorded_job import job_window


def test_a_live_page_keeps_no_window_that_it_no_longer_shows(tmp_path: Path) -> None:
    LiveJob(tmp_path).go(3)
    shown: list[weakref.ref[Window]] = []
    with Store.open([tmp_path], memory=True) as store:
        workspace = Workspace(store, [tmp_path])
        for number in range(4):
            write_packet(job_window(number, {}, run_id=LIVE), packet_path(tmp_path, LIVE, number))
            store.ingest()
            for tab in ("node:0", "node:1"):
                window = live_run_snapshot(workspace, LIVE, LiveState(tab=tab)).window
                assert window is not None
                assert workspace.newest_window(workspace.source(WindowKey(LIVE, number))) is window
            shown.append(weakref.ref(window))
            del window
        gc.collect()
        assert [each() is not None for each in shown] == [False, False, False, True]
