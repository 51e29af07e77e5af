"""Run ids come from the network: an aggregator remembers a bounded number, and loses no step by that."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from sfapp.stream.messages import Heartbeat, Refused, Resend
from tests.stream.streams import (
    ManualRank,
    aggregating,
    recorder,
    replaced_by_a_file,
    train,
    until,
    windows_in,
)


def send_hello(rank: ManualRank, run_id: str) -> None:
    rank.head["incarnation"] = run_id
    rank.send(rank.hello(run_id=run_id))


def test_the_run_that_is_idle_for_longest_is_closed_and_named(tmp_path: Path) -> None:
    with (
        aggregating(tmp_path, most_runs=4, abandon_after=0.3) as aggregator,
        ManualRank(aggregator.endpoint, incarnation="works") as works,
        ManualRank(aggregator.endpoint) as passes,
    ):
        works.send(works.hello(), works.opened(0), works.steps(1, [0, 1]))
        for number in range(12):
            send_hello(passes, f"passing-{number:02}")
            for _ in range(5):
                works.send(Heartbeat(**works.head, sent=3, sent_ns=time.time_ns()))
                time.sleep(0.04)
        until(lambda: aggregator.closed_runs >= 5)
        runs = [rank.run_id for rank in aggregator.snapshot().ranks]
        assert len(runs) <= 4
        assert "run" in runs
        assert any("run 'passing-00' was closed to make room" in text for text in aggregator.failures)
        works.send(works.closed(3, 2))
        until(lambda: aggregator.counts.windows == 1)
    (window,) = windows_in(tmp_path)
    assert window.step_N.tolist() == [0, 1]


def test_a_run_has_to_wait_while_all_others_are_active(tmp_path: Path) -> None:
    with (
        aggregating(tmp_path, most_runs=2) as aggregator,
        ManualRank(aggregator.endpoint) as rank,
    ):
        for run_id in ("a", "b", "c"):
            send_hello(rank, run_id)
        until(lambda: aggregator.snapshot().faults)
        assert [rank.run_id for rank in aggregator.snapshot().ranks] == ["a", "b"]
        (reason,) = aggregator.snapshot().last_fault.values()
        assert reason.startswith("run 'c' has to wait: 2 runs are open")


def test_a_job_loses_no_step_when_its_run_was_closed(tmp_path: Path) -> None:
    with (
        aggregating(tmp_path, most_runs=2, abandon_after=0.3) as aggregator,
        ManualRank(aggregator.endpoint) as passes,
    ):
        perf = recorder(tmp_path, aggregator.endpoint)
        for number in range(20):
            train(perf, 3)
            send_hello(passes, f"passing-{number:02}")
            time.sleep(0.2)
        perf.close()
        assert aggregator.closed_runs > 0
    steps = [step for window in windows_in(tmp_path) for step in window.step_N.tolist()]
    assert sorted(steps) == list(range(60))


def test_ten_thousand_run_ids_take_little_memory(tmp_path: Path) -> None:
    process = psutil.Process(os.getpid())
    with (
        aggregating(tmp_path, most_runs=100, abandon_after=60.0) as aggregator,
        ManualRank(aggregator.endpoint) as rank,
    ):
        send_hello(rank, "first")
        until(lambda: aggregator.snapshot().ranks)
        before = process.memory_info().rss
        for number in range(10_000):
            send_hello(rank, f"passing-{number:05}")
            if number % 200 == 0:
                time.sleep(0.01)
        until(lambda: aggregator.snapshot().messages > 9_000, 60)
        assert len(aggregator.snapshot().ranks) == 100
        assert process.memory_info().rss - before < 30 * 2**20


def send_window(rank: ManualRank, window: int) -> None:
    first = 3 * window
    rank.send(rank.opened(first, window), rank.steps(first + 1, [window], window))
    rank.send(rank.closed(first + 2, 1, window))


def test_a_run_that_cannot_be_written_stops_no_other(tmp_path: Path) -> None:
    with (
        aggregating(tmp_path, most_bytes=50_000) as aggregator,
        ManualRank(aggregator.endpoint, incarnation="blocked") as blocked,
        ManualRank(aggregator.endpoint, incarnation="works") as works,
    ):
        blocked.send(blocked.hello(run_id="blocked"))
        works.send(works.hello(run_id="works"))
        send_window(blocked, 0)
        until(lambda: aggregator.counts.windows == 1)
        with replaced_by_a_file(tmp_path / "blocked"):
            send_window(blocked, 1)
            until(lambda: aggregator.counts.failed)
            for window in range(2, 100):
                send_window(blocked, window)
            assert blocked.receive_type(Resend).sequence > 3  # No more of its rows are taken.
            for window in range(20):
                send_window(works, window)
                until(lambda count=window + 2: aggregator.counts.windows == count, 5.0)
    assert len(list((tmp_path / "works").glob("*.parquet"))) == 20


def test_open_windows_stop_no_other_run_where_one_cannot_be_written(tmp_path: Path) -> None:
    with (
        aggregating(tmp_path, most_bytes=50_000) as aggregator,
        ManualRank(aggregator.endpoint, incarnation="blocked") as blocked,
        ManualRank(aggregator.endpoint, incarnation="large") as large,
        ManualRank(aggregator.endpoint, incarnation="works") as works,
    ):
        for rank in (blocked, large, works):
            rank.send(rank.hello(run_id=rank.head["incarnation"]))
        send_window(blocked, 0)
        until(lambda: aggregator.counts.windows == 1)
        with replaced_by_a_file(tmp_path / "blocked"):
            for window in range(1, 20):
                send_window(blocked, window)
            until(lambda: aggregator.counts.failed)
            large.send(large.opened(0))
            for first in range(0, 3000, 100):
                large.send(large.steps(1 + first, range(first, first + 100)))
            assert "of open windows" in large.receive_type(Refused).reason
            send_window(works, 0)
            until(lambda: aggregator.counts.windows == 2, 5.0)
