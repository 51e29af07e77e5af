"""A dataset holds the verdicts of packets as Parquet files, which sfapp, DuckDB and Polars read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfapp.errors import StoreBusyError, StoreError
from sfapp.packets import packet_path
from sfapp.service.fleet import fleet_of
from sfapp.store import DatasetReport, IngestProgress, IngestReport, Store, ingest_to_dataset
from sfapp.store.lock import StoreLock
from sfapp.store.schema import SCHEMA_VERSION
from sfapp.store.verdict_encoding import decode_verdicts
from tests.hostile_text import SCRIPT
from tests.store.jobs import SLOW, contents, later, numbers, part, put, put_part, put_run, window

STARTS = ("2026-11-25T23:50:00Z", "2026-11-26T00:10:00Z")


@pytest.fixture
def packets(tmp_path: Path) -> Path:
    """A folder with runs of several windows, one of which begins before midnight and ends after it."""
    root = tmp_path / "packets"
    for run in ("a", "b"):
        put_run(root, run)
    for number, start in enumerate(STARTS):
        put(root, window("run=1/x", number, started_at=start, ended_at=start))
    return root


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*.verdicts.parquet"))
    }


def ingested(target: Path, *paths: Path) -> tuple[IngestReport, DatasetReport]:
    return ingest_to_dataset(paths, target)


def stored(tmp_path: Path, *roots: Path) -> dict[str, list[str]]:
    """What a new store says of windows after reading these folders."""
    db = tmp_path / "compared.duckdb"
    with Store.open(roots, db) as store:
        store.ingest()
    found = contents(db)
    db.unlink()
    return {name: found[name] for name in ("windows", "stages", "run_references", "conflicts")}


class TestReading:
    def test_it_holds_of_windows_what_a_store_of_their_packets_holds(
        self, packets: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "verdicts"
        report, written = ingested(target, packets)
        assert (report.added, written.written, written.windows) == (12, 4, 12)
        assert stored(tmp_path, target) == stored(tmp_path, packets)
        with Store.open([target], memory=True) as store, Store.open([packets], memory=True) as direct:
            store.ingest()
            direct.ingest()
            assert fleet_of(store) == fleet_of(direct)

    def test_progress_counts_its_files(self, packets: Path, tmp_path: Path) -> None:
        target, seen = tmp_path / "verdicts", list[IngestProgress]()
        ingested(target, packets)
        with Store.open([target], memory=True) as store:
            store.ingest(seen.append)
        assert IngestProgress("reading", done=4, total=4) in seen

    def test_runs_and_days_are_folders_that_other_programs_take_for_columns(
        self, packets: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        found = duckdb.sql(
            f"SELECT run, day, count(*) FROM read_parquet('{target}/**/*.parquet', hive_partitioning = true) "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert [(run, str(day), count) for run, day, count in found] == [
            ("a", "None", 5),
            ("b", "None", 5),
            ("run=1/x", "2026-11-25", 1),
            ("run=1/x", "2026-11-26", 1),
        ]
        frame = polars.scan_parquet(f"{target}/**/*.parquet", hive_partitioning=True)
        slow = frame.filter(polars.col("needs_attention")).select("run_id", "window", "aim_rank").collect()
        assert sorted(slow.rows()) == [("a", 2, 2), ("b", 2, 2)]

    def test_only_the_verdict_is_shown_unless_the_packets_are_named_too(
        self, packets: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        with Store.open([target], memory=True) as store:
            store.ingest()
            assert store.diagnosis("a", 2).aim is not None
            with pytest.raises(
                StoreError, match=r"only the verdict is here; its packet is .*00000002\.parquet"
            ):
                store.window("a", 2)
        with Store.open([target, packets], memory=True) as store:
            assert store.ingest().added == 0  # The dataset says what is in them.
            assert store.window("a", 2).number == 2

    def test_a_damaged_file_is_refused_with_the_reason_and_the_others_are_read(
        self, packets: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        names = [target / name for name in files_in(target)]
        names[0].write_bytes(names[0].read_bytes()[:-200] + b"PAR1")
        names[1].write_bytes(b"PAR1 and no more")
        shutil.copy(next(packets.rglob("*.parquet")), names[2])
        with Store.open([target], memory=True) as store:
            report = store.ingest()
            reasons = sorted(file.reason for file in store.quarantine())
            assert (report.verdicts, len(store.runs()), len(reasons)) == (1, 1, 3)
            assert any("no key 'sfapp.verdicts'" in reason for reason in reasons)
            assert not store.ingest().changed
            names[1].unlink()
            store.ingest()
            assert len(store.quarantine()) == 2

    def test_a_file_of_another_version_is_refused_with_what_to_do(
        self, packets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target = tmp_path / "verdicts"
        monkeypatch.setattr("sfapp.store.verdict_encoding.SCHEMA_VERSION", 7)
        ingested(target, packets)
        monkeypatch.undo()
        with Store.open([target], memory=True) as store:
            store.ingest()
            assert {file.reason.partition(":")[0] for file in store.quarantine()} == {
                f"holds verdicts of version 7, and this sfapp has {SCHEMA_VERSION}"
            }

    def test_files_of_the_version_before_fields_are_read_without_them(
        self, packets: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        for name in target.rglob("*.verdicts.parquet"):
            table = pq.read_table(name, partitioning=None).drop_columns(["job_fields", "verdict_hash"])
            head = pq.read_metadata(name).metadata[b"sfapp.verdicts"]
            present = b'"schema":%d' % SCHEMA_VERSION
            metadata = {b"sfapp.verdicts": head.replace(present, b'"schema":24')}
            pq.write_table(table.replace_schema_metadata(metadata), name)
        with Store.open([target], memory=True) as store:
            assert store.ingest().verdicts == 12
            assert not store.quarantine()
            assert store.trends("torch_version", 14).unstated_runs == len(store.runs())
            runs = [run.run_id for run in store.runs()]
            with Store.open([packets], memory=True) as judged:
                judged.ingest()
                assert store.telling_windows(runs, 100) == judged.telling_windows(runs, 100) != {}

    def test_what_a_power_failure_could_undo_is_flushed_before_packets_may_go(
        self, packets: Path, tmp_path: Path, flushed: list[str]
    ) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        folders = {folder for file in target.rglob("*.parquet") for folder in file.parents}
        assert {str(folder) for folder in folders if folder.is_relative_to(target)} <= set(flushed)

    @pytest.mark.parametrize(
        ("column", "value", "reason"),
        [
            ("nodes", None, "is null"),
            ("labels", [None], "has a list with a value that is null"),
            ("stages", [None], "has a list with a value that is null"),
            ("stages", ["x" * 200_000], "is longer than 131,072 bytes"),
            ("severity", float("nan"), "is not finite"),
            ("step_mean_ns", None, "is null"),
            ("step_mean_ns", 1e300, "is beyond ±10^40"),
            ("aim_stage", None, "is null beside a rank or host"),
            ("shares", [("model.fwd", float("inf"))], "is not finite"),
            ("shares", [("a", 1.0), ("a", 2.0)], "has a key several times"),
            ("step_noise", [-1.0], "has not 5 values"),
            ("step_noise", [0.0, 1.0, 1.0, 0.0, 0.0], "is that of no steps"),
            ("step_noise", [9.0, -1.0, 1.0, 0.0, 0.0], "is that of no steps"),
            ("first_step", -(2**63), "is beyond ±2^62"),
            ("window", 10**18, "is outside 0…10^18−1"),
            ("started_at", 2**62, "is not in the years 1 to 9999"),
            ("job_fields", "{", "cannot be read: Input data was truncated"),
            ("job_fields", '{"image": 1}', "cannot be read: Expected `str`, got `int` - at `$[...]`"),
            ("conflict_files", [{"reason": "a", "shown": None}], "has a list with a value that is null"),
        ],
        ids=lambda value: str(value)[:20],
    )
    def test_a_value_that_no_window_can_have_is_refused_and_the_other_files_are_read(
        self, packets: Path, tmp_path: Path, column: str, value: object, reason: str
    ) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        change_column(target, column, lambda _: value)
        with Store.open([target], memory=True) as store:
            store.ingest()
            (refused,) = store.quarantine()
            assert refused.reason == f"column '{column}': {reason}"
            assert len(store.runs()) == 2

    @pytest.mark.parametrize(
        ("good", "bad", "reason"),
        [
            ('"tau_c":0.8', '"tau_c":-1.0', "tau_c must lie between 0 and 1"),
            ('"gates"', '"first_step":1000000000000000000000000000000,"gates"', "an integer beyond ±2^62"),
            ('"shares":{"', '"shares":{"other.', "lacks a stage in its shares"),
            ('"delta_ns":{"', '"delta_ns":{},"unknown":{"', "lacks a stage in its delta_ns"),
            ('"noise":{"steps":', '"noise":{"steps":-', "has noise that no steps have"),
            (',"steps":12,"nodes"', ',"steps":0,"nodes"', "has no steps"),
            ('"routing_set":["', '"routing_set":["other.', "names a stage that it does not have"),
            ('"aim":{"stage":"', '"aim":{"stage":"other.', "names a stage that it does not have"),
            ('"lag1":', '"lag1":-', "has noise that no steps have"),
            ('"gates"', '"first_step": -9223372036854775808,"gates"', "an integer beyond ±2^62"),
        ],
    )
    def test_a_diagnosis_that_no_window_can_have_is_refused_and_the_other_files_are_read(
        self, packets: Path, tmp_path: Path, good: str, bad: str, reason: str
    ) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        change_column(target, "diagnosis", lambda text: text.replace(good, bad))
        with Store.open([target], memory=True) as store:
            store.ingest()
            (refused,) = store.quarantine()
            assert "column 'diagnosis'" in refused.reason
            assert reason in refused.reason
            assert len(store.runs()) == 2


def change_column(dataset: Path, column: str, change: Callable[[Any], object]) -> None:
    """Write the first file of a dataset again, with other values of one column."""
    name = sorted(dataset.rglob("*.verdicts.parquet"))[0]
    table, metadata = pq.read_table(name, partitioning=None), pq.read_metadata(name).metadata
    field = table.schema.field(column)
    values = pa.array(map(change, table.column(column).to_pylist()), storage_type(field.type))
    table = table.set_column(table.column_names.index(column), field, values.cast(field.type))
    pq.write_table(table.replace_schema_metadata({b"sfapp.verdicts": metadata[b"sfapp.verdicts"]}), name)


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The type in which any value can be given: Arrow makes only some times from Python's."""
    return pa.int64() if pa.types.is_timestamp(kind) else kind


class TestAdding:
    def test_again_writes_nothing(self, packets: Path, tmp_path: Path) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        before = files_in(target)
        report, written = ingested(target, packets)
        assert (report.added, report.unchanged, written.written) == (0, 12, 0)
        assert files_in(target) == before

    @pytest.mark.parametrize("fault", ["damaged", "of another version", "a pipe", "a folder"])
    def test_a_file_that_cannot_be_read_is_never_replaced(
        self, packets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
    ) -> None:
        """It may hold the only verdicts of packets that are gone. Other runs are written."""
        target = tmp_path / "verdicts"
        ingested(target, packets)
        of_a, of_b = (next((target / f"run={run}").rglob("*.parquet")) for run in "ab")
        if fault == "damaged":
            of_a.write_bytes(of_a.read_bytes()[:-200] + b"PAR1")
        elif fault == "a pipe":
            of_a.unlink()
            os.mkfifo(of_a)
        elif fault == "a folder":
            of_a.unlink()
            of_a.mkdir()
        else:
            with monkeypatch.context() as patch:
                patch.setattr("sfapp.store.verdict_encoding.SCHEMA_VERSION", 99)
                ingested(tmp_path / "newer", packets)
            shutil.copy(tmp_path / "newer" / of_a.relative_to(target), of_a)
        content = of_a.read_bytes() if of_a.is_file() else None
        packet_path(packets, "a", 0).unlink()
        put(packets, window("b", 7))
        for _ in range(2):
            with pytest.raises(StoreError, match=r"run=a/.*is not replaced.*move it away"):
                ingested(target, packets)
        assert (of_a.read_bytes() if of_a.is_file() else None) == content
        assert decode_verdicts(of_b.read_bytes()).table.num_rows == 6
        of_a.rename(tmp_path / "away")
        assert ingested(target, packets)[1].windows == 12

    def test_a_file_in_the_place_of_a_folder_is_named(self, packets: Path, tmp_path: Path) -> None:
        target = tmp_path / "verdicts"
        target.mkdir()
        (target / "run=a").write_text("no folder")
        with pytest.raises(StoreError, match=r"run=a/.*is not replaced.*move it away"):
            ingested(target, packets)
        assert {name.split("/")[0] for name in files_in(target)} == {"run=b", "run=run%3D1%2Fx"}

    def test_the_order_in_which_packets_are_added_does_not_matter(
        self, packets: Path, tmp_path: Path
    ) -> None:
        whole, apart = tmp_path / "whole", tmp_path / "apart"
        ingested(whole, packets)
        for run in ("b", "run%3D1%2Fx", "a"):
            for path in sorted((packets / run).glob("*.parquet"), reverse=True):
                ingested(apart, path)
        assert files_in(apart) == files_in(whole)

    def test_copies_of_datasets_are_read_together_whichever_comes_first(
        self, packets: Path, tmp_path: Path
    ) -> None:
        """Two datasets of one run hold its windows in two folders, and one of them in both."""
        first, second, both = tmp_path / "first", tmp_path / "second", tmp_path / "both"
        run = sorted((packets / "a").glob("*.parquet"))
        ingested(first, *run[:3])
        ingested(second, *run[2:])
        put(packets, window("a", 2, extra=SLOW, seed=77))
        ingested(both, packets / "a")
        ingested(second, packets / "a" / "00000002.parquet")
        expected = stored(tmp_path, both)
        for roots in ((first, second), (second, first), (second, first, second)):
            assert stored(tmp_path, *roots) == expected

    def test_a_window_that_changed_is_replaced_and_removed_from_its_old_day(
        self, packets: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        later(put(packets, window("run=1/x", 0, started_at=STARTS[1], ended_at=STARTS[1])))
        _, written = ingested(target, packets)
        assert (written.written, written.removed, written.windows) == (1, 1, 12)
        assert stored(tmp_path, target) == stored(tmp_path, packets)

    def test_a_late_rank_completes_the_window(self, tmp_path: Path) -> None:
        packets, target = tmp_path / "packets", tmp_path / "verdicts"
        made = window("a", 0)
        for rank in (0, 1, 3):
            put_part(packets, made, rank)
        ingested(target, packets)
        put(packets, part(made, 2), packet_path(packets, "a", 0, 2))
        ingested(target, packets)
        assert stored(tmp_path, target) == stored(tmp_path, packets)
        with Store.open([target], memory=True) as store:
            store.ingest()
            assert store.diagnosis("a", 0).ranks == 4

    def test_verdicts_outlive_their_packets(self, packets: Path, tmp_path: Path) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        shutil.rmtree(packets / "a")
        report, written = ingested(target, packets)
        assert (report.removed, written.windows) == (0, 12)
        with Store.open([packets, target], memory=True) as store:
            store.ingest()
            assert numbers(store, run="a") == [0, 1, 2, 3, 4]

    def test_a_window_is_taken_from_the_dataset_at_once_when_its_packet_goes(
        self, packets: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        changed = put(packets, window("a", 1, seed=99))
        later(changed)
        with Store.open([packets, target], memory=True) as store:
            assert store.ingest().added == 1
            changed.unlink()
            store.ingest()
            assert numbers(store, run="a") == [0, 1, 2, 3, 4]

    def test_one_process_writes_at_a_time(self, packets: Path, tmp_path: Path) -> None:
        target = tmp_path / "verdicts"
        ingested(target, packets)
        lock = StoreLock.acquire(target / ".sfapp" / "dataset")
        try:
            with pytest.raises(StoreBusyError, match=r"dataset .*/verdicts is in use by .*\. Wait until it"):
                ingested(target, packets)
        finally:
            lock.release()


def test_names_from_packets_stay_inside_the_folder(tmp_path: Path) -> None:
    packets, target = tmp_path / "packets", tmp_path / "verdicts"
    runs = ("../../up", SCRIPT, ".hidden", "ü" * 256)
    for run in runs:
        put(packets, window(run))
    ingested(target, packets)
    found = [decode_verdicts(content) for content in files_in(target).values()]
    assert {run for each in found for run in each.table.column("run_id").to_pylist()} == set(runs)
    assert len(list(tmp_path.rglob("*.verdicts.parquet"))) == len(runs)
    assert pq.read_metadata(next(target.rglob("*.verdicts.parquet"))).num_rows == 1
