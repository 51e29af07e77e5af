"""What becomes of packet files: read once, diagnosed, listed; bad ones stop nothing."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sfapp import diagnose
from sfapp.accounting import diagnose_runs
from sfapp.model.stages import stage_hash
from sfapp.store import IngestProgress, Store
from sfapp.store.database import Cursor
from sfapp.store.run_waits import misaligned
from sfapp.store.verdict_rows import Key
from sfapp.views.text import unknown
from tests.store.jobs import RANKS, SLOW, SLOWER, later, numbers, part, put, put_part, put_run, window

HOSTILE = """'; DROP TABLE windows; -- <script>alert(1)</script> "é\N{SNOWMAN}"""


def test_packets_become_windows_with_their_diagnoses(tmp_path: Path) -> None:
    # given three runs, one of them in a folder further down
    for run in ("a", "b"):
        put_run(tmp_path, run)
    put_run(tmp_path / "deeper" / "still", "c", count=2)
    # when they are ingested
    with Store.open([tmp_path]) as store:
        report = store.ingest()
        # then every window is there, with the diagnosis that the accounting gives
        assert (report.added, report.quarantined, report.removed, report.conflicts) == (12, 0, 0, 0)
        assert [run.run_id for run in store.runs()] == ["a", "b", "c"]
        windows = [store.window(run, number) for run in ("a", "b") for number in range(5)]
        for expected in diagnose_runs(windows):
            stored = store.diagnosis(expected.run_id, expected.window)
            # a reference taken from a stored diagnosis serves deltas, not baselines
            known = expected.reference and replace(expected.reference, stage_median_ns={})
            assert stored == replace(expected, reference=known)


def test_the_matrix_of_a_window_comes_back_exactly(tmp_path: Path) -> None:
    made = window(number=3, extra=SLOW)
    put(tmp_path, made)
    with Store.open([tmp_path]) as store:
        store.ingest()
        read = store.window("run", 3)
    assert np.array_equal(read.duration_SNR, made.duration_SNR)
    assert read.manifest == made.manifest


def test_a_second_ingest_reads_nothing(tmp_path: Path) -> None:
    put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
        generation = store.generation
        report = store.ingest()
        assert (report.added, report.unchanged, report.changed) == (0, 5, False)
        assert store.generation == generation
    # nor does one in a store that was closed in between
    with Store.open([tmp_path]) as store:
        assert store.ingest().unchanged == 5
        assert numbers(store) == [0, 1, 2, 3, 4]


def test_a_touched_file_is_not_news(tmp_path: Path) -> None:
    path = put_run(tmp_path)[1]
    with Store.open([tmp_path]) as store:
        store.ingest()
        later(path)
        report = store.ingest()
        assert (report.added, report.unchanged, report.changed) == (0, 5, False)


def test_a_copy_counts_once(tmp_path: Path) -> None:
    path = put(tmp_path, window())
    shutil.copy(path, tmp_path / "copy.parquet")
    with Store.open([tmp_path]) as store:
        report = store.ingest()
        assert report.conflicts == 0
        assert numbers(store) == [0]
        assert len(store.sources("run", 0)) == 1
        # when the first of the two goes, the other takes its place
        store.sources("run", 0)[0].path.unlink()
        store.ingest()
        assert numbers(store) == [0]


def test_a_replaced_packet_replaces_its_window(tmp_path: Path) -> None:
    put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
        put(tmp_path, window(number=3, extra=SLOWER))
        report = store.ingest()
        assert (report.added, report.unchanged) == (1, 4)
        aim = store.diagnosis("run", 3).aim
        assert aim is not None
        assert (aim.stage, aim.rank) == ("callbacks.cpu_wall", 1)


def test_a_window_goes_with_its_file(tmp_path: Path) -> None:
    paths = put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
        paths[2].unlink()
        report = store.ingest()
        assert (report.removed, report.unchanged) == (1, 4)
        assert numbers(store) == [0, 1, 3, 4]
        shutil.rmtree(tmp_path / "run")
        assert store.ingest().removed == 4
        assert store.runs() == []


def test_a_moved_run_stays(tmp_path: Path) -> None:
    put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        report = store.ingest()
        assert report.removed == 5
        assert numbers(store) == [0, 1, 2, 3, 4]
        assert store.sources("run", 0)[0].path.parent.name == "elsewhere"


def test_an_absent_root_takes_nothing_with_it(tmp_path: Path) -> None:
    # given a store over two shares, of which one goes away for a while
    here, share = tmp_path / "here", tmp_path / "share"
    put_run(here, "a")
    put_run(share, "b")
    with Store.open([here, share]) as store:
        store.ingest()
        share.rename(tmp_path / "unmounted")
        # when the store is brought up to date meanwhile, then it keeps what it knows
        assert store.ingest().removed == 0
        assert len(store.runs()) == 2


def test_bad_files_are_listed_with_reasons_and_stop_nothing(tmp_path: Path) -> None:
    good, half = put_run(tmp_path, count=2)
    whole = half.read_bytes()
    half.write_bytes(whole[: len(whole) // 2])
    (tmp_path / "notes.parquet").write_text("not a packet")
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "dangling.parquet").symlink_to(tmp_path / "nowhere")
    with Store.open([tmp_path]) as store:
        report = store.ingest()
        assert (report.added, report.quarantined) == (1, 4)
        refused = {Path(file.name).name: file for file in store.quarantine()}
        assert set(refused) == {"dangling.parquet", "empty.parquet", "notes.parquet", half.name}
        assert "not a readable Parquet file" in refused["notes.parquet"].reason
        assert refused["notes.parquet"].size == 12
        assert len(refused["notes.parquet"].sha256) == 64
        # a refused file is not read again before it changes, and is taken in once it is whole
        assert store.ingest().unchanged == 5
        half.write_bytes(whole)
        report = store.ingest()
        assert (report.added, report.quarantined) == (1, 0)
        assert numbers(store) == [0, 1]
        assert half.name not in {Path(file.name).name for file in store.quarantine()}
        # a good file that goes bad takes its window with it
        good.write_bytes(b"overwritten")
        assert store.ingest().quarantined == 1
        assert numbers(store) == [1]
        good.unlink()
        store.ingest()
        assert good.name not in {Path(file.name).name for file in store.quarantine()}


def test_durations_that_cannot_be_added_up_are_quarantined_alone(tmp_path: Path) -> None:
    # given a packet whose every value is allowed and whose sum of maxima is not
    put_run(tmp_path)
    huge = window(number=7)
    durations = np.zeros_like(huge.duration_SNR)
    durations[0, 0, 0] = durations[1, 1, 1] = 2**60
    durations[2, 2, 2] = durations[3, 3, 3] = 2**60
    path = put(tmp_path, replace(huge, duration_SNR=durations, wall_NR=durations.sum(axis=0)))
    with Store.open([tmp_path]) as store:
        report = store.ingest()
        assert (report.quarantined, numbers(store)) == (1, [0, 1, 2, 3, 4])
        (refused,) = store.quarantine()
        assert refused.name == str(path)
        assert "more than the accounting can hold" in refused.reason
        assert store.ingest().changed is False


def test_a_window_with_two_contents_is_a_conflict_and_the_newer_is_shown(tmp_path: Path) -> None:
    old = put(tmp_path, window(extra=SLOW))
    new = put(tmp_path, window(extra=SLOWER), tmp_path / "again.parquet")
    later(new)
    with Store.open([tmp_path]) as store:
        assert store.ingest().conflicts == 1
        (conflict,) = store.conflicts()
        assert (conflict.run_id, conflict.window) == ("run", 0)
        assert "different content" in conflict.reason
        assert [source.path for source in conflict.shown] == [new]
        assert [source.path for source in conflict.set_aside] == [old]
        assert store.diagnosis("run", 0).aim.stage == "callbacks.cpu_wall"
        # when the older is touched, it is the newer
        later(old, seconds=20)
        report = store.ingest()
        assert (report.added, report.changed) == (0, True)
        assert [source.path for source in store.conflicts()[0].shown] == [old]
        assert store.diagnosis("run", 0).aim.stage == "data.next_wait"
        # and when one of them goes, so does the conflict
        old.unlink()
        store.ingest()
        assert store.conflicts() == []
        assert store.diagnosis("run", 0).aim.stage == "callbacks.cpu_wall"


def test_a_part_that_is_left_out_is_reported_wherever_its_window_is_read(tmp_path: Path) -> None:
    # given a window whose last rank reported other stages than the others
    made = window(extra=SLOW)
    for rank in range(RANKS - 1):
        put_part(tmp_path, made, rank)
    names = (*made.stages[:-2], "own.stage", made.stages[-1])
    other = replace(made.manifest, stages=names, stage_hash=stage_hash(names))
    odd = put_part(tmp_path, replace(made, manifest=other), RANKS - 1)
    with Store.open([tmp_path]) as store:
        store.ingest()
        # when it is opened, it says so, as its stored diagnosis does
        for found in (store.diagnosis("run", 0), diagnose(store.window("run", 0))):
            assert {"schema_mismatch", "missing_ranks"} <= set(found.all_reasons)
        assert [source.path for source in store.packet_files("run", 0)[1]] == [odd]
        assert odd not in [source.path for source in store.sources("run", 0)]
        assert "Rank 3 did not report data that fits the other ranks." in unknown(found)
        # and a part that has gone since takes no window with it
        odd.unlink()
        assert store.window("run", 0).ranks.rank == (0, 1, 2)


def test_a_conflict_that_comes_later_is_found(tmp_path: Path) -> None:
    put(tmp_path, window(extra=SLOW))
    with Store.open([tmp_path]) as store:
        store.ingest()
        later(put(tmp_path, window(extra=SLOWER), tmp_path / "again.parquet"))
        report = store.ingest()
        assert (report.added, report.conflicts) == (1, 1)


def test_parts_make_one_window_however_late_they_come(tmp_path: Path) -> None:
    # given a window whose gather failed: three ranks have left their parts
    made = window(extra=SLOW)
    for rank in (0, 1, 3):
        put_part(tmp_path, made, rank)
    with Store.open([tmp_path]) as store:
        store.ingest()
        diagnosis = store.diagnosis("run", 0)
        assert (diagnosis.ranks, diagnosis.missing_ranks, diagnosis.gather_ok) == (3, (2,), False)
        # when the last one arrives
        put_part(tmp_path, made, 2)
        store.ingest()
        # then the window is whole and exact
        diagnosis = store.diagnosis("run", 0)
        assert (diagnosis.ranks, diagnosis.missing_ranks) == (RANKS, ())
        assert diagnosis.advances_ns == diagnose(made).advances_ns
        assert np.array_equal(store.window("run", 0).duration_SNR, made.duration_SNR)
        assert [source.part_rank for source in store.sources("run", 0)] == [0, 1, 2, 3]
        assert store.conflicts() == []


def test_parts_of_many_windows_are_put_together_whatever_the_batches(tmp_path: Path) -> None:
    for number in range(40):
        made = window(number=number)
        for rank in range(RANKS):
            put_part(tmp_path, made, rank)
    with Store.open([tmp_path], memory=True) as store:
        assert store.ingest().added == 160
        assert numbers(store, limit=50) == list(range(40))
        assert all(store.diagnosis("run", number).ranks == RANKS for number in range(40))


def test_a_redundant_part_changes_nothing(tmp_path: Path) -> None:
    made = window()
    put(tmp_path, made)
    put(tmp_path, part(made, 1), tmp_path / "run" / "00000000.rank1.parquet")
    with Store.open([tmp_path]) as store:
        assert store.ingest().conflicts == 0
        assert len(store.sources("run", 0)) == 1


def test_hostile_names_do_no_harm(tmp_path: Path) -> None:
    made = window(HOSTILE, extra=SLOW)
    ranks = replace(made.ranks, hostname=(HOSTILE,) * RANKS)
    folder = tmp_path / 'it\'s "quoted" [*]'
    put(folder, replace(made, ranks=ranks))
    (folder / "bad '; DROP TABLE packets; --.parquet").write_text(HOSTILE)
    os.close(os.open(os.fsencode(folder) + b"/\xff\xfe.parquet", os.O_CREAT))
    with Store.open([folder]) as store:
        report = store.ingest()
        assert (report.added, report.quarantined) == (1, 2)
        assert store.runs()[0].run_id == HOSTILE
        assert store.diagnosis(HOSTILE, 0).aim.hostname == HOSTILE
        assert numbers(store, text=HOSTILE) == [0]
        assert numbers(store, run="' OR true --") == []
        assert store.window(HOSTILE, 0).ranks.hostname[0] == HOSTILE
        assert any("\\xff" in file.name for file in store.quarantine())
        assert store.ingest().changed is False


@pytest.mark.parametrize("year", [2400, -200])
def test_a_file_with_an_impossible_modification_time_stops_no_other(tmp_path: Path, year: int) -> None:
    """Its owner can set any time; an int64 holds ns until the year 2262."""
    at = int((year - 1970) * 365.25 * 86_400)
    packet, bad = put(tmp_path, window(number=0)), tmp_path / "bad.parquet"
    put(tmp_path, window(number=1, extra=SLOW))
    bad.write_bytes(b"no packet")
    for path in (packet, bad):
        os.utime(path, (at, at))
    with Store.open([tmp_path]) as store:
        report = store.ingest()
        assert (report.added, report.quarantined) == (2, 1)
        assert store.ingest().unchanged == 3
        assert store.newest_packet_at() is not None
        assert len(store.quarantine()) == 1


def test_progress_counts_up_and_a_cancelled_ingest_is_finished_by_the_next(tmp_path: Path) -> None:
    for number in range(300):
        put(tmp_path, window(number=number))
    seen: list[IngestProgress] = []
    cancel = threading.Event()

    def stop_early(progress: IngestProgress) -> None:
        seen.append(progress)
        cancel.set()

    with Store.open([tmp_path], memory=True) as store:
        report = store.ingest(stop_early, cancel)
        assert report.cancelled
        assert 0 < report.added < 300
        assert store.windows().total == report.added
        rest = store.ingest(seen.append)
        assert (rest.added, rest.unchanged) == (300 - report.added, report.added)
    reading = [progress for progress in seen[1:] if progress.phase == "reading"]
    assert [progress.done for progress in reading] == sorted(progress.done for progress in reading)
    assert reading[-1].done == reading[-1].total == rest.added
    assert seen[-1] == IngestProgress("comparing", 1, 1)


def test_many_threads_ask_while_one_ingests(tmp_path: Path) -> None:
    for number in range(80):
        put(tmp_path, window(number=number))
    finished = threading.Event()
    totals: list[list[int]] = [[] for _ in range(4)]
    with Store.open([tmp_path]) as store:

        def ask(found: list[int]) -> None:
            while not finished.is_set():
                found.append(store.windows().total)
                assert len(store.timeline()) >= found[-1]
                store.runs()

        threads = [threading.Thread(target=ask, args=(found,)) for found in totals]
        for thread in threads:
            thread.start()
        try:
            store.ingest()
        finally:
            finished.set()
            for thread in threads:
                thread.join()
        assert store.windows().total == 80
    assert all(found == sorted(found) for found in totals)


def test_a_pass_that_finds_nothing_new_looks_at_no_window_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def noted(cursor: Cursor) -> set[Key]:
        looks.append("aligned")
        return misaligned(cursor)

    monkeypatch.setattr("sfapp.store.ingest.misaligned", noted)
    put_run(tmp_path)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        store.ingest()
        assert looks == ["aligned"]
        put(tmp_path, window(number=5))
        store.ingest()
        store.set_reference("run", 1)
        store.ingest()
        assert looks == ["aligned"] * 3
