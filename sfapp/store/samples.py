"""Read sample files into the store as they grow, and query them (docs/metrics.md).

Like a packet, a file is recognised by path, size and modification time. A file that has only grown is read
from where the last reading ended. A downsampled file has another header and replaces its earlier samples.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.errors import MetricsError, StoreError
from sfapp.files import modified_ns
from sfapp.metrics import SampleChunk, SampleFileHeader, find_folders, read_header, read_segment, segments_in
from sfapp.model.samples import (
    SUBJECTS,
    Aggregation,
    AnySample,
    PaceSample,
    Sample,
    StandstillSample,
    sample_fields,
)
from sfapp.storage import as_text
from sfapp.store.bulk_insert import insert
from sfapp.store.database import Cursor, Database
from sfapp.store.scan import is_below
from sfapp.store.schema import METRIC_FILES, SAMPLE_TABLES, SchemaTable, quote_identifier

Row = dict[str, Any]

MOST_SUBJECTS = 2**20
"""Largest number of subjects whose samples are returned: a file may name any number of ranks."""

_UNREAD: Row = {"size": -1, "mtime_ns": 0, "run_id": None, "every_s": None, "read_bytes": 0}


_FIND_COST = 20
"""Multiple of the search time between two searches for folders, so that searches take at most a twentieth of
the time: they are slow among many packets of other runs, and new folders are rare."""


class SampleFollower:
    """Reader of sample files as they grow; one call at a time."""

    def __init__(self, database: Database, roots: Sequence[Path]) -> None:
        self._database = database
        self._roots = roots
        self._lock = threading.Lock()
        self._folders: list[Path] = []
        self._next_find = 0.0

    def follow(self, look_everywhere: bool = False) -> int:
        """Read new samples and return their number. A root that is absent keeps its samples.

        Args:
            look_everywhere: search for new folders too, which may take long.

        Raises:
            StoreError: the store cannot be written. A bad file never raises.
        """
        with self._lock:
            present = [root for root in self._roots if root.exists()]
            begin = time.monotonic()
            if look_everywhere or begin >= self._next_find:
                self._folders = find_folders(present)
                end = time.monotonic()
                self._next_find = end + _FIND_COST * (end - begin)
            absent = [str(root) for root in self._roots if root not in present]
            return _follow(self._database, segments_in(self._folders), absent)


def _follow(database: Database, paths: Sequence[Path], absent: Sequence[str]) -> int:
    known = {row["path"]: row for row in database.rows("SELECT * FROM metric_files")}
    found = {as_text(path): path for path in paths}
    added = 0
    for name, path in found.items():
        try:
            status = path.stat()
            stamp = {"size": status.st_size, "mtime_ns": modified_ns(status)}
            before = known.get(name, _UNREAD)
            if stamp.items() <= before.items():
                continue
            added += _read(database, path, before | {"path": name}, stamp)
        except OSError:  # The file has disappeared, or may not be read.
            continue
    for name in known.keys() - found.keys():
        if not any(is_below(name, root) for root in absent):
            with database.transaction(counted=False) as cursor:
                _remove_rows(cursor, name)
    return added


def _read(database: Database, path: Path, before: Row, stamp: dict[str, int]) -> int:
    """Synchronise one file's rows with it and return the number of samples read."""
    try:
        header = read_header(path)
    except MetricsError as error:
        _refuse(database, before["path"], stamp, str(error))
        return 0
    if header is None:
        return 0
    grown = (header.run_id, header.every_s) == (before["run_id"], before["every_s"])
    grown = grown and before["read_bytes"] <= stamp["size"]
    begin = before["read_bytes"] if grown else 0
    row = before if grown else before | {"samples": 0, "refused_lines": 0}
    added = 0
    while (chunk := read_segment(path, begin)) is not None and chunk.header == header:
        row = row | {
            **(stamp if chunk.is_last else {"size": chunk.end, "mtime_ns": 0}),
            "run_id": header.run_id,
            "every_s": header.every_s,
            "read_bytes": chunk.end,
            "samples": row["samples"] + len(chunk.samples),
            "refused_lines": row["refused_lines"] + chunk.refused,
            "fault": None,
        }
        _commit(database, row, chunk, anew=begin == 0)
        added += len(chunk.samples)
        begin = chunk.end
        if chunk.is_last:
            break
    return added


def _commit(database: Database, row: Row, chunk: SampleChunk, *, anew: bool) -> None:
    has_standstill = any(isinstance(sample, StandstillSample) for sample in chunk.samples)  # A problem.
    with database.transaction(counted=has_standstill) as cursor:
        if anew:
            _remove_rows(cursor, row["path"])
        cursor.execute("DELETE FROM metric_files WHERE path = ?", [row["path"]])
        insert(cursor, METRIC_FILES, METRIC_FILES.arrow([row]))
        for kind, table in SAMPLE_TABLES.items():
            of_kind = [sample for sample in chunk.samples if type(sample) is kind]
            if of_kind:
                insert(
                    cursor, table, table.arrow_columns(_columns(table, of_kind, chunk.header, row["path"]))
                )


def _refuse(database: Database, name: str, stamp: dict[str, int], fault: str) -> None:
    row = _UNREAD | stamp | {"path": name, "samples": 0, "refused_lines": 0, "fault": fault}
    with database.transaction(counted=False) as cursor:
        _remove_rows(cursor, name)
        insert(cursor, METRIC_FILES, METRIC_FILES.arrow([row]))


def _remove_rows(cursor: Cursor, name: str) -> None:
    for table in (METRIC_FILES, *SAMPLE_TABLES.values()):
        cursor.execute(f"DELETE FROM {table.name} WHERE path = ?", [name])


def _columns(
    table: SchemaTable, samples: Sequence[AnySample], header: SampleFileHeader, name: str
) -> dict[str, Sequence[Any]]:
    count = len(samples)
    own: dict[str, Sequence[Any]] = {
        "run_id": [header.run_id] * count,
        "sampled_at": [sample.at_ns // 1000 for sample in samples],  # Microseconds, as in the column.
        "every_s": [header.every_s] * count,
        "path": [name] * count,
    }
    return {
        column: own[column] if column in own else [getattr(sample, column) for sample in samples]
        for column in table.names
    }


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """Samples of a run to return. Filters that are None accept everything.

    Attributes:
        kind: ``NodeSample``, ``GpuSample``, ``ProcessSample`` or ``PaceSample``.
        node, gpu, rank: only these subjects, if samples of the kind have them.
        since, until: first and last moment, both included.
        points: largest number of points per subject; more samples are downsampled.
    """

    kind: type[Sample]
    run: str
    node: int | None = None
    gpu: int | None = None
    rank: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    points: int = 600


def series(database: Database, query: SampleQuery) -> list[Row]:
    """Return the samples that match, by subject and time.

    Each row has the kind's fields, with ``sampled_at`` for ``at_ns``, and ``every_s``. Downsampling follows
    the same rules as with age.

    Raises:
        StoreError: a kind or subject does not exist, or fewer than one point is requested.
    """
    table = _table(query.kind)
    if query.points < 1:
        raise StoreError(f"a series of {query.points} points: ask for at least one")
    where, parameters = _filters(query, table)
    ((first, last),) = database.tuples(
        f"SELECT min(sampled_at), max(sampled_at) FROM {table.name} WHERE {where}", parameters
    )
    if first is None:
        return []
    every_s = max(1, math.ceil((last - first).total_seconds() / query.points))
    subjects = ", ".join(map(quote_identifier, SUBJECTS[query.kind]))
    rows = database.rows(
        f"""
        SELECT max(sample.sampled_at) AS sampled_at, {_downsampled(query.kind)},
            greatest(max(every_s), $every_s) AS every_s
        FROM {table.name} AS sample WHERE {where}
        GROUP BY {subjects}, time_bucket(to_seconds($every_s), sample.sampled_at)
        ORDER BY {subjects}, sampled_at
        """,
        {**parameters, "every_s": every_s},
    )
    return [_aware(row) for row in rows]


def newest(
    database: Database,
    kind: type[Sample],
    run: str,
    until: datetime | None = None,
    since: datetime | None = None,
    node: int | None = None,
    most: int = MOST_SUBJECTS,
) -> list[Row]:
    """Return the newest sample of every subject of a run or node, with the fields of ``series``.

    Args:
        until: newest at this moment.
        since: leave out subjects without a sample after this moment.
        most: number of subjects; those with the newest samples.

    Raises:
        StoreError: a kind of sample does not exist.
    """
    table = _table(kind)
    where, parameters = _filters(SampleQuery(kind, run, node, since=since, until=until), table)
    subjects = ", ".join(map(quote_identifier, SUBJECTS[kind]))
    shown = [quote_identifier(name) for name in table.names if name not in ("run_id", "path")]
    fields = ", ".join(f"{name}: {name}" for name in shown)
    # Not by a window function: DuckDB keeps the handles of its buffers, 4 kB a call, until it has thousands.
    rows = database.rows(
        f"""
        FROM (
            SELECT unnest(found) FROM (
                SELECT arg_max({{{fields}}}, sampled_at) AS found
                FROM {table.name} AS sample WHERE {where} GROUP BY {subjects}
            ) ORDER BY found.sampled_at DESC LIMIT $most
        ) ORDER BY {subjects}
        """,
        {**parameters, "most": most},
    )
    return [_aware(row) for row in rows]


Paces = dict[str, npt.NDArray[Any]]
"""Pace of ranks in the order of time, an array per column: ``at_us`` (since 1970), ``rank``, ``step``,
``steps`` (int64) and ``wall_mean_ns`` (float64)."""

_OVERLAP = timedelta(seconds=1)
"""Overlap with an earlier result: samples of one second may be read in two portions."""


def paces(database: Database, query: SampleQuery, known: Paces | None = None) -> Paces:
    """Return the pace samples that match, not downsampled.

    Args:
        known: an earlier result of the same query; only later samples are read from the store.
    """
    if known is None or not len(known["at_us"]):
        return _paces(database, query)
    overlap_start = _EPOCH + timedelta(microseconds=int(known["at_us"][-1])) - _OVERLAP
    since = overlap_start if query.since is None else max(overlap_start, query.since.astimezone(UTC))
    first_us = -(2**63) if query.since is None else _microseconds(query.since)
    kept = slice(*np.searchsorted(known["at_us"], [first_us, _microseconds(since)]))
    fresh = _paces(database, replace(query, since=since))
    return {name: np.concatenate([known[name][kept], fresh[name]]) for name in fresh}


def _paces(database: Database, query: SampleQuery) -> Paces:
    where, parameters = _filters(query, SAMPLE_TABLES[PaceSample])
    with database.cursor() as cursor:
        found: Paces = cursor.execute(
            f"""
            SELECT epoch_us(sampled_at) AS at_us, rank::BIGINT AS rank, step, steps, wall_mean_ns
            FROM pace_samples AS sample WHERE {where} ORDER BY sampled_at, step
            """,
            parameters,
        ).fetchnumpy()
    return found


def _stored(moment: datetime) -> datetime:
    """Return a moment as the store holds it."""
    return moment.astimezone(UTC).replace(tzinfo=None)


_EPOCH = datetime.fromtimestamp(0, UTC)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def live_runs(database: Database, since: datetime | None = None) -> list[Row]:
    """Return every streamed run, the last one that reported first: ``run_id``, ``sampled_at``, ``ranks``,
    ``nodes`` and ``left``, the number of ranks that have disconnected.

    Args:
        since: leave out ranks without a sample after this moment.
    """
    rows = database.rows(
        """
        SELECT run_id, max(sampled_at) AS sampled_at, count(*) AS ranks,
            len(list_distinct(list(node_rank))) AS nodes, count(*) FILTER (has_left) AS "left"
        FROM (
            SELECT run_id, max(sampled_at) AS sampled_at, arg_max_null(node_rank, sampled_at) AS node_rank,
                arg_max_null(has_left, sampled_at) AS has_left
            FROM link_samples WHERE $since IS NULL OR sampled_at >= $since GROUP BY run_id, rank
        ) GROUP BY run_id ORDER BY sampled_at DESC, run_id
        """,
        {"since": None if since is None else _stored(since)},
    )
    return [_aware(row) for row in rows]


def _table(kind: type[Sample]) -> SchemaTable:
    if kind not in SAMPLE_TABLES:
        raise StoreError(
            f"no samples of {kind.__name__}: there are {', '.join(k.__name__ for k in SAMPLE_TABLES)}"
        )
    return SAMPLE_TABLES[kind]


def _filters(query: SampleQuery, table: SchemaTable) -> tuple[str, dict[str, Any]]:
    clauses = ["run_id = $run"]
    parameters: dict[str, Any] = {"run": query.run}
    for column, value in (("node_rank", query.node), ("gpu", query.gpu), ("rank", query.rank)):
        if value is not None:
            if column not in table.names:
                raise StoreError(f"{query.kind.__name__} is not of one {column}")
            clauses.append(f"{column} = ${column}")
            parameters[column] = value
    for name, beyond, moment in (("since", ">=", query.since), ("until", "<=", query.until)):
        if moment is not None:
            clauses.append(f"sampled_at {beyond} ${name}")
            parameters[name] = _stored(moment)
    return " AND ".join(clauses), parameters


@cache
def _downsampled(kind: type[Sample]) -> str:
    """Return the SQL that downsamples every field as ``sfapp.metrics.downsampling`` does."""
    weight = "steps" if kind is PaceSample else "every_s"
    sql: dict[Aggregation, str] = {
        "mean": f"sum(sample.{{0}} * {weight}) / sum({weight}) FILTER (sample.{{0}} IS NOT NULL)",
        "max": "max(sample.{0})",
        "sum": "sum(sample.{0})::BIGINT",
        "newest": "arg_max(sample.{0}, sample.sampled_at)",
        "union": "list_sort(list_distinct(flatten(list(sample.{0}))))",
    }
    subjects = SUBJECTS[kind]
    return ", ".join(
        quote_identifier(name)
        if name in subjects
        else f"{sql[aggregation].format(quote_identifier(name))} AS {quote_identifier(name)}"
        for name, (_, aggregation) in sample_fields(kind).items()
        if name != "at_ns"
    )


def _aware(row: Row) -> Row:
    return row | {"sampled_at": row["sampled_at"].replace(tzinfo=UTC)}
