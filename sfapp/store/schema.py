"""Define the store's tables once, for the DDL, the Arrow schemas and the reference in docs/store.md.

A test compares the document with these definitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa

from sfapp.model.samples import (
    AggregatorSample,
    GpuSample,
    LinkSample,
    NodeSample,
    PaceSample,
    ProcessSample,
    Sample,
    StandstillSample,
    sample_fields,
)

SCHEMA_VERSION = 30
"""Version of the tables and of the diagnoses in them; a store of another version is built again."""


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """Column of a table: name, DuckDB type and meaning."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True, slots=True)
class SchemaTable:
    """Table of the store. ``rows`` says what one row is."""

    name: str
    rows: str
    columns: tuple[SchemaColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def meanings(self) -> list[tuple[str, str | None, str]]:
        """Rows of the table ``meanings``: of this table and of its columns."""
        columns = [(self.name, column.name, column.meaning) for column in self.columns]
        return [(self.name, None, self.rows), *columns]

    @property
    def ddl(self) -> str:
        """SQL statement that creates the table."""
        columns = (f"{quote_identifier(column.name)} {_stored_as(column.type)}" for column in self.columns)
        return f"CREATE TABLE {self.name} ({', '.join(columns)})"

    @property
    def arrow_fields(self) -> list[pa.Field]:
        """Its columns as fields of Arrow."""
        return [pa.field(column.name, _ARROW[column.type]) for column in self.columns]

    def arrow(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Return rows, each with a value for every column, as an Arrow table in this table's order and
        types.
        """
        columns = zip(*map(itemgetter(*self.names), rows), strict=True) if rows else [()] * len(self.columns)
        return self.arrow_columns(dict(zip(self.names, columns, strict=True)))

    def arrow_columns(self, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
        """Return whole columns as an Arrow table in this table's order and types."""
        return pa.table(
            {column.name: pa.array(columns[column.name], type=_ARROW[column.type]) for column in self.columns}
        )


def _stored_as(type_name: str) -> str:
    """Return a type with its compression. Documents share most of their text: zstd makes them half as large
    as DuckDB's default, in a third of the time."""
    return f"{type_name} USING COMPRESSION zstd" if type_name == "JSON" else type_name


def quote_identifier(name: str) -> str:
    """Return a name quoted as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return an SQL string literal, for statements that take no bound parameters (views)."""
    return "'" + text.replace("'", "''") + "'"


_ARROW: Mapping[str, pa.DataType] = {
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "DOUBLE[]": pa.list_(pa.float64()),
    "BIGINT[]": pa.list_(pa.int64()),
    "INTEGER": pa.int32(),
    "INTEGER[]": pa.list_(pa.int32()),
    "JSON": pa.string(),
    "MAP(VARCHAR, DOUBLE)": pa.map_(pa.string(), pa.float64()),
    "TIMESTAMP": pa.timestamp("us"),
    "VARCHAR": pa.string(),
    "VARCHAR[]": pa.list_(pa.string()),
}

STORE_INFO = SchemaTable(
    "store_info",
    "one fact about the store file itself",
    (
        SchemaColumn("key", "VARCHAR", "`schema_version`, `sfapp_version` or, until a change, `settled`"),
        SchemaColumn("value", "VARCHAR", "its value"),
    ),
)

MEANINGS = SchemaTable(
    "meanings",
    "the meaning of one of these tables, or of one of its columns",
    (
        SchemaColumn("table_name", "VARCHAR", "table"),
        SchemaColumn("column_name", "VARCHAR", "column; null for the table itself"),
        SchemaColumn("meaning", "VARCHAR", "what a row is, or meaning and unit of the column"),
    ),
)

PACKETS = SchemaTable(
    "packets",
    "one packet file that was read and is valid",
    (
        SchemaColumn("path", "VARCHAR", "absolute path, or address in an object store"),
        SchemaColumn("size", "BIGINT", "bytes"),
        SchemaColumn("mtime_ns", "BIGINT", "last written, ns since 1970; adjusted so that it is read again"),
        SchemaColumn("sha256", "VARCHAR", "of the file, hex"),
        SchemaColumn("run_id", "VARCHAR", "from the manifest"),
        SchemaColumn("window", "BIGINT", "number of the window in its run; a keyword, so quote it"),
        SchemaColumn("part_rank", "INTEGER", "rank of this part of a window; null for a whole window"),
        SchemaColumn(
            "state",
            "VARCHAR",
            "`shown`: the window is built from it; `redundant`: equal to a shown file; "
            "`set_aside`: lost a conflict, see `conflicts`",
        ),
        SchemaColumn("hostnames", "VARCHAR[]", "hosts named in it, in alphabetical order"),
        SchemaColumn("layout", "VARCHAR", "hash of the names and types of its columns"),
        SchemaColumn("verdicts", "VARCHAR", "the file of verdicts that describes it; null if it was read"),
    ),
)

QUARANTINE = SchemaTable(
    "quarantine",
    "one file that was refused",
    (
        SchemaColumn("path", "VARCHAR", "absolute path, or address in an object store"),
        SchemaColumn("size", "BIGINT", "bytes"),
        SchemaColumn("mtime_ns", "BIGINT", "last written, ns since 1970; it is read again once this changes"),
        SchemaColumn("sha256", "VARCHAR", "of the file, hex; empty if it could not be read"),
        SchemaColumn("reason", "VARCHAR", "the first fault, with row and column if it has them"),
    ),
)

WINDOWS = SchemaTable(
    "windows",
    "one window, diagnosed over all its ranks with the default thresholds",
    (
        SchemaColumn("run_id", "VARCHAR", "which run"),
        SchemaColumn("window", "BIGINT", "which window of it; a keyword, so quote it"),
        SchemaColumn("started_at", "TIMESTAMP", "UTC, by the writing rank's clock; display only"),
        SchemaColumn("ended_at", "TIMESTAMP", "UTC, by the writing rank's clock; display only"),
        SchemaColumn("closed_by", "VARCHAR", "why the window ended"),
        SchemaColumn("wrapper", "VARCHAR", "`ddp`, `fsdp2`, …"),
        SchemaColumn(
            "job_fields", "VARCHAR", "what the job ran with, such as its image: texts by name, as JSON"
        ),
        SchemaColumn("first_step", "BIGINT", "first logical step"),
        SchemaColumn("last_step", "BIGINT", "last logical step"),
        SchemaColumn("steps", "BIGINT", "number of steps"),
        SchemaColumn("ranks", "INTEGER", "number of ranks with rows"),
        SchemaColumn("nodes", "INTEGER", "number of nodes that they ran on"),
        SchemaColumn("world_size", "INTEGER", "number of ranks expected"),
        SchemaColumn("missing_ranks", "INTEGER[]", "expected, not in the rows"),
        SchemaColumn("gather_ok", "BOOLEAN", "whether the window's gather completed"),
        SchemaColumn("step_mean_ns", "DOUBLE", "mean exposed step (carry-over where defined), ns"),
        SchemaColumn("step_p50_ns", "DOUBLE", "median exposed step on `frontier`, ns"),
        SchemaColumn("step_p95_ns", "DOUBLE", "95th percentile of the same, ns"),
        SchemaColumn("exposed_makespan_ns", "BIGINT", "Σ_t F[S,t], ns"),
        SchemaColumn(
            "frontier", "VARCHAR", "whose shares decide: `carry_over`; `step` where steps are not consecutive"
        ),
        SchemaColumn("stages", "VARCHAR[]", "broad stages in order"),
        SchemaColumn("recorded_stages", "VARCHAR[]", "stages as recorded, in order"),
        SchemaColumn("shares", "MAP(VARCHAR, DOUBLE)", "A by broad stage; null below the denominator floor"),
        SchemaColumn(
            "carry_over_shares", "MAP(VARCHAR, DOUBLE)", "A'; null where steps are not consecutive too"
        ),
        SchemaColumn("top_stage", "VARCHAR", "s1, the stage with the largest share on `frontier`"),
        SchemaColumn("top_share", "DOUBLE", "its share"),
        SchemaColumn("routing_set", "VARCHAR[]", "C_route, largest share first"),
        SchemaColumn("co_critical_stages", "VARCHAR[]", "the ambiguity set"),
        SchemaColumn("label", "VARCHAR", "the most important label"),
        SchemaColumn("labels", "VARCHAR[]", "every label, in the order of the rules"),
        SchemaColumn("reasons", "VARCHAR[]", "every reason, also those without a label"),
        SchemaColumn("leader_rank", "INTEGER", "the rank that is slowest in the top stage most often"),
        SchemaColumn("leader_hostname", "VARCHAR", "its host"),
        SchemaColumn("leader_share", "DOUBLE", "share of the eligible steps in which it is slowest"),
        SchemaColumn(
            "own_wait_stages", "VARCHAR[]", "recorded stages in which ranks wait by the window's own fit"
        ),
        SchemaColumn("own_boundary", "VARCHAR", "the one of these at whose end ranks synchronise best"),
        SchemaColumn(
            "met_boundary", "VARCHAR", "the same by the fit between synchronisations, if there is none"
        ),
        SchemaColumn("sync_boundary", "VARCHAR", "the same by all windows of the run"),
        SchemaColumn(
            "culprit_kind", "VARCHAR", "`chronic`, `rotating`, `periodic`, `one-off`, `mixed`, `none`"
        ),
        SchemaColumn("culprit_rank", "INTEGER", "its rank that is slowest most often"),
        SchemaColumn("culprit_hostname", "VARCHAR", "its host"),
        SchemaColumn("culprit_share", "DOUBLE", "share of the eligible steps in which it is slowest"),
        SchemaColumn("culprit_period", "INTEGER", "spacing in steps, where periodic"),
        SchemaColumn("aim_stage", "VARCHAR", "suspect stage"),
        SchemaColumn("aim_basis", "VARCHAR", "`delta`, `excess` or `share`"),
        SchemaColumn("aim_rank", "INTEGER", "suspect rank; null if no rank stands out"),
        SchemaColumn("aim_hostname", "VARCHAR", "its host"),
        SchemaColumn("aim_rank_reason", "VARCHAR", "why no rank is named"),
        SchemaColumn("exposed_imbalance", "DOUBLE", "Σ_s X'[s], or of own time where larger; as a share"),
        SchemaColumn(
            "change", "DOUBLE", "change of the mean step against the run's reference; 0.1 = 10 % longer"
        ),
        SchemaColumn("severity", "DOUBLE", "severity by which windows are sorted"),
        SchemaColumn("lacks_data", "BOOLEAN", "whether ranks are missing or the gather failed"),
        SchemaColumn("has_late_ranks", "BOOLEAN", "whether ranks are late beyond noise"),
        SchemaColumn("needs_attention", "BOOLEAN", "whether an effect is beyond noise and large enough"),
        SchemaColumn(
            "step_noise", "DOUBLE[]", "noise of its steps: number of steps, mean squared differences"
        ),
        SchemaColumn("complete", "BOOLEAN", "whether it can be the run's reference"),
        SchemaColumn("reference_window", "BIGINT", "the window of the run that it was compared with"),
        SchemaColumn("is_reference", "BOOLEAN", "whether the run is compared with it as a healthy window"),
        SchemaColumn("verdict_hash", "BIGINT", "of `diagnosis`: another one after another verdict"),
        SchemaColumn("diagnosis", "JSON", "the whole diagnosis, from which it is restored exactly"),
    ),
)

STAGES = SchemaTable(
    "stages",
    "one broad stage of one window",
    (
        SchemaColumn("run_id", "VARCHAR", "which run"),
        SchemaColumn("window", "BIGINT", "which window of it; a keyword, so quote it"),
        SchemaColumn("stage", "VARCHAR", "which stage"),
        SchemaColumn("position", "INTEGER", "its position in the stage order, from 0"),
        SchemaColumn("advance_ns", "BIGINT", "Σ_t a[s,t], ns"),
        SchemaColumn("carry_over_advance_ns", "BIGINT", "Σ_t a'[s,t]; null where steps are not consecutive"),
        SchemaColumn("share", "DOUBLE", "A[s]; null below the denominator floor, as all that follow"),
        SchemaColumn("carry_over_share", "DOUBLE", "A'[s]; null where steps are not consecutive"),
        SchemaColumn("static_gain", "DOUBLE", "G[s]"),
        SchemaColumn("excess", "DOUBLE", "X[s]"),
        SchemaColumn("carry_over_excess", "DOUBLE", "X'[s]"),
        SchemaColumn("takeover", "DOUBLE", "T[s]: change of its share when the top stage is clipped"),
        SchemaColumn("delta_ns", "DOUBLE", "mean advance a step above the reference's, ns"),
        SchemaColumn("in_routing_set", "BOOLEAN", "whether it is in C_route"),
        SchemaColumn("co_critical", "BOOLEAN", "whether it is in the ambiguity set"),
    ),
)

RUN_REFERENCES = SchemaTable(
    "run_references",
    "one run that has healthy windows, which all its windows are compared with",
    (
        SchemaColumn("run_id", "VARCHAR", "which run"),
        SchemaColumn("reference_window", "BIGINT", "the healthy window that stands for all of them"),
        SchemaColumn("healthy_windows", "BIGINT[]", "all of them; null while one is being read again"),
        SchemaColumn("noise", "DOUBLE[]", "noise of the run's steps, as `step_noise`"),
        SchemaColumn("between_ns", "DOUBLE", "standard deviation of window means beyond that noise, ns"),
        SchemaColumn("between_windows", "BIGINT", "number of windows in that estimate; 0 if too few"),
        SchemaColumn("chosen", "BOOLEAN", "chosen by a user rather than measured"),
        SchemaColumn("reference", "JSON", "values of these windows that are compared with"),
    ),
)

CONFLICTS = SchemaTable(
    "conflicts",
    "one file that takes part in a conflict over one window",
    (
        SchemaColumn("run_id", "VARCHAR", "which run"),
        SchemaColumn("window", "BIGINT", "which window of it; a keyword, so quote it"),
        SchemaColumn("reason", "VARCHAR", "what differs and what is shown"),
        SchemaColumn("path", "VARCHAR", "absolute path, or address in an object store"),
        SchemaColumn("size", "BIGINT", "bytes"),
        SchemaColumn("sha256", "VARCHAR", "of the file, hex"),
        SchemaColumn("shown", "BOOLEAN", "whether the window is built from this file"),
    ),
)

VERDICT_FILES = SchemaTable(
    "verdict_files",
    "one file of a dataset of verdicts (docs/fleet.md)",
    (
        SchemaColumn("path", "VARCHAR", "absolute path, or address in an object store"),
        SchemaColumn("size", "BIGINT", "bytes"),
        SchemaColumn("mtime_ns", "BIGINT", "last written, ns since 1970; 0 if it must be read again"),
        SchemaColumn("sha256", "VARCHAR", "of the file, hex"),
        SchemaColumn("windows", "BIGINT", "number of windows in it"),
        SchemaColumn("left_out", "BIGINT", "number of them that are taken from elsewhere"),
    ),
)

METRIC_FILES = SchemaTable(
    "metric_files",
    "one file of samples next to the packets (docs/metrics.md)",
    (
        SchemaColumn("path", "VARCHAR", "absolute path"),
        SchemaColumn("size", "BIGINT", "bytes"),
        SchemaColumn("mtime_ns", "BIGINT", "last written, ns since 1970; 0 if there is more to read"),
        SchemaColumn("run_id", "VARCHAR", "from its header; null if it has none"),
        SchemaColumn("every_s", "INTEGER", "seconds that each of its samples covers"),
        SchemaColumn("read_bytes", "BIGINT", "bytes read so far"),
        SchemaColumn("samples", "BIGINT", "number of samples read"),
        SchemaColumn("refused_lines", "BIGINT", "lines that are no samples"),
        SchemaColumn("fault", "VARCHAR", "why the file was refused as a whole"),
    ),
)

_PLACES = frozenset({"node_rank", "rank", "gpu", "local_rank"})
_COLUMN_TYPES: Mapping[type, str] = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


def _column_type(name: str, hint: Any) -> str:
    """Return the DuckDB type of a sample's field, ignoring None."""
    if name in _PLACES:
        return "INTEGER"
    held = [part for part in (get_args(hint) or (hint,)) if part is not type(None)]
    return "VARCHAR[]" if get_origin(hint) is tuple else _COLUMN_TYPES[held[0]]


def _sample_table(name: str, rows: str, kind: type[Sample]) -> SchemaTable:
    """Return the table for one kind of sample: its fields, ``at_ns`` as a time, and the file it comes
    from.
    """
    hints = get_type_hints(kind)
    fields = [
        SchemaColumn(field, _column_type(field, hints[field]), meaning)
        for field, (meaning, _) in sample_fields(kind).items()
        if field != "at_ns"
    ]
    return SchemaTable(
        name,
        rows,
        (
            SchemaColumn("run_id", "VARCHAR", "which run"),
            SchemaColumn(
                "sampled_at", "TIMESTAMP", "time, UTC; by the aggregator's clock if offsets are known"
            ),
            *fields,
            SchemaColumn("every_s", "INTEGER", "seconds that it covers"),
            SchemaColumn("path", "VARCHAR", "the file that it comes from, see `metric_files`"),
        ),
    )


SAMPLE_TABLES: Mapping[type[Sample], SchemaTable] = {
    NodeSample: _sample_table("node_samples", "one node at one moment", NodeSample),
    GpuSample: _sample_table("gpu_samples", "one GPU of a node at one moment, as NVML reports", GpuSample),
    ProcessSample: _sample_table("process_samples", "the process of one rank at one moment", ProcessSample),
    PaceSample: _sample_table("pace_samples", "the steps that one rank finished in one interval", PaceSample),
    LinkSample: _sample_table("link_samples", "the connection of one rank at one moment", LinkSample),
    StandstillSample: _sample_table(
        "standstill_samples", "a standstill of a job as it began, changed or ended", StandstillSample
    ),
    AggregatorSample: _sample_table(
        "aggregator_samples", "what the aggregator has received and refused", AggregatorSample
    ),
}

TABLES = (
    *(STORE_INFO, MEANINGS, PACKETS, QUARANTINE, CONFLICTS),
    *(WINDOWS, STAGES, RUN_REFERENCES, VERDICT_FILES, METRIC_FILES),
    *SAMPLE_TABLES.values(),
)

CELLS = SchemaTable(
    "cells",
    "one row of a packet that is shown: one step of one rank (a view over the packet files themselves)",
    (
        SchemaColumn("run_id", "VARCHAR", "which run"),
        SchemaColumn("window", "BIGINT", "which window of it; a keyword, so quote it"),
        SchemaColumn("path", "VARCHAR", "the packet file"),
    ),
)
"""The view's own columns. The packets' columns follow, as packet.md names them."""
