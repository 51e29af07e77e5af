"""Read StragglerAnalysis' operation table as arrays [steps, data-parallel ranks] per operation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sfapp.errors import TraceError
from sfapp.importers.parquet_file import batches_of, most_rows, open_parquet
from sfapp.terminal import first_line

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mb_id")
MAX_ROWS = 2**24
_ROW_BYTES = 4
"""Bytes of a file that a row takes at least: two times are hardly the same in any two rows."""

_LONGEST_S = 1e6
"""Longest operation and step, in seconds: float64 holds their nanoseconds exactly."""


@dataclass(frozen=True, slots=True, eq=False)
class OperationTable:
    """Rows of a file by column; ``optype`` is an index into ``optypes``, times are in s."""

    optypes: tuple[str, ...]
    columns: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]


def read_table(path: Path) -> OperationTable:
    """Read one ``trace-*.parquet``.

    Raises:
        TraceError: the file is not readable, or a value is missing, negative or out of range; with row and
            column.
    """
    try:
        file, size = open_parquet(path, ["optype"])
        most = min(MAX_ROWS, most_rows(size, _ROW_BYTES))
        absent = [name for name in COLUMNS if name not in file.schema_arrow.names]
        if absent:
            raise TraceError(f"is not a StragglerAnalysis operation table: no column {', '.join(absent)}")
        batches, rows = [], 0
        for batch in batches_of(file, COLUMNS):
            rows += batch.num_rows
            if rows > most:  # The footer may claim fewer.
                raise TraceError(f"has more than {most:,} rows: split the file by steps")
            batches.append(batch)
        table = pa.Table.from_batches(batches, schema=None if batches else file.schema_arrow)
        columns = {name: _column(table[name], name) for name in COLUMNS if name != "optype"}
        if table["optype"].null_count:
            raise TraceError("missing operation type", place="column 'optype'")
        texts = pc.dictionary_encode(table["optype"]).unify_dictionaries().combine_chunks()
        # The file's own dictionary may have types that no row has.
        used = pc.unique(texts.indices).sort()
        columns["optype"] = np.searchsorted(used.to_numpy(), texts.indices.to_numpy())
        return OperationTable(tuple(pc.cast(texts.dictionary.take(used), pa.string()).to_pylist()), columns)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError(f"cannot be read: {first_line(str(error))}") from error


def _column(column: Any, name: str) -> Any:
    is_time = name in ("start_ts", "duration")
    if column.null_count:
        row = int(np.asarray(column.is_null()).argmax())
        raise TraceError("missing value", place=f"row {row}, column {name!r}")
    values = pc.cast(column, pa.float64() if is_time else pa.int64()).to_numpy()
    low, high = (0, _LONGEST_S) if is_time else (-1 if name == "mb_id" else 0, 2**31 - 1)
    outside = ~((values >= low) & (values <= high))
    if outside.any():
        row = int(outside.argmax())
        raise TraceError(f"{values[row]} is outside {low:g}…{high:g}", place=f"row {row}, column {name!r}")
    return values


Operation = tuple[str, int, int]
"""Type, sequence number in the step and pipeline stage: equal on every replica and in every step."""


def by_operation(table: OperationTable, column: Any) -> dict[Operation, Floats]:
    """Return the values [steps, data-parallel ranks] of each operation.

    Raises:
        TraceError: an operation is absent on some data-parallel rank in some step.
    """
    steps, step_at = np.unique(table["step"], return_inverse=True)
    degree = int(table["dp_rank"].max()) + 1
    keys = np.stack([table["optype"], table["seq_id"], table["stage"]])
    distinct, at = np.unique(keys, axis=1, return_inverse=True)
    if distinct.shape[1] * len(steps) * degree > 4 * MAX_ROWS:
        raise TraceError("the operations differ too much between steps to be compared")
    laid = np.full((distinct.shape[1], len(steps), degree), np.nan)
    laid[at.ravel(), step_at, table["dp_rank"]] = column
    if np.isnan(laid).any():
        kind, sequence, stage = distinct[:, int(np.isnan(laid).any(axis=(1, 2)).argmax())].tolist()
        raise TraceError(
            f"{table.optypes[kind]} {sequence} of stage {stage} is absent on some data-parallel rank in some "
            "step"
        )
    return {
        (table.optypes[kind], sequence, stage): plane
        for (kind, sequence, stage), plane in zip(distinct.T.tolist(), laid, strict=True)
    }
