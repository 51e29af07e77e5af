"""The newest steps of every rank reach the file that the live page judges, over the real stream."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import BrokenBarrierError

import numpy as np
import pytest

from sfapp.accounting import rolling_verdict
from sfapp.errors import MetricsError
from sfapp.model import DEFAULT_STAGES, RankIdentity
from sfapp.packets import newest_steps
from sfapp.packets.newest_steps import newest_steps_path, read_newest_steps, write_newest_steps
from sfapp.stream import newest_steps_writer
from sfapp.stream.live_state import LiveSnapshot, RankSnapshot
from sfapp.stream.metrics_writer import MetricsWriter
from sfapp.stream.newest_steps_writer import NewestStepsWriter
from tests.builders import ddp_job
from tests.live_rows import live_rows
from tests.stream.streams import aggregating, recorder, until

DATA, _, BACKWARD, *_ = DEFAULT_STAGES
WORLD = 3


def test_a_rank_that_begins_to_be_late_is_named_from_what_it_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three ranks wait for each other in backward; rank 1 takes 20 ms longer in data from some step on."""
    monkeypatch.setenv("WORLD_SIZE", str(WORLD))
    barrier, is_late, is_over = threading.Barrier(WORLD), threading.Event(), threading.Event()
    metrics = MetricsWriter(tmp_path)

    def train(rank: int, endpoint: str) -> None:
        with recorder(tmp_path, endpoint, rank, window_steps=1000) as perf, suppress(BrokenBarrierError):
            while not is_over.is_set():
                with perf.step():
                    with perf.stage(DATA):
                        time.sleep(0.03 if rank == 1 and is_late.is_set() else 0.01)
                    with perf.stage(BACKWARD):
                        time.sleep(0.01)
                        barrier.wait(20)

    def named() -> bool:
        path = newest_steps_path(tmp_path, "run")
        if not path.exists():
            return False
        found = rolling_verdict(read_newest_steps(path))
        return found.finding is not None and (found.finding.stage, found.finding.ranks) == (DATA, (1,))

    with aggregating(tmp_path) as aggregator, metrics.running(aggregator.snapshot):
        ranks = [threading.Thread(target=train, args=(rank, aggregator.endpoint)) for rank in range(WORLD)]
        for thread in ranks:
            thread.start()
        until(lambda: (shown := newest_steps_path(tmp_path, "run")).exists() and _steps(shown) >= 5)
        is_late.set()
        until(named)
        is_over.set()
        barrier.abort()
        for thread in ranks:
            thread.join(20)


def _steps(path: Path) -> int:
    return min((len(rank.row_NC) for rank in read_newest_steps(path).ranks), default=0)


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = newest_steps_path(tmp_path, "a/b")
    rows = live_rows(ddp_job(ranks=4, steps=9), silent={1: 7.5}, left=[2], stopped={3: 0}, run_id="a/b")
    write_newest_steps(path, rows)
    found = read_newest_steps(path)
    assert (found.run_id, found.world_size, len(found.ranks)) == ("a/b", 4, 4)
    for expected, rank in zip(rows.ranks, found.ranks, strict=True):
        assert (rank.identity, rank.stages) == (expected.identity, expected.stages)
        assert (rank.silent_s, rank.idle_s, rank.has_left) == (
            expected.silent_s,
            expected.idle_s,
            expected.has_left,
        )
        assert rank.row_NC.tolist() == expected.row_NC.tolist()


def test_many_rows_are_cut_to_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_steps, "ROW_BYTES", 10 * 4 * 8 * 8)
    path = newest_steps_path(tmp_path, "run")
    write_newest_steps(path, live_rows(ddp_job(ranks=4, steps=30)))
    assert [rank.row_NC[:, 0].tolist() for rank in read_newest_steps(path).ranks] == [[*range(120, 130)]] * 4


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"\x93" + content, "damaged"),
        (lambda content: content[:-100], "damaged"),
        (lambda content: content.replace(b"\xa7version\x01", b"\xa7version\x63"), "version 99"),
        (lambda content: b"", "damaged"),
    ],
)
def test_a_damaged_file_is_rejected(tmp_path: Path, damage: object, message: str) -> None:
    path = newest_steps_path(tmp_path, "run")
    write_newest_steps(path, live_rows(ddp_job(ranks=2, steps=5)))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(MetricsError, match=message):
        read_newest_steps(path)


def test_negative_durations_are_rejected(tmp_path: Path) -> None:
    path = newest_steps_path(tmp_path, "run")
    duration = ddp_job(ranks=2, steps=5)
    duration[0, 3, 1] = -1
    write_newest_steps(path, live_rows(duration))
    with pytest.raises(MetricsError, match="negative"):
        read_newest_steps(path)


def test_steps_that_do_not_ascend_are_rejected_with_their_rank(tmp_path: Path) -> None:
    path = newest_steps_path(tmp_path, "run")
    rows = live_rows(ddp_job(ranks=4, steps=9), stopped={0: 0})
    rows.ranks[2].row_NC[4, 0] = rows.ranks[2].row_NC[3, 0]
    write_newest_steps(path, rows)
    with pytest.raises(MetricsError, match="the steps of rank 2 do not ascend"):
        read_newest_steps(path)


def test_steps_before_a_return_to_a_checkpoint_are_left_out(tmp_path: Path) -> None:
    row_NC = np.array([[step, 5, 5] for step in (50, 51, 40, 41, 42)], dtype=np.int64)
    rank = RankSnapshot("run", RankIdentity(0, 0, 0, "h"), 1, ("a",), row_NC, 0, 0.1, False, 0, 0, 0.2)
    failures: list[str] = []
    NewestStepsWriter(tmp_path, time.time, failures.append).write(LiveSnapshot((rank,), {}, {}, 0))
    (found,) = read_newest_steps(newest_steps_path(tmp_path, "run")).ranks
    assert found.row_NC[:, 0].tolist() == [40, 41, 42]
    assert not failures


def test_a_run_that_ended_is_written_once_more_and_a_failing_disk_is_noted(tmp_path: Path) -> None:
    row_NC = np.array([[1, 5, 5]], dtype=np.int64)
    rank = RankSnapshot("run", RankIdentity(0, 0, 0, "h"), 1, ("a",), row_NC, 0, 0.1, True, 0, 0, 0.2)
    failures: list[str] = []
    writer = NewestStepsWriter(tmp_path, time.time, failures.append)
    writer.write(LiveSnapshot((rank,), {}, {}, 0))
    path = newest_steps_path(tmp_path, "run")
    assert read_newest_steps(path).ranks[0].has_left
    path.unlink()
    writer.write(LiveSnapshot((rank,), {}, {}, 0))
    assert not path.exists()
    (tmp_path / "other").write_text("in the way")
    other = RankSnapshot("other", rank.identity, 1, ("a",), row_NC, 0, 0.1, False, 0, 0, 0.2)
    writer.write(LiveSnapshot((other,), {}, {}, 0))
    assert len(failures) == 1


def test_wide_rows_and_many_lists_of_stages_leave_the_file_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come from ranks: a file beyond its limit would show no rank at all."""
    monkeypatch.setattr(newest_steps, "MAX_BYTES", 4096)
    monkeypatch.setattr(newest_steps, "MOST_LAYOUTS", 2)
    path = newest_steps_path(tmp_path, "run")
    wide = live_rows(ddp_job(ranks=4, steps=30))
    first, second, *others = (
        replace(rank, stages=(*rank.stages[:-1], f"own {rank.identity.rank}")) for rank in wide.ranks
    )
    size = write_newest_steps(path, replace(wide, ranks=(first, second, *others)))
    assert size < 4096
    found = read_newest_steps(path).ranks
    assert [rank.stages for rank in found] == [first.stages, second.stages, first.stages, first.stages]
    assert [len(rank.row_NC) for rank in found] == [16, 16, 0, 0]
    monkeypatch.setattr(newest_steps, "MAX_BYTES", 100)
    write_newest_steps(path, wide)
    monkeypatch.undo()
    assert [len(rank.row_NC) for rank in read_newest_steps(path).ranks] == [0] * 4


def test_a_world_size_beyond_any_job_is_rejected(tmp_path: Path) -> None:
    """Every rank that did not report is counted: a few bytes must not claim billions."""
    path = newest_steps_path(tmp_path, "run")
    write_newest_steps(path, live_rows(ddp_job(ranks=2, steps=5), world_size=2**31 - 1))
    with pytest.raises(MetricsError, match="damaged"):
        read_newest_steps(path)


def test_more_runs_than_are_written_at_once_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_steps_writer, "MAX_RUNS", 2)
    ranks = tuple(
        RankSnapshot(
            run_id, RankIdentity(0, 0, 0, "host"), 1, (), np.zeros((0, 2), np.int64), 0, 0.0, left, 0, 0
        )
        for run_id, left in (("a", True), ("b", False), ("c", True), ("d", False), ("e", False))
    )
    failures: list[str] = []
    writer = NewestStepsWriter(tmp_path, time.time, failures.append)
    for _ in range(3):
        writer.write(LiveSnapshot(ranks, {}, {}, 0))
    assert sorted(path.parent.parent.name for path in tmp_path.rglob("newest.steps")) == list("abcde")
    paths = {name: newest_steps_path(tmp_path, name) for name in "abcde"}
    for path in paths.values():
        os.utime(path, ns=(0, 0))
    for _ in range(2):
        writer.write(LiveSnapshot(ranks, {}, {}, 0))
    assert {name for name, path in paths.items() if path.stat().st_mtime_ns} == {"b", "d", "e"}
    assert failures == []
