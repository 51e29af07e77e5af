"""Encode and decode files of verdicts: Parquet, one row per window (docs/fleet.md, Datasets).

A row holds all columns of ``windows`` and, nested, the window's rows of ``packets``, ``stages`` and
``conflicts``. The footer names the schema version and the references with which the windows were compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfapp.errors import DamagedStoreError, PacketError
from sfapp.packets.arrow_columns import PacketFile
from sfapp.packets.faults import arrow_errors
from sfapp.packets.memory_budget import PROCESS_BUDGET
from sfapp.packets.write import parquet_bytes
from sfapp.store.schema import (
    CONFLICTS,
    PACKETS,
    RUN_REFERENCES,
    SCHEMA_VERSION,
    STAGES,
    WINDOWS,
    SchemaTable,
)
from sfapp.store.verdict_checks import MAX_INTEGER, MAX_NUMBER, check_numbers, check_values, is_noise
from sfapp.store.verdict_rows import decode_diagnosis, decode_reference, verdict_hash
from sfapp.terminal import quoted

VERDICTS_KEY = b"sfapp.verdicts"
"""Parquet footer key of a file of verdicts."""

MOST_BYTES = 2**30
"""Largest size of a file; a day of a run takes about a megabyte."""

_MOST_RATIO, _LEAST_EXPANDED = 200, 64 * 2**20
"""Limits of what a file may expand to: diagnoses of similar windows share most of their text."""

NESTED: dict[str, SchemaTable] = {
    "packet_files": PACKETS,
    "stage_values": STAGES,
    "conflict_files": CONFLICTS,
}
"""Columns that hold a window's rows of another table."""

_NEVER_NULL = (
    *("run_id", "window", "diagnosis", "stages", "recorded_stages", "ranks", "packet_files"),
    *("closed_by", "wrapper", "first_step", "last_step", "steps", "nodes", "world_size", "missing_ranks"),
    *("gather_ok", "exposed_makespan_ns", "frontier", "labels", "reasons", "lacks_data", "has_late_ranks"),
    *("needs_attention", "complete", "is_reference", "step_mean_ns", "step_p50_ns", "step_p95_ns"),
    "verdict_hash",
)
"""Columns with a value for each window."""

_KEY_COLUMNS = frozenset({"run_id", "window", "verdicts"})


def nested_names(table: SchemaTable) -> list[str]:
    """Return the columns of a table that are nested in a window's row."""
    return [name for name in table.names if name not in _KEY_COLUMNS]


def _nested_type(table: SchemaTable) -> pa.DataType:
    wanted = set(nested_names(table))
    return pa.list_(pa.struct([field for field in table.arrow_fields if field.name in wanted]))


SCHEMA = pa.schema(
    [*WINDOWS.arrow_fields, *(pa.field(name, _nested_type(table)) for name, table in NESTED.items())]
)


class StoredReference(msgspec.Struct, frozen=True):
    """A row of ``run_references``: what the windows of a run are compared with."""

    run_id: str
    reference_window: int
    healthy_windows: list[int] | None
    noise: list[float] | None
    between_ns: float
    between_windows: int
    chosen: bool
    reference: str


_ADDED: Mapping[int, tuple[str, ...]] = {
    24: ("job_fields", "verdict_hash"),
    **dict.fromkeys(range(25, 30), ()),
}
"""Earlier versions whose files are still read, with the columns that they lack."""


class _Head(msgspec.Struct, frozen=True):
    """Value of the footer's key."""

    schema: int
    references: list[StoredReference] = []


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Content of a file of verdicts. ``table`` has the columns of ``SCHEMA``."""

    table: pa.Table
    references: tuple[StoredReference, ...] = ()


def encode_verdicts(verdicts: Verdicts) -> bytes:
    """Return a file's bytes; equal rows in the same order give equal bytes."""
    head = msgspec.json.encode(_Head(SCHEMA_VERSION, list(verdicts.references)))
    texts = [field.name for field in SCHEMA if field.type == pa.string() and field.name != "diagnosis"]
    return bytes(parquet_bytes(verdicts.table.cast(SCHEMA), VERDICTS_KEY, head, texts))


def decode_verdicts(data: bytes) -> Verdicts:
    """Return the verdicts in a file's bytes, after all checks.

    Raises:
        PacketError: it is no such file, is damaged, or is of another version.
    """
    verdicts = decode_unchecked(data)
    check_rows([verdicts.table])
    return verdicts


def decode_unchecked(data: bytes) -> Verdicts:
    """Return the verdicts in a file's bytes, which are to be checked by ``check_rows``.

    Raises:
        PacketError: it is no such file, is damaged, or is of another version.
    """
    file = PacketFile(data, texts=(), manifest_key=VERDICTS_KEY)
    head = _head(file.manifest_json)
    names = [name for name in SCHEMA.names if name not in _ADDED.get(head.schema, ())]
    missing = [name for name in names if file.names.count(name) != 1]
    if missing:
        raise PacketError("the column is missing, or there several times", column=missing[0])
    expanded = file.expanded_bytes(len(names))
    if expanded > max(_LEAST_EXPANDED, _MOST_RATIO * file.size):
        raise PacketError(f"expands from {file.size:,} to {expanded:,} bytes, more than allowed for its size")
    with PROCESS_BUDGET.reserve(2 * expanded), arrow_errors():
        table = pa.table(file.decode(names)).cast(pa.schema([SCHEMA.field(name) for name in names]))
        for name in _ADDED.get(head.schema, ()):
            table = table.append_column(SCHEMA.field(name), _added(table, name))
        table = table.select(SCHEMA.names)
    if head.schema != SCHEMA_VERSION:
        check_rows([table])
        table = _to_read_again(table)
    return Verdicts(table, tuple(head.references))


def _added(table: pa.Table, name: str) -> pa.Array:
    """Return the values of a column that a file of an earlier version lacks: unknown, unless they follow from
    another column."""
    if name == "verdict_hash":
        texts = table.column("diagnosis").to_pylist()
        return pa.array([None if text is None else verdict_hash(text) for text in texts], pa.int64())
    return pa.nulls(table.num_rows, SCHEMA.field(name).type)


def _to_read_again(table: pa.Table) -> pa.Table:
    """Return the rows of an earlier version with other times of packets than their own: those that are there
    are read again, because verdicts had other numbers. Of the others the verdict on the newest packet stays.
    """
    position = table.column_names.index("packet_files")
    lists = table.column(position).combine_chunks()
    files = lists.flatten()
    earlier = pc.max_element_wise(pc.subtract(files.field("mtime_ns"), 1), -MAX_INTEGER)
    columns = [earlier if field.name == "mtime_ns" else files.field(field.name) for field in files.type]
    changed = pa.StructArray.from_arrays(columns, fields=list(files.type))
    offsets = pa.array(np.concatenate(([0], np.cumsum(pc.list_value_length(lists)))), pa.int32())
    return table.set_column(position, SCHEMA.field(position), pa.ListArray.from_arrays(offsets, changed))


def _head(raw: bytes | None) -> _Head:
    if raw is None:
        raise PacketError("the Parquet footer has no key 'sfapp.verdicts'")
    try:
        head = msgspec.json.decode(raw, type=_Head)
        for one in head.references:
            decode_reference(one.reference)
            if not abs(one.between_ns) <= MAX_NUMBER or not (one.noise is None or is_noise(one.noise)):
                raise PacketError(f"the footer's reference of run {quoted(one.run_id)} is that of no steps")
        texts = pa.array([one.reference for one in head.references], pa.string())
        check_numbers(texts, "reference in the footer")
        with arrow_errors():
            RUN_REFERENCES.arrow([reference_row(one) for one in head.references])
    except DamagedStoreError as error:
        raise PacketError(f"its footer cannot be read: {error.__cause__}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PacketError(f"its footer cannot be read: {error}") from None
    if head.schema not in (SCHEMA_VERSION, *_ADDED):
        raise PacketError(
            f"holds verdicts of version {head.schema}, and this sfapp has {SCHEMA_VERSION}: write the "
            "dataset again from the packets, into an empty folder"
        )
    return head


def check_rows(tables: Sequence[pa.Table]) -> None:
    """Check that each row is about one window, with a diagnosis that can be restored and named packets.

    To check many small tables at once takes hardly longer than one of them: most of it is per column.

    Raises:
        PacketError: one is not; its row is counted over all tables.
    """
    with PROCESS_BUDGET.reserve(2 * sum(table.nbytes for table in tables)), arrow_errors():
        table = pa.concat_tables(tables)
        table.validate(full=True)
        _check_table(table)


def _check_table(table: pa.Table) -> None:
    for name in _NEVER_NULL:
        if table.column(name).null_count:
            raise PacketError("is null", column=name)
    lengths = pc.list_value_length(table.column("packet_files"))
    if table.num_rows and pc.min(lengths).as_py() < 1:
        raise PacketError("is empty", column="packet_files")
    files = pc.list_flatten(table.column("packet_files")).combine_chunks()
    for name in ("path", "size", "mtime_ns", "sha256", "state"):
        if files.null_count or files.field(name).null_count:
            raise PacketError(f"has a file without {name}", column="packet_files")
    check_values(table)
    columns = (table.column(name).to_pylist() for name in ("run_id", "window", "diagnosis"))
    for row, (run_id, window, text) in enumerate(zip(*columns, strict=True)):
        try:
            diagnosis = decode_diagnosis(text)
        except DamagedStoreError as error:
            raise PacketError(f"cannot be read: {error.__cause__}", row=row, column="diagnosis") from None
        if (diagnosis.run_id, diagnosis.window) != (run_id, window):
            raise PacketError("is about another window", row=row, column="diagnosis")
    check_numbers(table.column("diagnosis"), "diagnosis")


def with_source(tables: Sequence[tuple[str, pa.Table]]) -> pa.Table:
    """Return the rows of several files as one table, with the file of each in the column ``verdicts``."""
    parts = [
        table.append_column("verdicts", pa.array([name] * table.num_rows, pa.string()))
        for name, table in tables
    ]
    return pa.concat_tables(parts)


def reference_row(found: StoredReference) -> dict[str, Any]:
    """Return a row of ``run_references``."""
    return msgspec.structs.asdict(found)
