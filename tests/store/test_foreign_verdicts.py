"""A file of verdicts that another program wrote is refused as a whole, and all others are read."""

from __future__ import annotations

import json
from functools import reduce
from operator import getitem
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from sfapp.errors import PacketError
from sfapp.packets.write import parquet_bytes
from sfapp.store import Store, ingest_to_dataset
from sfapp.store.schema import SCHEMA_VERSION
from sfapp.store.verdict_checks import check_numbers
from sfapp.store.verdict_encoding import VERDICTS_KEY, Verdicts, decode_verdicts
from tests.builders import ddp_job, window_of
from tests.store.jobs import numbers, put, put_run, window


@pytest.fixture
def verdicts(tmp_path: Path) -> Verdicts:
    """Verdicts on a run of five windows that is not in the folder ``packets``, which has another."""
    put_run(tmp_path / "packets")
    put_run(tmp_path / "others", "other")
    ingest_to_dataset([tmp_path / "others"], tmp_path / "verdicts")
    return decode_verdicts(next((tmp_path / "verdicts").rglob("*.verdicts.parquet")).read_bytes())


def put_file(folder: Path, table: pa.Table, head: object) -> None:
    content = parquet_bytes(table, VERDICTS_KEY, msgspec.json.encode(head), [])
    (folder / "x.verdicts.parquet").write_bytes(content)


def assert_refused(folder: Path, reason: str) -> None:
    with Store.open([folder], memory=True) as store:
        store.ingest()
        put(folder, window("other", 5))
        store.ingest()
        assert numbers(store, run="run") == [0, 1, 2, 3, 4]
        assert numbers(store, run="other") == [5]
        assert reason in "".join(file.reason for file in store.quarantine())


@pytest.mark.parametrize(
    "values",
    [pa.array([5] * 5), pa.array([[5]] * 5), pa.array([b"\xff"] * 5), pa.nulls(5)],
    ids=lambda values: str(values.type),
)
def test_diagnoses_of_the_first_version_that_are_no_text_are_refused(
    tmp_path: Path, verdicts: Verdicts, values: pa.Array
) -> None:
    table = verdicts.table.drop_columns(["job_fields", "verdict_hash"])
    table = table.set_column(table.column_names.index("diagnosis"), "diagnosis", values)
    put_file(tmp_path / "packets", table, {"schema": 24})
    assert_refused(tmp_path / "packets", "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("noise", []),
        ("noise", [1.0]),
        ("noise", [2**60, 1.0, 1.0, 0.0, 0.0]),
        ("between_ns", 1e308),
        ("reference.steps", 0),
        ("reference.between_ns", 1e308),
        ("reference.step_time_ns", -1e308),
        ("reference.carry_advance_ns", {}),
        ("reference.noise.lag1", 1e308),
        ("reference.noise.steps", 2**60),
    ],
)
def test_a_reference_that_no_run_can_have_is_refused(
    tmp_path: Path, verdicts: Verdicts, name: str, value: object
) -> None:
    (row,) = msgspec.to_builtins(verdicts.references)
    row["reference"] = json.loads(row["reference"])
    *outer, last = name.split(".")
    reduce(getitem, outer, row)[last] = value
    row["reference"] = json.dumps(row["reference"])
    put_file(tmp_path / "packets", verdicts.table, {"schema": SCHEMA_VERSION, "references": [row]})
    assert_refused(tmp_path / "packets", "footer")


@pytest.mark.parametrize(
    "wrong",
    [
        {"noise": {"steps": 2**60, "lag1": 1.0, "lag2": 1.0, "block1": 0.0, "block2": 0.0}},
        {"step_time": {"mean_ns": 1.0, "p50_ns": 1.0, "p95_ns": -1e308, "longest_ns": 1.0}},
        {"severity": 10.0**41},
        {"labels": []},
        {"culprits": []},
    ],
)
def test_a_diagnosis_that_no_window_can_have_is_refused(
    tmp_path: Path, verdicts: Verdicts, wrong: dict[str, object]
) -> None:
    column = verdicts.table.column_names.index("diagnosis")
    found = [json.loads(text) | wrong for text in verdicts.table.column(column).to_pylist()]
    table = verdicts.table.set_column(column, "diagnosis", pa.array(map(json.dumps, found)))
    put_file(tmp_path / "packets", table, {"schema": SCHEMA_VERSION})
    assert_refused(tmp_path / "packets", "diagnosis")


def test_a_packet_of_the_earliest_time_in_a_file_of_an_earlier_version_is_read(
    tmp_path: Path, verdicts: Verdicts
) -> None:
    place = verdicts.table.column_names.index("packet_files")
    rows = verdicts.table.column(place).to_pylist()
    files = [[file | {"mtime_ns": -(2**62)} for file in row] for row in rows]
    field = verdicts.table.schema.field(place)
    table = verdicts.table.set_column(place, field, pa.array(files, field.type))
    put_file(tmp_path / "packets", table, {"schema": 27})
    with Store.open([tmp_path / "packets"], memory=True) as store:
        store.ingest()
        assert numbers(store, run="other") == [0, 1, 2, 3, 4]


def test_names_of_hosts_are_not_taken_for_large_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A diagnosis is only parsed a second time if it may have one."""
    texts = [f'{{"hostname":"node{number}","share":0.{number}e-17}}' for number in range(1000)]
    with monkeypatch.context() as patch:
        patch.setattr("sfapp.store.verdict_checks.json.loads", None)
        check_numbers(pa.array(texts), "diagnosis")
    for number in ("1e45", "-1.5E+045", "1000000e39", "12345.6e36", "1" * 41 + ".0", "-" + "9" * 19):
        with pytest.raises(PacketError, match="beyond"):
            check_numbers(pa.array([*texts, f'{{"share":{number}}}']), "diagnosis")


def test_a_window_of_no_time_is_kept_in_a_dataset(tmp_path: Path) -> None:
    packets, verdicts = tmp_path / "packets", tmp_path / "verdicts"
    put(packets, window_of(0 * ddp_job(ranks=4, steps=6), run_id="run"))
    ingest_to_dataset([packets], verdicts)
    with Store.open([verdicts], memory=True) as store:
        store.ingest()
        assert store.quarantine() == []
        assert store.diagnosis("run", 0).shares is None
