"""A file of verdicts that another program wrote is refused as a whole, and all others are read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from sfapp.packets.write import parquet_bytes
from sfapp.store import Store, ingest_to_dataset
from sfapp.store.verdict_encoding import VERDICTS_KEY, Verdicts, decode_verdicts
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
