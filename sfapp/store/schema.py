"""The store's tables, once: the DDL, the Arrow schema of what is inserted and the reference in docs/store.md
all come from here (a test keeps the document in step).
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
    sample_fields,
)

SCHEMA_VERSION = 7
"""Grows with every change of a table and of what a diagnosis in it says: another version is built again."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its DuckDB type, and what it holds."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the store. ``rows`` says what one row is."""

    name: str
    rows: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def ddl(self) -> str:
        """The statements that create the table and describe it to whoever opens the file with plain SQL."""
        body = ", ".join(f"{quoted(column.name)} {column.type}" for column in self.columns)
        described = [f"COMMENT ON TABLE {self.name} IS {literal(self.rows)}"]
        described += [
            f"COMMENT ON COLUMN {self.name}.{quoted(column.name)} IS {literal(column.meaning)}"
            for column in self.columns
        ]
        return "; ".join([f"CREATE TABLE {self.name} ({body})", *described])

    def arrow(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows, each with a value for every column, as an Arrow table in this table's order and types."""
        columns = zip(*map(itemgetter(*self.names), rows), strict=True) if rows else [()] * len(self.columns)
        return self.arrow_columns(dict(zip(self.names, columns, strict=True)))

    def arrow_columns(self, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
        """The same from whole columns."""
        return pa.table(
            {column.name: pa.array(columns[column.name], type=_ARROW[column.type]) for column in self.columns}
        )


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """An SQL string, for the statements that take no bound parameter (views, comments)."""
    return "'" + text.replace("'", "''") + "'"


_ARROW: Mapping[str, pa.DataType] = {
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "INTEGER": pa.int32(),
    "INTEGER[]": pa.list_(pa.int32()),
    "JSON": pa.string(),
    "MAP(VARCHAR, DOUBLE)": pa.map_(pa.string(), pa.float64()),
    "TIMESTAMP": pa.timestamp("us"),
    "VARCHAR": pa.string(),
    "VARCHAR[]": pa.list_(pa.string()),
}

STORE_INFO = Table(
    "store_info",
    "one fact about the store file itself",
    (
        Column("key", "VARCHAR", "`schema_version` or `sfapp_version`"),
        Column("value", "VARCHAR", "its value"),
    ),
)

PACKETS = Table(
    "packets",
    "one packet file that was read and found in order",
    (
        Column("path", "VARCHAR", "absolute path"),
        Column("size", "BIGINT", "bytes"),
        Column("mtime_ns", "BIGINT", "last written, ns since 1970"),
        Column("sha256", "VARCHAR", "of the file, hex"),
        Column("run_id", "VARCHAR", "from the manifest"),
        Column("window", "BIGINT", "number of the window in its run; a keyword, so quote it"),
        Column("part_rank", "INTEGER", "the rank whose part of a window this is, null for a whole window"),
        Column(
            "state",
            "VARCHAR",
            "`shown`: the window is made of it; `redundant`: says what a shown file says; "
            "`set_aside`: lost a conflict, see `conflicts`",
        ),
    ),
)

QUARANTINE = Table(
    "quarantine",
    "one file that was refused",
    (
        Column("path", "VARCHAR", "absolute path"),
        Column("size", "BIGINT", "bytes"),
        Column("mtime_ns", "BIGINT", "last written, ns since 1970; it is read again once this changes"),
        Column("sha256", "VARCHAR", "of the file, hex; empty if it could not be read"),
        Column("reason", "VARCHAR", "the first fault, with row and column where it lies in them"),
    ),
)

WINDOWS = Table(
    "windows",
    "one window, diagnosed over all its ranks with the default gates",
    (
        Column("run_id", "VARCHAR", "which run"),
        Column("window", "BIGINT", "which window of it; a keyword, so quote it"),
        Column("started_at", "TIMESTAMP", "UTC, by the writing rank's clock; display only"),
        Column("ended_at", "TIMESTAMP", "UTC, by the writing rank's clock; display only"),
        Column("closed_by", "VARCHAR", "why the window ended"),
        Column("wrapper", "VARCHAR", "`ddp`, `fsdp2`, …"),
        Column("first_step", "BIGINT", "first logical step"),
        Column("last_step", "BIGINT", "last logical step"),
        Column("steps", "BIGINT", "how many steps"),
        Column("ranks", "INTEGER", "how many ranks have rows"),
        Column("nodes", "INTEGER", "how many nodes they ran on"),
        Column("world_size", "INTEGER", "ranks expected"),
        Column("missing_ranks", "INTEGER[]", "expected, not in the rows"),
        Column("gather_ok", "BOOLEAN", "whether the window's gather completed"),
        Column("step_mean_ns", "DOUBLE", "mean exposed step (carry-over where defined), ns"),
        Column("step_p50_ns", "DOUBLE", "median of F[S,t], ns"),
        Column("step_p95_ns", "DOUBLE", "95th percentile of F[S,t], ns"),
        Column("exposed_makespan_ns", "BIGINT", "Σ_t F[S,t], ns"),
        Column("stages", "VARCHAR[]", "broad stages in order"),
        Column("recorded_stages", "VARCHAR[]", "stages as recorded, in order"),
        Column("shares", "MAP(VARCHAR, DOUBLE)", "A by broad stage; null below the denominator floor"),
        Column("carry_over_shares", "MAP(VARCHAR, DOUBLE)", "A'; null where steps are not consecutive too"),
        Column("top_stage", "VARCHAR", "s1, the stage with the largest share"),
        Column("top_share", "DOUBLE", "its share"),
        Column("routing_set", "VARCHAR[]", "C_route, largest share first"),
        Column("co_critical_stages", "VARCHAR[]", "the ambiguity set"),
        Column("label", "VARCHAR", "the one label to show where there is room for one"),
        Column("labels", "VARCHAR[]", "every label, in the order decided"),
        Column("reasons", "VARCHAR[]", "every reason, of labels and of none"),
        Column("leader_rank", "INTEGER", "the rank that leads the top stage most often"),
        Column("leader_hostname", "VARCHAR", "its host"),
        Column("leader_share", "DOUBLE", "part of the eligible steps that it leads"),
        Column("own_wait_stages", "VARCHAR[]", "recorded stages that ranks wait in by the window's own fit"),
        Column("own_boundary", "VARCHAR", "of these the one at whose end ranks meet best"),
        Column("met_boundary", "VARCHAR", "the same by the fit from meeting to meeting, where there is none"),
        Column("sync_boundary", "VARCHAR", "the same, as the run's windows together have it"),
        Column("culprit_kind", "VARCHAR", "`chronic`, `rotating`, `periodic`, `one-off`, `mixed`, `none`"),
        Column("culprit_rank", "INTEGER", "its most frequent leader"),
        Column("culprit_hostname", "VARCHAR", "its host"),
        Column("culprit_share", "DOUBLE", "part of the eligible steps that it leads"),
        Column("culprit_period", "INTEGER", "spacing in steps, where periodic"),
        Column("aim_stage", "VARCHAR", "where to look first"),
        Column("aim_basis", "VARCHAR", "`delta`, `excess` or `share`"),
        Column("aim_rank", "INTEGER", "the rank to look at, null where none stands out"),
        Column("aim_hostname", "VARCHAR", "its host"),
        Column("aim_rank_reason", "VARCHAR", "why no rank is named"),
        Column("exposed_imbalance", "DOUBLE", "Σ_s X'[s], as a share"),
        Column("change", "DOUBLE", "of the mean step against the run's reference; 0.1 = 10 % longer"),
        Column("severity", "DOUBLE", "what windows are ranked by; quiet below 0.05"),
        Column("complete", "BOOLEAN", "whether it may serve as the run's reference"),
        Column("reference_window", "BIGINT", "the window of the run it was compared with"),
        Column("is_reference", "BOOLEAN", "whether it is that window itself"),
        Column("diagnosis", "JSON", "the whole diagnosis, reloaded exactly from here"),
    ),
)

STAGES = Table(
    "stages",
    "one broad stage of one window",
    (
        Column("run_id", "VARCHAR", "which run"),
        Column("window", "BIGINT", "which window of it; a keyword, so quote it"),
        Column("stage", "VARCHAR", "which stage"),
        Column("position", "INTEGER", "its place in the stage order, from 0"),
        Column("advance_ns", "BIGINT", "Σ_t a[s,t], ns"),
        Column("share", "DOUBLE", "A[s]; null below the denominator floor, as all that follow"),
        Column("carry_over_share", "DOUBLE", "A'[s]; null where steps are not consecutive"),
        Column("static_gain", "DOUBLE", "G[s]"),
        Column("excess", "DOUBLE", "X[s]"),
        Column("carry_over_excess", "DOUBLE", "X'[s]"),
        Column("takeover", "DOUBLE", "T[s]: change of its share when the top stage is clipped"),
        Column("delta_ns", "DOUBLE", "mean advance a step above the reference's, ns"),
        Column("in_routing_set", "BOOLEAN", "whether it is in C_route"),
        Column("co_critical", "BOOLEAN", "whether it is in the ambiguity set"),
    ),
)

RUN_REFERENCES = Table(
    "run_references",
    "one run that has a healthy window, which all its windows are compared with",
    (
        Column("run_id", "VARCHAR", "which run"),
        Column("reference_window", "BIGINT", "its healthy window; null while that is being read anew"),
        Column("chosen", "BOOLEAN", "picked by hand rather than measured"),
        Column("reference", "JSON", "what that window contributes"),
    ),
)

CONFLICTS = Table(
    "conflicts",
    "one file that takes part in a conflict over one window",
    (
        Column("run_id", "VARCHAR", "which run"),
        Column("window", "BIGINT", "which window of it; a keyword, so quote it"),
        Column("reason", "VARCHAR", "what differs and what is shown"),
        Column("path", "VARCHAR", "absolute path"),
        Column("size", "BIGINT", "bytes"),
        Column("sha256", "VARCHAR", "of the file, hex"),
        Column("shown", "BOOLEAN", "whether the window is made of this file"),
    ),
)

METRIC_FILES = Table(
    "metric_files",
    "one file of samples beside the packets (docs/metrics.md)",
    (
        Column("path", "VARCHAR", "absolute path"),
        Column("size", "BIGINT", "bytes"),
        Column("mtime_ns", "BIGINT", "last written, ns since 1970; 0 where there is more to read"),
        Column("run_id", "VARCHAR", "from its header; null where it has none"),
        Column("every_s", "INTEGER", "how many seconds each of its samples stands for"),
        Column("read_bytes", "BIGINT", "how far it was read"),
        Column("samples", "BIGINT", "how many there were"),
        Column("refused_lines", "BIGINT", "lines that are no samples"),
        Column("fault", "VARCHAR", "why the file was refused as a whole"),
    ),
)

_PLACES = frozenset({"node_rank", "rank", "gpu", "local_rank"})
_COLUMN_TYPES: Mapping[type, str] = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


def _column_type(name: str, hint: Any) -> str:
    """The DuckDB type of a field: of what it holds where it is not None."""
    if name in _PLACES:
        return "INTEGER"
    held = [part for part in (get_args(hint) or (hint,)) if part is not type(None)]
    return "VARCHAR[]" if get_origin(hint) is tuple else _COLUMN_TYPES[held[0]]


def _sample_table(name: str, rows: str, kind: type[Sample]) -> Table:
    """A table for one kind of sample: its fields, ``at_ns`` as a time, and where it is from."""
    hints = get_type_hints(kind)
    fields = [
        Column(field, _column_type(field, hints[field]), meaning)
        for field, (meaning, _) in sample_fields(kind).items()
        if field != "at_ns"
    ]
    return Table(
        name,
        rows,
        (
            Column("run_id", "VARCHAR", "which run"),
            Column("sampled_at", "TIMESTAMP", "when, UTC; by the aggregator's clock where offsets are known"),
            *fields,
            Column("every_s", "INTEGER", "how many seconds it stands for"),
            Column("path", "VARCHAR", "the file it is from, see `metric_files`"),
        ),
    )


SAMPLE_TABLES: Mapping[type[Sample], Table] = {
    NodeSample: _sample_table("node_samples", "one node at one moment", NodeSample),
    GpuSample: _sample_table("gpu_samples", "one GPU of a node at one moment, as NVML says", GpuSample),
    ProcessSample: _sample_table("process_samples", "the process of one rank at one moment", ProcessSample),
    PaceSample: _sample_table(
        "pace_samples", "the steps that one rank finished in one stretch of time", PaceSample
    ),
    LinkSample: _sample_table("link_samples", "how one rank is heard of, at one moment", LinkSample),
    AggregatorSample: _sample_table(
        "aggregator_samples", "what the aggregator has taken and refused", AggregatorSample
    ),
}

TABLES = (
    *(STORE_INFO, PACKETS, QUARANTINE, CONFLICTS, WINDOWS, STAGES, RUN_REFERENCES, METRIC_FILES),
    *SAMPLE_TABLES.values(),
)

CELLS = Table(
    "cells",
    "one row of a packet that is shown: one step of one rank (a view over the packet files themselves)",
    (
        Column("run_id", "VARCHAR", "which run"),
        Column("window", "BIGINT", "which window of it; a keyword, so quote it"),
        Column("path", "VARCHAR", "the packet file"),
    ),
)
"""Its own columns; those of the packets follow, as packet.md names them."""
