"""A dataset keeps verdicts of packets that are gone, whatever stops or disturbs the next ingest."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from sfapp.errors import StoreError
from sfapp.store import Store, ingest_to_dataset
from sfapp.store.verdict_encoding import decode_verdicts, encode_verdicts
from tests.store.jobs import later, put, put_part, put_run, window


@pytest.fixture
def packets(tmp_path: Path) -> Path:
    """Packets of two runs of five windows."""
    for run in ("a", "b"):
        put_run(tmp_path / "packets", run)
    return tmp_path / "packets"


@pytest.fixture
def target(tmp_path: Path, packets: Path) -> Path:
    """A dataset of their verdicts, of which the packets of three windows are gone."""
    ingest_to_dataset([packets], tmp_path / "verdicts")
    for path in sorted((packets / "a").iterdir())[:3]:
        path.unlink()
    return tmp_path / "verdicts"


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*.verdicts.parquet")}


def test_an_ingest_that_is_stopped_before_it_has_read_the_dataset_leaves_it(
    packets: Path, target: Path
) -> None:
    before, cancel = files_below(target), threading.Event()
    cancel.set()
    report, written = ingest_to_dataset([packets], target, cancel=cancel)
    assert report.cancelled
    assert (written.written, written.removed) == (0, 0)
    assert files_below(target) == before


@pytest.mark.parametrize("times", [1, 1000])
def test_a_file_in_a_folder_that_cannot_be_listed_is_not_replaced(
    packets: Path, target: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    before, failures, usual = files_below(target), iter(range(times)), os.scandir

    def scandir(path: Any = ".") -> Any:
        if "run=a" in str(path) and Path(path).is_relative_to(target) and next(failures, None) is not None:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return usual(path)

    monkeypatch.setattr(os, "scandir", scandir)
    if times == 1:
        assert ingest_to_dataset([packets], target)[1].windows == 10
    else:
        with pytest.raises(StoreError, match=r"run=a.* is not as it was read.*cannot be listed"):
            ingest_to_dataset([packets], target)
    monkeypatch.undo()
    assert files_below(target) == before


def test_a_dataset_below_the_folder_of_another_keeps_its_files(packets: Path, tmp_path: Path) -> None:
    # given the dataset of a team, with a run that another team has, too, and a backup behind a link
    outer, other = tmp_path / "verdicts", tmp_path / "other"
    for name in ("run", "b"):
        put_run(other, name)
    ingest_to_dataset([other], outer / "team")
    ingest_to_dataset([other], tmp_path / "backup")
    (outer / "link").symlink_to(tmp_path / "backup")
    before = files_below(outer / "team") | files_below(tmp_path / "backup")
    # when packets are added to the dataset above
    ingest_to_dataset([packets], outer)
    # then it is written, and the others stay
    assert files_below(outer / "team") | files_below(tmp_path / "backup") == before
    assert {path.name for path in outer.glob("run=*")} == {"run=a", "run=b", "run=run"}


def as_of_version_27(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the files of a dataset again as an earlier version did."""
    written = {path: decode_verdicts(path.read_bytes()) for path in target.rglob("*.verdicts.parquet")}
    with monkeypatch.context() as patch:
        patch.setattr("sfapp.store.verdict_encoding.SCHEMA_VERSION", 27)
        for path, verdicts in written.items():
            path.write_bytes(encode_verdicts(verdicts))


def test_of_an_earlier_version_only_verdicts_of_packets_that_are_gone_count(
    packets: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given the dataset as an earlier version wrote it, whose verdicts had other numbers
    with Store.open([target], memory=True) as store:
        store.ingest()
        newest = store.newest_packet_at()
    as_of_version_27(target, monkeypatch)
    with Store.open([target], memory=True) as store:
        assert store.ingest().verdicts == 10
        assert store.newest_packet_at() == newest
    # when packets are added to it
    report, dataset = ingest_to_dataset([packets], target)
    # then those that are there are read again, once, and the other verdicts stay
    assert (report.added, dataset.windows) == (7, 10)
    assert ingest_to_dataset([packets], target)[0].added == 0


def test_a_dataset_in_a_folder_of_any_name_is_updated(packets: Path, tmp_path: Path) -> None:
    target = tmp_path / os.fsdecode(b"verdicts-\xff")
    monday, tuesday = "2026-11-23T10:00:00Z", "2026-11-24T10:00:00Z"
    path = put(packets, window("c", 0, started_at=monday, ended_at=monday))
    ingest_to_dataset([packets], target)
    # when a window of the run is added, and the other one has begun on another day
    later(put(packets, window("c", 0, started_at=tuesday, ended_at=tuesday), path))
    put(packets, window("c", 1, started_at=tuesday, ended_at=tuesday))
    report = ingest_to_dataset([packets], target)[1]
    # then its file of that day replaces the one before
    assert (report.written, report.removed, report.windows) == (1, 1, 12)
    assert [path.parent.name for path in target.glob("run=c/*/*")] == ["day=2026-11-24"]


@pytest.mark.parametrize("seed", range(4))  # Which verdict has the smaller hash differs.
def test_of_datasets_of_an_earlier_version_the_one_with_the_newest_packet_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # given a dataset that knows one rank of a window, and a later one that knows all; the packets are gone
    packets, early, late = tmp_path / "packets", tmp_path / "early", tmp_path / "late"
    part = put_part(packets, window(seed=seed), rank=0)
    ingest_to_dataset([packets], early)
    part.unlink()
    path = put(packets, window(seed=seed))
    later(path)
    ingest_to_dataset([packets], late)
    path.unlink()
    as_of_version_27(late, monkeypatch)
    # when both are read, the other of the present version or of that one
    for _ in range(2):
        with Store.open([early, late], memory=True) as store:
            store.ingest()
            assert store.diagnosis("run", 0).missing_ranks == ()
        as_of_version_27(early, monkeypatch)


@pytest.mark.parametrize("loss", ["gone", "damaged"])
def test_a_part_that_comes_after_the_packet_of_its_window_was_lost_replaces_nothing(
    packets: Path, tmp_path: Path, loss: str
) -> None:
    target = tmp_path / "verdicts"
    ingest_to_dataset([packets], target)
    before = files_below(target)
    path = packets / "a" / "00000003.parquet"
    path.write_bytes(b"damaged")
    if loss == "gone":
        path.unlink()
    part = put_part(packets, window("a", 3), rank=2)
    for seed in range(3):  # As many files as the window has ranks, of one rank.
        made = put_part(packets, window("a", 3, seed=seed), rank=1)
        made.rename(made.with_name(f"00000003.process{seed}.rank1.parquet"))
    # when the packets are added again, and served with the dataset
    report, dataset = ingest_to_dataset([packets], target)
    # then the verdict on all ranks stays, and the part is refused with the reason
    assert (report.quarantined, dataset.written, dataset.windows) == (4 + (loss == "damaged"), 0, 10)
    assert files_below(target) == before
    with Store.open([packets, target], memory=True) as store:
        store.ingest()
        assert store.diagnosis("a", 3).missing_ranks == ()
        (reason,) = [file.reason for file in store.quarantine() if file.name == str(part)]
        assert "the verdict on window 3 of run 'a' is of more ranks" in reason
        # and the whole packet counts once it is there again
        put(packets, window("a", 3, seed=7))
        store.ingest()
        assert store.sources("a", 3)[0].path == path
        assert not store.quarantine()


def test_a_part_that_is_left_of_a_window_of_an_earlier_version_replaces_nothing(
    packets: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a dataset that knows a packet and a part of its window
    later(put_part(packets, window("b", 1), rank=2))
    ingest_to_dataset([packets], target)
    as_of_version_27(target, monkeypatch)
    # when the packet goes first
    (packets / "b" / "00000001.parquet").unlink()
    ingest_to_dataset([packets], target)
    # then the verdict on all ranks stays
    with Store.open([target], memory=True) as store:
        store.ingest()
        assert store.diagnosis("b", 1).missing_ranks == ()


def test_parts_of_all_ranks_replace_a_window_without_its_packet(packets: Path, target: Path) -> None:
    for rank in range(4):
        put_part(packets, window("a", 0, seed=7), rank)
    ingest_to_dataset([packets], target)
    with Store.open([target], memory=True) as store:
        store.ingest()
        assert {source.part_rank for source in store.sources("a", 0)} == {0, 1, 2, 3}


def test_parts_of_all_ranks_that_come_one_after_another_replace_a_window_without_its_packet(
    packets: Path, target: Path
) -> None:
    (packets / "b" / "00000000.parquet").unlink()
    put_part(packets, window("b", 0), rank=3)
    with Store.open([packets, target], packets.parent / "store.duckdb") as store:
        store.ingest()
        for rank in range(4):
            assert store.sources("a", 0)[0].part_rank is None
            put_part(packets, window("a", 0), rank)
            store.ingest()
        assert {source.part_rank for source in store.sources("a", 0)} == {0, 1, 2, 3}
        assert [Path(file.name).parent.name for file in store.quarantine()] == ["b"]
        assert not store.ingest().changed


def test_a_part_that_was_refused_is_read_once_the_verdict_on_more_ranks_is_gone(
    packets: Path, target: Path
) -> None:
    # Given a part that is refused because the dataset knows its window with more ranks
    put_part(packets, window("a", 0), rank=3)
    with Store.open([packets, target], packets.parent / "store.duckdb") as store:
        store.ingest()
        assert store.diagnosis("a", 0).missing_ranks == ()
        # When the dataset is removed
        for path in target.rglob("*.parquet"):
            path.unlink()
        store.ingest()
        # Then the store has what a new one reads
        assert store.diagnosis("a", 0).missing_ranks == (0, 1, 2)
        assert not store.quarantine()
