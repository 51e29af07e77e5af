"""A packet that arrives is seen, whether or not the operating system says so."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import scandir as os_scandir
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sfapp.storage import FoundFile, local_storage
from sfapp.storage.local_storage import LocalStorage
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


def test_a_root_that_goes_away_is_reported_until_it_is_back(tmp_path: Path) -> None:
    here, share = tmp_path / "here", tmp_path / "share"
    put_run(here, "a")
    put_run(share, "b")
    with Store.open([here, share]) as store:
        store.ingest()
        assert store.root_faults == []
        share.rename(tmp_path / "unmounted")
        assert store.ingest().changed
        assert store.root_faults == [f"{share} is not there"]
        assert not store.ingest().changed
        (tmp_path / "unmounted").rename(share)
        assert store.ingest().changed
        assert store.root_faults == []


def test_a_folder_that_goes_while_it_is_listed_keeps_its_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = tmp_path / "share"
    put_run(share, count=3)
    with Store.open([share], memory=True) as store:
        store.ingest()
        stamp = LocalStorage.found

        def leave(storage: LocalStorage, path: Path) -> FoundFile | None:
            if share.exists():
                share.rename(tmp_path / "away")
            return stamp(storage, path)

        monkeypatch.setattr(LocalStorage, "found", leave)
        store.ingest()
        assert [run.windows for run in store.runs()] == [3]
        assert store.root_faults == [f"{share} is not there"]


@pytest.mark.parametrize("refused", ["share", "share/a", "share/a/00000001.parquet"])
def test_what_cannot_be_looked_at_is_kept_and_what_is_gone_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    share = tmp_path / "share"
    put_run(share, "a")
    (gone,) = put_run(share, "b", count=1)
    with Store.open([share], memory=True) as store:
        store.ingest()
        # A test may run as root, to which nothing is refused; and a server of files can fail in the same way.
        for name in ("scandir", "stat", "lstat"):
            monkeypatch.setattr(os, name, failing(getattr(os, name), tmp_path / refused))
        gone.unlink()
        report = store.ingest()
        monkeypatch.undo()
        assert numbers(store, run="a") == [0, 1, 2, 3, 4]
        is_listed = refused != "share"
        assert report.removed == is_listed
        assert bool(store.root_faults) != is_listed


@pytest.mark.parametrize("cause", [errno.EMFILE, errno.EIO, errno.ESTALE])
def test_a_packet_that_cannot_be_read_for_a_moment_is_read_at_the_next_look(
    tmp_path: Path, cause: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_run(tmp_path, count=2)
    with Store.open([tmp_path], memory=True) as store:
        with monkeypatch.context() as patch:
            patch.setattr(local_storage, "open_regular", Mock(side_effect=OSError(cause, os.strerror(cause))))
            assert store.ingest().quarantined == 2
            generation = store.generation
            assert not store.ingest().changed
            assert store.generation == generation
        assert store.ingest().added == 2
        assert numbers(store) == [0, 1]
        assert not store.quarantine()
        assert store.ingest().added == 0


def failing(call: Callable[..., Any], refused: Path) -> Callable[..., Any]:
    """A system call that fails for one path."""

    def answer(path: Any = ".", *arguments: Any, **options: Any) -> Any:
        is_folder = refused.suffix == ""  # Its listing is refused, and not its stamp.
        if str(path) == str(refused) and (call is os_scandir) == is_folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return call(path, *arguments, **options)

    return answer
