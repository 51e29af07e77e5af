"""A recorder lets another process write its packets where writing would hold up training."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sfapp.packets import read_windows
from sfapp.recorder import Recorder
from tests.builders import DATA
from tests.recorder.clocked_recorder import Clock, recorder, train
from tests.writer_processes import writer_processes_of

pytestmark = pytest.mark.quiet  # that process needs a core


def train_until(perf: Recorder, holds: Callable[[], object], seconds: float = 60.0) -> int:
    """Train a window of one step after the other, really timed, until something holds; how many."""
    deadline, windows = time.monotonic() + seconds, 0
    while not holds():
        assert time.monotonic() < deadline
        with perf.step(), perf.stage(DATA):
            time.sleep(0.002)
        windows += 1
    return windows


def test_another_process_writes_the_packets_of_short_windows_and_leaves_with_the_recorder(
    tmp_path: Path,
) -> None:
    assert not writer_processes_of()
    with Recorder(tmp_path, run_id="run", window_steps=1, max_pending=1_000) as perf:
        windows = train_until(perf, writer_processes_of)
        (writer_process,) = writer_processes_of()
        written = writer_process.io_counters().write_count
        windows += train_until(perf, lambda: writer_process.io_counters().write_count > written + 5)
    assert not writer_processes_of()
    assert [loaded.window.number for loaded in read_windows([tmp_path]).windows] == list(range(windows))
    assert not perf.failures


def test_where_that_process_dies_the_recorder_writes_as_before_and_no_window_is_lost(tmp_path: Path) -> None:
    with Recorder(tmp_path, run_id="run", window_steps=1, max_pending=1_000) as perf:
        windows = train_until(perf, writer_processes_of)
        for writer_process in writer_processes_of():
            writer_process.kill()
        windows += train_until(perf, lambda: perf.failures)
        windows += train_until(perf, lambda: len(perf.written) > 20)
        assert not writer_processes_of()  # it is not tried again
    assert [loaded.window.number for loaded in read_windows([tmp_path]).windows] == list(range(windows))
    assert perf.failures == (
        "the process that writes packets ended with -9: the recorder's thread writes them again",
    )


def test_where_that_process_gets_no_core_the_recorder_writes_until_it_has_one_again(tmp_path: Path) -> None:
    def packets() -> int:
        return len([*tmp_path.rglob("*.parquet")])

    with Recorder(tmp_path, run_id="run", window_steps=1, max_pending=10_000) as perf:
        windows = train_until(perf, writer_processes_of)
        (writer_process,) = writer_processes_of()
        started = writer_process.io_counters().write_count
        windows += train_until(perf, lambda: writer_process.io_counters().write_count > started + 5)
        writer_process.suspend()
        stopped, before = writer_process.io_counters().write_count, packets()
        windows += train_until(perf, lambda: packets() > before + 20)
        writer_process.resume()
        windows += train_until(perf, lambda: writer_process.io_counters().write_count > stopped + 20)
    assert not writer_processes_of()
    assert [loaded.window.number for loaded in read_windows([tmp_path]).windows] == list(range(windows))
    assert not perf.failures


def test_long_windows_are_not_worth_a_process(tmp_path: Path) -> None:
    clock = Clock()
    with recorder(tmp_path, clock, window_steps=1) as perf:
        for window in range(8):
            train(perf, clock, other=60 * 10**9)
            while perf.pending:
                time.sleep(0.002)
            assert not writer_processes_of(), window
    assert len(perf.written) == 8
    assert all(path.parent == tmp_path / "run" and os.access(path, os.R_OK) for path in perf.written)


@pytest.mark.parametrize("times", [1, 2])
def test_a_packet_is_written_once_more_if_training_closed_its_file_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A script that becomes a daemon closes all files."""
    left, flush = [None] * times, os.fsync

    def close_then_flush(descriptor: int) -> None:
        if left:
            left.pop()
            os.close(descriptor)
        flush(descriptor)

    with recorder(tmp_path, clock := Clock()) as perf:
        train(perf, clock)
        monkeypatch.setattr(os, "fsync", close_then_flush)
    assert len(read_windows([tmp_path]).windows) == (times == 1)
    assert len(perf.failures) == (times == 2)
