"""A file of a few kilobytes that expands to gigabytes is refused before it does."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HEADER = b"step,rank,stage,duration_ms\n"


def refusal(name: str, path: Path) -> str:
    """Return why an import refuses a file, empty if it does not; it takes at most 600 MB of memory."""
    script = (
        "import sys; from pathlib import Path\n"
        "from sfapp.importers import ImportOptions\n"
        "from sfapp.importers.import_formats import read_traces\n"
        "refused = read_traces(sys.argv[1], [Path(sys.argv[2])], ImportOptions()).refused\n"
        "(peak,) = [line.split()[1] for line in open('/proc/self/status') if line[:6] == 'VmHWM:']\n"
        "print(peak, *(each.reason for each in refused))"
    )
    most = 4 << 30
    found = subprocess.run(
        [sys.executable, "-c", script, name, str(path)],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (most, most)),
    )
    taken_kib, _, reason = found.stdout.partition(" ")
    assert int(taken_kib) < 600 << 10
    return reason


def table(rows: int, stage: str) -> dict[str, Any]:
    code = pa.array(np.zeros(rows, np.int32))
    return {
        "step": np.zeros(rows, np.int64),
        "rank": np.zeros(rows, np.int64),
        "stage": pa.DictionaryArray.from_arrays(code, pa.array([stage])),
        "duration_ms": np.ones(rows),
    }


def test_a_table_of_equal_rows_is_refused_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows = pa.table(table(2**20, "load"))
    with pq.ParquetWriter(path, rows.schema) as file:
        for _ in range(32):
            file.write_table(rows)
    assert path.stat().st_size < 2**20

    assert "more than 1,048,576 rows" in refusal("table", path)


@pytest.mark.parametrize("name", ["table", "straggler-analysis"])
def test_a_long_text_in_many_rows_is_in_memory_once(tmp_path: Path, name: str) -> None:
    path, rows, text = tmp_path / "trace-a.parquet", 2**16, "x" * 2**20
    if name == "table":
        columns = table(rows, text)
    else:
        zeros = np.zeros(rows, np.int64)
        names = ("dp_rank", "stage", "rank", "step", "start_ts", "duration", "seq_id", "mb_id")
        columns = dict.fromkeys(names, zeros) | {"optype": table(rows, text)["stage"]}
    pq.write_table(pa.table(columns), path, store_schema=False)
    assert path.stat().st_size < 2**21

    assert "MemoryError" not in refusal(name, path)


def test_operations_in_equal_rows_are_refused_by_their_number(tmp_path: Path) -> None:
    path, zeros = tmp_path / "trace-a.parquet", np.zeros(2**22, np.int32)
    names = ("dp_rank", "stage", "rank", "step", "start_ts", "duration", "seq_id", "mb_id")
    columns = dict.fromkeys(names, zeros) | {"optype": table(len(zeros), "forward")["stage"]}
    pq.write_table(pa.table(columns), path, store_schema=False)

    assert "more than 1,048,576 rows" in refusal("straggler-analysis", path)


def test_pages_that_expand_beyond_the_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.parquet"
    columns = table(2**16, "load") | {"unused": ["x" * 2**13] * 2**16}
    pq.write_table(pa.table(columns), path, compression="zstd", use_dictionary=["stage"])

    assert "expands to" in refusal("table", path)


@pytest.mark.parametrize("name", ["table", "kineto", "flight-recorder", "nccl-inspector", "nsys"])
def test_a_gzipped_file_is_refused_where_it_expands_beyond_its_size(tmp_path: Path, name: str) -> None:
    ending = {"table": "csv.gz", "nsys": "sqlite.gz", "flight-recorder": "0"}.get(name, "json.gz")
    path = tmp_path / f"packed.{ending}"
    line = b"0,0,load,1\n" if name == "table" else b" " * 1023 + b"\n"
    with gzip.open(path, "wb") as file:
        file.write(HEADER if name == "table" else b"")
        for _ in range(64):
            file.write(line * (2**20 // len(line)))

    assert "expands to more than" in refusal(name, path)


def test_a_table_with_more_columns_than_a_table_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_bytes(HEADER[:-1] + b"," * 400_000 + b"\n0,0,load,1" + b"," * 400_000 + b"\n")

    assert "columns" in refusal("table", path)
