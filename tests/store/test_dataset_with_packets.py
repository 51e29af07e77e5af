"""A store of packets and datasets says of a window the same, whichever of them holds it and came first."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from sfapp.store import Store, ingest_to_dataset
from tests.store.jobs import RANKS, SLOW, later, put, put_part, put_run, window


def ranks_of(store: Store) -> dict[int, int]:
    """The number of ranks of each window."""
    return {row["window"]: row["ranks"] for row in store.windows().rows}


def ranks_anew(*roots: Path) -> dict[int, int]:
    with Store.open(roots, memory=True) as store:
        store.ingest()
        return ranks_of(store)


def compared(store: Store) -> dict[int, tuple[int | None, float | None]]:
    """What each window of the only run is compared with, and its change."""
    return {row["window"]: (row["reference_window"], row["change"]) for row in store.windows().rows}


def compared_anew(*roots: Path) -> dict[int, tuple[int | None, float | None]]:
    with Store.open(roots, memory=True) as store:
        store.ingest()
        return compared(store)


def test_a_window_taken_from_a_dataset_without_reference_is_compared_with_its_run(tmp_path: Path) -> None:
    # given a dataset that was written when its run had one window, and a run that went on
    packets, target = tmp_path / "packets", tmp_path / "verdicts"
    first = put(packets, window(number=0))
    ingest_to_dataset([packets], target)
    put_run(packets)
    with Store.open([packets, target], memory=True) as store:
        store.ingest()
        reference = store.runs()[0].reference_window
        # when the packet goes whose verdict is in the dataset
        first.unlink()
        store.ingest()
        # then its window is compared with the same as the others, as in a new store
        assert reference is not None
        assert {found for found, _ in compared(store).values()} == {reference}
        assert compared(store) == compared_anew(packets, target)


def test_datasets_of_a_run_with_and_without_reference_are_read_together(tmp_path: Path) -> None:
    # given a window with a missing rank that was put into a dataset alone, and the other ones in another
    packets, alone, others = tmp_path / "packets", tmp_path / "alone", tmp_path / "others"
    put_run(packets)
    partial = put(packets, window(number=2, extra=SLOW, world_size=5, missing_ranks=(4,)))
    ingest_to_dataset([partial], alone)
    partial.unlink()
    ingest_to_dataset([packets], others)
    # when both are read
    found = compared_anew(alone, others)
    # then it is compared, too
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert len({reference for reference, _ in found.values()}) == 1
    assert found[2][1] is not None
    assert found[2][1] > 0.5


@pytest.mark.parametrize("change", ["damaged", "of another window"])
def test_a_verdict_stays_in_a_dataset_if_its_packet_becomes(tmp_path: Path, change: str) -> None:
    # given packets and a dataset of their verdicts
    packets, target = tmp_path / "packets", tmp_path / "verdicts"
    path = put_run(packets)[3]
    ingest_to_dataset([packets], target)
    kept, db = path.read_bytes(), tmp_path / "store.duckdb"
    with Store.open([packets, target], db) as store:
        store.ingest()
        before = compared(store)
        # when a packet whose verdict is there becomes unreadable, or that of another window
        if change == "damaged":
            path.write_bytes(kept[:100])
        else:
            put(packets, window(number=9), path)
        later(path)
        store.ingest()
        # then the store still has the verdict, beside what the packet is now, and reads the packet once
        assert before.keys() <= compared(store).keys()
        assert len(store.quarantine()) == (change == "damaged")
        assert store.ingest().changed is False
        assert compared(store) == compared_anew(packets, target)
    # and has no rows of the packet for it
    with duckdb.connect(db, read_only=True) as database:
        read = database.execute('SELECT DISTINCT "window" FROM cells').fetchall()
    assert read == ([] if change == "damaged" else [(9,)])
    # and the dataset has the verdict after it is brought up to date, too
    ingest_to_dataset([packets], target)
    assert before.keys() <= compared_anew(target).keys()


def test_a_window_that_was_read_is_taken_from_a_dataset_when_its_packet_is_replaced(tmp_path: Path) -> None:
    # given a window in a dataset, and a newer one of the same number in a packet elsewhere
    packets, target = tmp_path / "packets", tmp_path / "verdicts"
    earlier = put_run(tmp_path / "earlier")
    ingest_to_dataset([tmp_path / "earlier"], target)
    path = put(packets, window(number=3, seed=99))
    later(path)
    with Store.open([packets, target], memory=True) as store:
        store.ingest()
        # when the packet is replaced by that of another window
        put(packets, window(number=9), path)
        later(path, 20)
        store.ingest()
        # then the dataset's verdict is there at once, as in a new store
        assert sorted(compared(store)) == [*range(len(earlier)), 9]
        assert compared(store) == compared_anew(packets, target)


@pytest.mark.parametrize("change", ["removed", "damaged", "replaced by another window"])
def test_a_window_of_parts_is_taken_from_a_dataset_when_one_of_them_is(tmp_path: Path, change: str) -> None:
    # given a window that was read from the parts of its ranks before a dataset had it
    packets, target = tmp_path / "packets", tmp_path / "verdicts"
    target.mkdir()
    first, *_ = [put_part(packets, window(), rank) for rank in range(RANKS)]
    with Store.open([packets, target], memory=True) as store:
        store.ingest()
        ingest_to_dataset([packets], target)
        store.ingest()
        # when one of the parts goes
        if change == "removed":
            first.unlink()
        elif change == "damaged":
            first.write_bytes(first.read_bytes()[:-20])
            later(first)
        else:
            first.unlink()
            put_part(packets, window(number=1), 0)
        store.ingest()
        # then the dataset's verdict on all ranks is there at once, as in a new store
        assert ranks_of(store)[0] == RANKS
        assert ranks_of(store) == ranks_anew(packets, target)
        assert not store.ingest().changed


def test_files_that_are_left_of_a_window_are_read_if_no_dataset_has_it(tmp_path: Path) -> None:
    # given a dataset of another window, which the store has from its packet, and a window of parts
    packets, target = tmp_path / "packets", tmp_path / "verdicts"
    target.mkdir()
    put(packets, window(number=1))
    with Store.open([packets, target], memory=True) as store:
        store.ingest()
        ingest_to_dataset([packets], target)
        first, *_ = [put_part(packets, window(), rank) for rank in range(RANKS)]
        store.ingest()
        # when one of the parts goes
        first.unlink()
        report = store.ingest()
        # then the window is that of the others
        assert report.removed == 1
        assert ranks_of(store) == {0: RANKS - 1, 1: RANKS} == ranks_anew(packets, target)


def test_a_dataset_that_knows_the_lost_packet_of_a_part_replaces_the_part(tmp_path: Path) -> None:
    # given a store that has read one part of a window
    packets, target = tmp_path / "packets", tmp_path / "verdicts"
    target.mkdir()
    put_part(packets, window(), 0)
    with Store.open([packets, target], memory=True) as store:
        store.ingest()
        assert ranks_of(store) == {0: 1}
        # when a dataset comes that was written while the packet of all ranks was there
        whole = put(packets, window())
        later(whole)
        ingest_to_dataset([packets], target)
        whole.unlink()
        store.ingest()
        # then its verdict counts, as in a new store
        assert ranks_of(store) == {0: RANKS} == ranks_anew(packets, target)


def test_a_refused_part_that_a_dataset_names_is_read_once_with_the_others_of_its_window(
    tmp_path: Path,
) -> None:
    # given a window of a dataset, of which one part is damaged and one is written again, and so refused
    packets, target, db = tmp_path / "packets", tmp_path / "verdicts", tmp_path / "store.duckdb"
    first, *_, last = [put_part(packets, window(), rank) for rank in range(RANKS)]
    ingest_to_dataset([packets], target)
    last.write_bytes(last.read_bytes()[:-20])
    put_part(packets, window(), 0)
    for path in (first, last):
        later(path)
    with Store.open([packets, target], db) as store:
        store.ingest()
        assert len(store.quarantine()) == 2
        # when the damaged part is written again
        put_part(packets, window(), RANKS - 1)
        later(last, 20)
        store.ingest()
        assert ranks_of(store) == {0: RANKS}
    # then each part is stored once, as it is
    with duckdb.connect(db, read_only=True) as database:
        stored = database.execute("SELECT path, mtime_ns FROM packets ORDER BY path").fetchall()
    assert stored == [(str(path), path.stat().st_mtime_ns) for path in sorted(packets.rglob("*.parquet"))]


def test_a_window_that_loses_a_part_has_only_the_files_of_its_run_read_again(tmp_path: Path) -> None:
    packets, target = tmp_path / "packets", tmp_path / "verdicts"
    put(packets, window("a", 0))
    parts = [put_part(packets, window("b", 0), rank) for rank in (0, 1)]
    target.mkdir()
    with Store.open([packets, target], memory=True) as store:
        store.ingest()
        ingest_to_dataset([packets], target)
        store.ingest()
        # Given a file of another run that would be refused if it were read
        (of_a,) = (target / "run=a").rglob("*.parquet")
        stamp = of_a.stat().st_mtime_ns
        of_a.write_bytes(bytes(of_a.stat().st_size))
        os.utime(of_a, ns=(stamp, stamp))
        # When the packet of all ranks replaces the parts
        put(packets, window("b", 0))
        for part in parts:
            part.unlink()
        report = store.ingest()
        # Then it counts as added, and that file is left alone
        assert (report.added, report.removed) == (1, 2)
        assert store.diagnosis("b", 0).missing_ranks == ()
        assert not store.quarantine()
