"""The store follows samples of a running job, drops thinned ones, and can be rebuilt from files."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sfapp.errors import StoreError
from sfapp.metrics import MetricsLog, find_folders, segments_in
from sfapp.model.samples import (
    AnySample,
    GpuSample,
    LinkSample,
    NodeSample,
    PaceSample,
    ProcessSample,
    Sample,
)
from sfapp.store import SampleQuery, Store, database
from sfapp.store.samples import Paces
from tests.store.jobs import contents, put_run

SECOND = 10**9
START = 1_700_000_100  # seconds since 1970, a multiple of five minutes
BEGIN = datetime.fromtimestamp(START, UTC)


class _HeapUse(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def heap_bytes() -> int:
    """Bytes in use of the C library's heaps; skips the test where the library does not tell."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        pytest.skip("needs glibc 2.33")
    mallinfo.restype = _HeapUse
    return int(mallinfo().uordblks)


class SampledJob:
    """Two nodes of two ranks that say something every second."""

    def __init__(self, root: Path, run: str = "run") -> None:
        self.now = START
        self.log = MetricsLog(root, run, now_s=lambda: self.now)

    def go(self, seconds: int) -> None:
        for _ in range(seconds):
            self.log.add(self.samples())
            self.now += 1
            if self.now % 60 == 0:
                deque(self.log.downsample(), maxlen=0)

    def samples(self) -> list[AnySample]:
        at_ns, second = self.now * SECOND, self.now - START
        found: list[AnySample] = [
            NodeSample(at_ns=at_ns, node_rank=node, hostname=f"node-{node}", cpu_percent=float(second % 100))
            for node in (0, 1)
        ]
        found.append(
            GpuSample(at_ns=at_ns, node_rank=1, gpu=0, power_watts=500.0, throttle_reasons=("sw_power_cap",))
        )
        for rank in range(4):
            node = rank // 2
            found.append(ProcessSample(at_ns=at_ns, node_rank=node, rank=rank, rss_bytes=second))
            found.append(
                PaceSample(
                    at_ns=at_ns, node_rank=node, rank=rank, step=10 * second + 9, steps=10,
                    wall_mean_ns=100.0 + rank, wall_max_ns=150 + second,
                )
            )  # fmt: skip
        return found


def test_samples_are_there_as_they_come(tmp_path: Path) -> None:
    job = SampledJob(tmp_path)
    with Store.open([tmp_path], memory=True) as store:
        job.go(3)
        assert store.follow() == 3 * 11
        assert store.follow() == 0
        job.go(2)
        assert store.follow() == 2 * 11
        found = store.samples(SampleQuery(NodeSample, "run", node=1))
        assert [row["cpu_percent"] for row in found] == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert [row["sampled_at"] for row in found] == [
            BEGIN + timedelta(seconds=second) for second in range(5)
        ]
        assert {(row["hostname"], row["every_s"]) for row in found} == {("node-1", 1)}
        assert store.generation == 0


@pytest.mark.parametrize(
    ("kind", "subjects"),
    [
        (NodeSample, [{"node_rank": 0}, {"node_rank": 1}]),
        (GpuSample, [{"node_rank": 1, "gpu": 0}]),
        (ProcessSample, [{"rank": rank} for rank in range(4)]),
        (PaceSample, [{"rank": rank} for rank in range(4)]),
    ],
)
def test_the_newest_of_every_subject(
    tmp_path: Path, kind: type[Sample], subjects: list[dict[str, int]]
) -> None:
    job = SampledJob(tmp_path)
    job.go(4)
    SampledJob(tmp_path, "other").go(9)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        found = store.newest_samples(kind, "run")
        assert [{name: row[name] for name in subjects[0]} for row in found] == subjects
        assert {row["sampled_at"] for row in found} == {BEGIN + timedelta(seconds=3)}
        assert store.newest_samples(kind, "none") == []


def test_a_long_series_is_put_together_as_with_age(tmp_path: Path) -> None:
    SampledJob(tmp_path).go(100)
    with Store.open([tmp_path], memory=True) as store:
        store.follow()
        found = store.samples(SampleQuery(PaceSample, "run", rank=2, points=10))
        assert 10 <= len(found) <= 11
        assert sum(row["steps"] for row in found) == 1000
        assert {row["wall_mean_ns"] for row in found} == {102.0}
        assert max(row["wall_max_ns"] for row in found) == 150 + 99
        assert found[-1]["step"] == 999
        (gpu,) = store.samples(SampleQuery(GpuSample, "run", points=1))[:1]
        assert (gpu["throttle_reasons"], gpu["power_watts"]) == (["sw_power_cap"], 500.0)


def test_a_range_of_time_is_cut_out(tmp_path: Path) -> None:
    SampledJob(tmp_path).go(20)
    with Store.open([tmp_path], memory=True) as store:
        store.follow()
        since, until = BEGIN + timedelta(seconds=5), BEGIN + timedelta(seconds=7)
        found = store.samples(SampleQuery(ProcessSample, "run", rank=0, since=since, until=until))
        assert [row["rss_bytes"] for row in found] == [5, 6, 7]
        assert store.samples(SampleQuery(ProcessSample, "run", since=until + timedelta(days=1))) == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (SampleQuery(NodeSample, "run", rank=1), "NodeSample is not of one rank"),
        (SampleQuery(NodeSample, "run", points=0), "at least one"),
        (SampleQuery(Sample, "run"), "no samples of Sample"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path: Path, query: SampleQuery, message: str) -> None:
    with Store.open([tmp_path], memory=True) as store, pytest.raises(StoreError, match=message):
        store.samples(query)


def test_what_was_thinned_takes_the_place_of_what_was_read(tmp_path: Path) -> None:
    job = SampledJob(tmp_path)
    followed = 0
    with Store.open([tmp_path], memory=True) as store:
        for _ in range(30):
            job.go(60)
            followed += store.follow()
        found = store.samples(SampleQuery(PaceSample, "run", rank=0, points=10_000))
        assert {row["every_s"] for row in found} == {1, 10}
        assert sum(row["steps"] for row in found) == 10 * 1800
        assert [row["sampled_at"] for row in found] == sorted(row["sampled_at"] for row in found)
        assert followed > 1800 * 11
        with Store.open([tmp_path], memory=True) as anew:
            anew.ingest()
            assert anew.samples(SampleQuery(PaceSample, "run", rank=0, points=10_000)) == found


def test_a_file_that_goes_takes_its_samples_along(tmp_path: Path) -> None:
    SampledJob(tmp_path).go(2)
    with Store.open([tmp_path], memory=True) as store:
        store.follow()
        for path in segments_in(find_folders([tmp_path])):
            path.unlink()
        store.follow()
        assert store.samples(SampleQuery(NodeSample, "run")) == []


def test_samples_and_packets_do_not_get_in_each_other_s_way(tmp_path: Path) -> None:
    put_run(tmp_path)
    SampledJob(tmp_path).go(3)
    with Store.open([tmp_path]) as store:
        report = store.ingest()
        assert (report.added, report.quarantined) == (5, 0)
        assert len(store.samples(SampleQuery(NodeSample, "run", node=0))) == 3
        assert not store.ingest().changed
    path = tmp_path / ".sfapp" / "store.duckdb"
    before = contents(path)
    path.unlink()
    with Store.open([tmp_path]) as store:
        store.ingest()
    assert contents(path) == before


def test_a_file_of_something_else_is_refused_once_and_read_when_it_changes(tmp_path: Path) -> None:
    job = SampledJob(tmp_path)
    job.go(1)
    (path,) = segments_in(find_folders([tmp_path]))
    whole = path.read_bytes()
    path.write_bytes(b"rubbish\n")
    with Store.open([tmp_path]) as store:
        assert store.follow() == store.follow() == 0
        ((fault,),) = store._database.tuples("SELECT fault FROM metric_files")
        assert "not a sample header" in fault
        path.write_bytes(whole + b"no sample\n")
        assert store.follow() == 11
        ((refused, fault),) = store._database.tuples("SELECT refused_lines, fault FROM metric_files")
        assert (refused, fault) == (1, None)


def test_a_file_larger_than_one_reading_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfapp.metrics.sample_files.CHUNK_BYTES", 1000)
    SampledJob(tmp_path).go(30)
    with Store.open([tmp_path], memory=True) as store:
        assert store.follow() == 30 * 11
        assert len(store.samples(SampleQuery(ProcessSample, "run"))) == 30 * 4


def test_watching_follows_samples_while_they_are_written(tmp_path: Path) -> None:
    job = SampledJob(tmp_path)
    stop = threading.Event()
    with Store.open([tmp_path], memory=True) as store:
        watching = threading.Thread(target=store.watch, args=(stop, lambda report: None))
        watching.start()
        try:
            for second in range(3):
                job.go(1)
                wanted = BEGIN + timedelta(seconds=second)
                for _ in range(300):
                    newest = store.newest_samples(NodeSample, "run")
                    if newest and newest[0]["sampled_at"] == wanted:
                        break
                    stop.wait(0.02)
                assert newest[0]["sampled_at"] == wanted
        finally:
            stop.set()
            watching.join(10)
        assert not watching.is_alive()


def rows_of(paces: Paces) -> list[tuple[float, ...]]:
    """In the order of time; those of one moment, in any."""
    rows = list(zip(*(values.tolist() for values in paces.values()), strict=True))
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    return sorted(rows)


def test_paces_that_are_known_are_not_asked_for_again(tmp_path: Path) -> None:
    job = SampledJob(tmp_path)
    job.go(40)
    with Store.open([tmp_path], memory=True) as store:
        store.follow()
        known: Paces | None = None
        for seconds in (0, 1, 7, 100):
            # given a job that goes on
            job.go(seconds)
            store.follow()
            # when the newest half minute is asked for, with and without what was known
            now = datetime.fromtimestamp(job.now, UTC)
            since = now - timedelta(seconds=30)
            whole = store.paces("run", since, now)
            known = store.paces("run", since, now, known=known)
            # then the answer is the same
            assert rows_of(known) == rows_of(whole)
        assert len(known["rank"]) == 4 * 30


def test_few_samples_wait_in_memory_for_a_checkpoint(tmp_path: Path) -> None:
    """Rows that are only in the write-ahead log are held uncompressed in memory."""
    log = MetricsLog(tmp_path, "run", now_s=lambda: START)
    with Store.open([tmp_path]) as store:
        assert store.path is not None
        waiting = store.path.with_name("store.duckdb.wal")
        sizes = []
        for second in range(40):
            at_ns = (START + second) * SECOND
            log.add([ProcessSample(at_ns=at_ns, node_rank=0, rank=rank, rss_bytes=1) for rank in range(1000)])
            store.follow()
            sizes.append(waiting.stat().st_size if waiting.exists() else 0)
        assert 0 < max(sizes) < 2 << 20


def test_looking_at_the_newest_samples_takes_no_more_memory_each_time(tmp_path: Path) -> None:
    # Given a store, whose first queries fill caches
    SampledJob(tmp_path).go(60)
    with Store.open([tmp_path], tmp_path / "store.duckdb") as store:
        store.follow()

        def look(times: int) -> None:
            for _ in range(times):
                store.newest_samples(ProcessSample, "run")
                store.newest_samples(NodeSample, "run")

        look(200)
        before = heap_bytes()
        # When a page looks at them again and again
        look(500)
        # Then DuckDB does not keep a handle for each buffer of each query, 4 kB for each
        assert heap_bytes() - before < 500_000


def test_a_store_that_is_asked_every_second_keeps_no_handle_of_returned_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_CALLS_BETWEEN", 500)
    link = LinkSample(
        at_ns=START * SECOND, node_rank=0, rank=0, local_rank=0, hostname="a", world_size=1, silent_s=0.1,
        has_left=False,
    )  # fmt: skip
    MetricsLog(tmp_path, "run").add([link])
    with Store.open([tmp_path], tmp_path / "store.duckdb") as store:
        store.follow()

        def look(times: int) -> None:
            for _ in range(times):
                assert len(store.live_runs()) == 1

        look(500)
        before = heap_bytes()
        look(2_000)
        assert heap_bytes() - before < 300_000


def test_a_store_without_anything_in_use_keeps_its_limit_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_CALLS_BETWEEN", 1)
    with Store.open([tmp_path], tmp_path / "store.duckdb"):
        pass  # in the file, nothing is in memory any more
    with Store.open([tmp_path], tmp_path / "store.duckdb") as store:
        before = store._database.tuples("SELECT current_setting('memory_limit')")
        for _ in range(5):
            assert store.live_runs() == []
        assert store._database.tuples("SELECT current_setting('memory_limit')") == before
        put_run(tmp_path)
        assert store.ingest().added == 5
