"""A packet that arrives is seen, whether or not the operating system says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sfapp.store import IngestReport, Store
from sfapp.store import watch as watching
from tests.store.jobs import numbers, put, put_part, put_run, window

PATIENCE_S = 20


@contextmanager
def watched(store: Store) -> Iterator[list[IngestReport]]:
    """A store being watched; stops at the end and checks that it stopped promptly."""
    reports: list[IngestReport] = []
    stop = threading.Event()
    thread = threading.Thread(target=store.watch, args=(stop, reports.append))
    thread.start()
    try:
        yield reports
    finally:
        stop.set()
        began = time.monotonic()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert time.monotonic() - began < 5


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def test_a_packet_that_arrives_is_seen(tmp_path: Path) -> None:
    put_run(tmp_path, count=2)
    with Store.open([tmp_path]) as store, watched(store) as reports:
        # what was there already is taken in first
        wait_until(lambda: numbers(store) == [0, 1])
        generation = store.generation
        put(tmp_path, window(number=2))
        wait_until(lambda: numbers(store) == [0, 1, 2])
        assert store.generation > generation
        # a run that is new, and a window that goes
        put(tmp_path, window("new", 0))
        wait_until(lambda: len(store.runs()) == 2)
        (tmp_path / "new" / "00000000.parquet").unlink()
        wait_until(lambda: len(store.runs()) == 1)
    assert sum(report.added for report in reports) == 4
    assert all(report.changed for report in reports)


def test_parts_that_trickle_in_make_one_window(tmp_path: Path) -> None:
    made = window()
    with Store.open([tmp_path]) as store, watched(store):
        for rank in range(4):
            put_part(tmp_path, made, rank)
        wait_until(lambda: numbers(store) == [0] and store.diagnosis("run", 0).ranks == 4)
        assert store.diagnosis("run", 0).missing_ranks == ()


def test_scanning_alone_finds_what_notifications_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a file system whose notifications say nothing of packets (as NFS does of other machines)
    monkeypatch.setattr(watching, "_is_ours", lambda change, path: False)
    monkeypatch.setattr(watching, "_SCAN_EVERY_S", 0.0)
    with Store.open([tmp_path]) as store, watched(store):
        put(tmp_path, window())
        wait_until(lambda: numbers(store) == [0])


def test_a_half_written_copy_is_taken_in_once_it_is_whole(tmp_path: Path) -> None:
    whole = put(tmp_path / "elsewhere", window()).read_bytes()
    root = tmp_path / "packets"
    root.mkdir()
    with Store.open([root]) as store, watched(store):
        (root / "copied.parquet").write_bytes(whole[: len(whole) // 2])
        wait_until(lambda: len(store.quarantine()) == 1)
        (root / "copied.parquet").write_bytes(whole)
        wait_until(lambda: numbers(store) == [0])
        assert store.quarantine() == []
