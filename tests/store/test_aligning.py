"""Windows whose own fit finds no wait are aligned where their run's others say, whatever came first."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sfapp.accounting import diagnose, diagnose_runs
from sfapp.model import Diagnosis, Window
from sfapp.store import IngestProgress, Store
from tests.builders import BACKWARD, CALLBACKS, OPTIMIZER, ddp_job, lasting_fault, window_of
from tests.store.jobs import contents, put


def lasting(run: str = "run") -> list[Window]:
    """Six windows of two ranks. The optimizer is late on rank 1 from the third on; the last two say nothing
    of where ranks wait: in them each step is like the other."""
    windows = lasting_fault(OPTIMIZER, ranks=2, run_id=run)
    return [*windows[:4], *(still(window) for window in windows[4:])]


def still(window: Window) -> Window:
    """The window with its second step in place of every one."""
    steps = len(window.step_N)
    duration_SNR = np.tile(window.duration_SNR[:, 1:2], (1, steps, 1))
    return replace(window, duration_SNR=duration_SNR, wall_NR=duration_SNR.sum(axis=0))


def stored(store: Store, run: str = "run") -> list[Diagnosis]:
    return store.diagnoses(run)


def known_from(store: Store) -> list[str | None]:
    return [diagnosis.waits_from for diagnosis in stored(store)]


def aims(store: Store, run: str = "run") -> list[tuple[str, int | None]]:
    return [(found.aim.stage, found.aim.rank) for found in stored(store, run) if found.aim is not None]


def as_one_would(windows: Sequence[Window]) -> list[Diagnosis]:
    """Diagnosed all at once. What a stored reference does not keep is left out (``Reference``)."""
    return [
        replace(one, reference=one.reference and replace(one.reference, stage_median_ns={}))
        for one in diagnose_runs(windows)
    ]


def ingest(root: Path, store: Store, windows: Sequence[Window]) -> None:
    for window in windows:
        put(root, window)
    store.ingest()


def test_the_fault_of_a_whole_run_is_named_in_all_its_windows(tmp_path: Path) -> None:
    with Store.open([tmp_path]) as store:
        ingest(tmp_path, store, lasting())
        assert aims(store)[2:] == [(OPTIMIZER, 1)] * 4
        assert known_from(store)[4:] == ["run"] * 2
        assert stored(store) == as_one_would(lasting())


@pytest.mark.parametrize(
    "order", [range(6), range(5, -1, -1), [4, 0, 5, 1, 3, 2]], ids=["as written", "backwards", "mixed"]
)
def test_windows_that_come_one_by_one_end_up_as_if_they_came_together(tmp_path: Path, order: range) -> None:
    windows = lasting()
    with Store.open([tmp_path]) as store:
        for number in order:
            ingest(tmp_path, store, [windows[number]])
        assert stored(store) == as_one_would(windows)


def test_a_window_without_information_waits_for_one_that_has_it(tmp_path: Path) -> None:
    windows = lasting()
    with Store.open([tmp_path]) as store:
        ingest(tmp_path, store, windows[4:])
        assert known_from(store) == [None, None]
        assert aims(store)[0][0] == BACKWARD
        ingest(tmp_path, store, windows[:3])
        assert aims(store)[2:] == [(OPTIMIZER, 1)] * 3
        # and when those that measured it go, nothing is known again
        for window in windows[:3]:
            put(tmp_path, window).unlink()
        store.ingest()
        assert known_from(store) == [None, None]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)], ids=str)
def test_the_fit_between_syncs_counts_until_a_window_of_the_run_measures_a_wait(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    # three that are late from their first step on, and one whose ranks measurably synchronise in the
    # callbacks
    late = lasting_fault(OPTIMIZER, ranks=2, seed=7)[3:]
    barrier = window_of(ddp_job(ranks=2)[[0, 1, 3, 2, 4, 5]], window=0, ranks_per_node=1)
    assert [diagnose(window).wait_stages for window in (*late, barrier)] == [()] * 3 + [(CALLBACKS,)]
    windows = [*late, barrier]
    come: list[Window] = []
    with Store.open([tmp_path]) as store:
        for index in order:
            come.append(windows[index])
            ingest(tmp_path, store, [windows[index]])
            assert stored(store) == as_one_would(come)
            boundary = CALLBACKS if barrier in come else BACKWARD if len(come) > 1 else None
            assert {diagnosis.sync_boundary for diagnosis in stored(store)} == {boundary}


def test_a_report_counts_files_once_though_windows_are_read_again(tmp_path: Path) -> None:
    windows = lasting()
    with Store.open([tmp_path]) as store:
        ingest(tmp_path, store, windows[4:])
        for window in windows[:3]:
            put(tmp_path, window)
        report = store.ingest()
        assert (report.added, report.unchanged, report.removed) == (3, 2, 0)
        again = store.ingest()
        assert (again.added, again.unchanged, again.changed) == (0, 5, False)


def test_runs_do_not_speak_for_each_other(tmp_path: Path) -> None:
    with Store.open([tmp_path]) as store:
        ingest(tmp_path, store, [*lasting("with")[:3], *lasting("without")[4:]])
        assert {diagnosis.waits_from for diagnosis in stored(store, "without")} == {None}


def test_an_ingest_stopped_before_aligning_is_completed_by_the_next(tmp_path: Path) -> None:
    windows, packets, db = lasting(), tmp_path / "packets", tmp_path / "store.duckdb"
    packets.mkdir()
    with Store.open([packets], db) as store:
        ingest(packets, store, windows[4:])
        for window in windows[:3]:
            put(packets, window)
        cancel = threading.Event()
        store.ingest(lambda progress: cancel.set(), cancel)
        assert known_from(store)[-2:] == [None, None]
    with Store.open([packets], db) as store:
        store.ingest()
        assert aims(store)[2:] == [(OPTIMIZER, 1)] * 3
    once = tmp_path / "once.duckdb"
    with Store.open([packets], once) as store:
        store.ingest()
    assert contents(once)["windows"] == contents(db)["windows"]


def test_a_window_that_cannot_be_aligned_is_not_read_again_and_again(tmp_path: Path) -> None:
    windows = lasting()
    gap = window_of(windows[4].duration_SNR, steps=[*range(20), *range(21, 41)], run_id="run", window=4)
    with Store.open([tmp_path]) as store:
        ingest(tmp_path, store, [*windows[:3], gap])
        assert known_from(store)[-1] is None
        generation = store.generation
        store.ingest()
        assert store.generation == generation


def test_an_absent_root_keeps_its_windows_though_they_should_be_aligned(tmp_path: Path) -> None:
    # given windows on a share that goes away before those come that measured where ranks wait
    share, disk, elsewhere = tmp_path / "share", tmp_path / "disk", tmp_path / "elsewhere"
    share.mkdir()
    disk.mkdir()
    windows = lasting()
    with Store.open([share, disk]) as store:
        ingest(share, store, windows[4:])
        share.rename(elsewhere)
        ingest(disk, store, windows[:3])
        # then they are there still, as they were
        assert known_from(store)[-2:] == [None, None]
        assert store.quarantine() == []
        # and are aligned once it is back
        elsewhere.rename(share)
        store.ingest()
        assert aims(store)[2:] == [(OPTIMIZER, 1)] * 3


def test_a_file_that_cannot_be_read_again_costs_nothing_that_is_stored(tmp_path: Path) -> None:
    windows = lasting()
    with Store.open([tmp_path]) as store:
        ingest(tmp_path, store, windows[4:])
        # given a disk that has gone bad under a file, whose size and time are as they were
        bad = put(tmp_path, windows[4])
        store.ingest()
        status = bad.stat()
        bad.write_bytes(bytes(status.st_size))
        os.utime(bad, ns=(status.st_atime_ns, status.st_mtime_ns))
        # when the windows are read again to be aligned
        ingest(tmp_path, store, windows[:3])
        # then that one stays as it is stored, and the other is aligned
        assert known_from(store)[-2:] == [None, "run"]
        assert store.quarantine() == []


def test_aligning_reports_its_progress(tmp_path: Path) -> None:
    windows = lasting()
    with Store.open([tmp_path]) as store:
        ingest(tmp_path, store, windows[4:])
        for window in windows[:3]:
            put(tmp_path, window)
        seen: list[IngestProgress] = []
        store.ingest(seen.append)
        assert IngestProgress("aligning", 2, 2) in seen
