"""Operator events beside a packet: read when asked for, and noticed when they come, change or go."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sfapp.errors import PacketError, WindowNotFoundError
from sfapp.operators import operators_of
from sfapp.packets import operators_path, write_operators
from sfapp.store import Store
from tests.store.jobs import put, put_run, window
from tests.store.test_watch import wait_until, watched


def put_operators(root: Path, number: int, rank: int | None = None) -> Path:
    """The stages of a window as operator events beside its packet, of all ranks or of one."""
    events = operators_of(window(number=number))
    path = operators_path(root, "run", number, rank)
    write_operators(events if rank is None else events.of_rank(rank), "run", number, path)
    return path


def test_the_events_next_to_a_packet_are_read_on_request(tmp_path: Path) -> None:
    put_run(tmp_path, count=2)
    for rank in (1, 3):
        put_operators(tmp_path, 1, rank)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        found = store.operators("run", 1)
        assert found is not None
        assert found.ranks == (1, 3)
        assert store.operators("run", 0) is None
        with pytest.raises(WindowNotFoundError):
            store.operators("run", 9)


def test_a_damaged_file_is_reported_with_its_name(tmp_path: Path) -> None:
    put(tmp_path, window())
    path = put_operators(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:200])
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        with pytest.raises(PacketError, match=path.name):
            store.operators("run", 0)
        assert store.quarantine() == []


def test_events_that_arrive_later_change_their_own_window_only(tmp_path: Path) -> None:
    put_run(tmp_path, count=2)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        sources = [store.sources("run", number) for number in (0, 1)]
        before, generation = [store.operator_files(found) for found in sources], store.generation

        path = put_operators(tmp_path, 1, 2)
        report = store.ingest()
        assert (report.operators, report.added, report.changed) == (1, 0, True)
        assert store.generation > generation
        assert store.operator_files(sources[0]) == before[0] == ()
        assert len(store.operator_files(sources[1])) == 1

        assert not store.ingest().changed
        path.unlink()
        assert store.ingest().operators == 1
        assert store.operator_files(sources[1]) == ()


def test_a_store_of_one_named_packet_finds_the_files_next_to_it(tmp_path: Path) -> None:
    packet = put(tmp_path, window())
    put_operators(tmp_path, 0)
    with Store.open([packet], memory=True) as store:
        store.ingest()
        assert len(store.operator_files(store.sources("run", 0))) == 1


def test_a_root_that_is_away_takes_no_events_with_it(tmp_path: Path) -> None:
    here, away = tmp_path / "here", tmp_path / "away"
    put(here, window("other"))
    put(away, window())
    put_operators(away, 0)
    with Store.open([here, away], memory=True) as store:
        store.ingest()
        sources = store.sources("run", 0)
        shutil.move(away, tmp_path / "unmounted")
        assert store.ingest().operators == 0
        assert len(store.operator_files(sources)) == 1


def test_events_that_arrive_are_noticed_without_a_new_packet(tmp_path: Path) -> None:
    put(tmp_path, window())
    with Store.open([tmp_path], memory=True) as store, watched(store) as reports:
        wait_until(lambda: bool(reports))
        put_operators(tmp_path, 0, 1)
        wait_until(lambda: sum(report.operators for report in reports) == 1)
        assert len(store.operator_files(store.sources("run", 0))) == 1
