"""Query the store for lists of windows. Every value is bound, and sort columns come from a fixed list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow

from sfapp.errors import StoreError
from sfapp.store.database import Database, rows_of
from sfapp.store.schema import WINDOWS, quote_identifier
from sfapp.store.window_search import searched

_UNLISTED = frozenset({"diagnosis", "verdict_hash"})
_UNSORTABLE = _UNLISTED | {"shares", "carry_over_shares"}
SORTABLE = tuple(name for name in WINDOWS.names if name not in _UNSORTABLE)
"""Columns of ``windows`` that a query may sort by."""

WORST_FIRST = (("lacks_data", "desc"), ("severity", "desc"))
"""Default order: windows that lack data first, then by severity."""

LISTED = tuple(name for name in WINDOWS.names if name not in _UNLISTED)
"""Columns of the rows of a list."""

_ROW = ", ".join(map(quote_identifier, LISTED))

_ROWS_OF_A_PART = 2000


@dataclass(frozen=True, slots=True)
class WindowQuery:
    """Filters, order and page of a query for windows. Filters that are None accept everything.

    Attributes:
        run: exactly this run. runs: any of these.
        label: windows with this label.
        stage: windows whose suspect stage or routing set is or contains it.
        text: windows whose row shows all words of this text; case does not matter.
        min_severity: windows at least this severe.
        needs_attention: windows that need attention or lack data, or those that do neither.
        first, last: (run, window) at both ends, included, in the order of ``timeline``.
        sort: (column, "asc" or "desc"), most important first. Windows without a value come last in either
            direction; ties are sorted by run and window.
        offset, limit: the page.
    """

    run: str | None = None
    label: str | None = None
    stage: str | None = None
    text: str | None = None
    min_severity: float | None = None
    needs_attention: bool | None = None
    first: tuple[str, int] | None = None
    last: tuple[str, int] | None = None
    sort: tuple[tuple[str, str], ...] = WORST_FIRST
    offset: int = 0
    limit: int = 100
    runs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class WindowRows:
    """One page of windows.

    Attributes:
        rows: a dict per window with all columns of ``windows`` except ``diagnosis``.
        total: number of windows that match.
    """

    rows: list[dict[str, Any]]
    total: int


def windows(database: Database, query: WindowQuery) -> WindowRows:
    """Return one page of the windows that match.

    Raises:
        StoreError: a sort column or direction does not exist, or offset or limit is negative.
    """
    if query.offset < 0 or query.limit < 0:
        raise StoreError(f"offset {query.offset} and limit {query.limit} must not be negative")
    order = _order(query.sort)
    where, parameters = _filters(query)
    columns = dict.fromkeys(("run_id", "window", *(column for column, _ in query.sort)))
    keys = ", ".join(map(quote_identifier, columns))
    # Filters are evaluated once, because a search takes long. Rows are wide: only those of the page are read.
    with database.cursor() as cursor:
        cursor.begin()  # so that both queries see one state
        found = cursor.execute(
            f"""
            WITH found AS MATERIALIZED (
                SELECT rowid AS place, {keys} FROM windows WHERE {where}
            ), page AS (
                SELECT place FROM found ORDER BY {order} LIMIT $limit OFFSET $offset
            )
            SELECT (SELECT count(*) FROM found), (SELECT list(place) FROM page)
            """,
            {**parameters, "limit": query.limit, "offset": query.offset},
        ).fetchall()
        total, places = found[0]
        listed = cursor.execute(
            f"SELECT {_ROW} FROM windows WHERE rowid IN (SELECT unnest($places::BIGINT[])) ORDER BY {order}",
            {"places": places or []},
        )
        rows = [aware(row) for row in rows_of(listed)]
        cursor.rollback()
    return WindowRows(rows, total)


def window_parts(database: Database, query: WindowQuery) -> Iterator[list[dict[str, Any]]]:
    """Find all windows that match now, and return an iterator of their rows, in order, a part at a time.

    Windows that are removed before their part is read are left out. No query runs between two parts, because
    the reader may be slow.

    Raises:
        StoreError: a sort column or direction does not exist.
    """
    where, parameters = _filters(query)
    order = _order(query.sort)
    with database.cursor() as cursor:
        found = cursor.sql(
            f'SELECT run_id, "window" FROM windows WHERE {where} ORDER BY {order}', params=parameters
        ).to_arrow_table()
    return _parts(database, found, order)


def _parts(database: Database, keys: pyarrow.Table, order: str) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(keys), _ROWS_OF_A_PART):
        with database.cursor() as cursor:
            cursor.register("asked", keys.slice(start, _ROWS_OF_A_PART))
            listed = cursor.execute(
                f'SELECT {_ROW} FROM windows SEMI JOIN asked USING (run_id, "window") ORDER BY {order}'
            )
            rows = rows_of(listed)
        yield [aware(row) for row in rows]


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Windows of a run or of all runs.

    Attributes:
        windows, runs: how many there are. slow, incomplete: windows that need attention, and that lack data.
        worst: ``run_id``, ``window``, ``aim_stage`` and ``aim_rank`` of the most severe one that needs
            attention; None if there is none.
        stages: that occur in any window of the store.
    """

    windows: int
    runs: int
    slow: int
    incomplete: int
    worst: dict[str, Any] | None
    stages: tuple[str, ...]


def counts(database: Database, run: str | None) -> WindowCounts:
    """Return how many windows there are of a run or of all runs, and the worst one."""
    ((windows, runs, slow, incomplete, worst),) = database.tuples(
        """
        SELECT count(*), count(DISTINCT run_id), count(*) FILTER (needs_attention),
            count(*) FILTER (lacks_data),
            arg_max({'run_id': run_id, 'window': "window", 'aim_stage': aim_stage, 'aim_rank': aim_rank},
                coalesce(severity, 0.0)) FILTER (needs_attention)
        FROM windows WHERE $run IS NULL OR run_id = $run
        """,
        {"run": run},
    )
    stages = database.tuples("SELECT stage FROM stages GROUP BY stage ORDER BY min(position), stage")
    return WindowCounts(windows, runs, slow, incomplete, worst, tuple(stage for (stage,) in stages))


def timeline(
    database: Database, query: WindowQuery, latest: int | None = None, *, is_sorted: bool = False
) -> list[dict[str, Any]]:
    """Return what an overview plots of every window that matches, or of the latest, by run and window.

    ``shares`` are the carry-over shares where they exist: the suspect is chosen by them, and they add up to
    ``step_time_ns``. Step-aligned shares would show a late optimizer as backward.

    Args:
        is_sorted: in the order of the query instead, of which the first so many are returned.
    """
    where, parameters = _filters(query)
    order = _order(query.sort) if is_sorted else 'run_id, "window"'
    kept = order if is_sorted else 'started_at DESC NULLS LAST, "window" DESC, run_id'
    rows = database.rows(
        f"""
        SELECT run_id, "window", started_at, ended_at, first_step, last_step, step_mean_ns AS step_time_ns,
            map_values(coalesce(carry_over_shares, shares)) AS shares,
            label, change, severity, needs_attention, aim_stage, aim_rank, aim_hostname, culprit_kind,
            is_reference,
            len(missing_ranks) AS missing_ranks, missing_ranks[1] AS first_missing_rank, lacks_data,
            stages
        FROM windows WHERE rowid IN (SELECT rowid FROM windows WHERE {where} ORDER BY {kept} LIMIT $latest)
        ORDER BY {order}
        """,
        {**parameters, "latest": latest},
    )
    # DuckDB takes three times as long to return maps as lists.
    for row in rows:
        names = row.pop("stages")
        row["shares"] = None if row["shares"] is None else dict(zip(names, row["shares"], strict=False))
    return [aware(row) for row in rows]


def _filters(query: WindowQuery) -> tuple[str, dict[str, Any]]:
    """Return the WHERE clause and the values it binds."""
    conditions = {
        "run": "run_id = $run",
        "runs": "list_contains($runs, run_id)",
        "label": "list_contains(labels, $label)",
        "stage": "(aim_stage = $stage OR list_contains(routing_set, $stage))",
        "min_severity": "severity >= $min_severity",
        "needs_attention": "(needs_attention OR lacks_data) = $needs_attention",
    }
    asked = {name: getattr(query, name) for name in conditions}
    parameters = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asked.items()
        if value is not None
    }
    clauses = [conditions[name] for name in parameters]
    if query.text is not None:
        found, values = searched(query.text)
        clauses += found
        parameters |= values
    for name, key, beyond in (("first", query.first, ">"), ("last", query.last, "<")):
        if key is not None:
            clauses.append(
                f"(run_id {beyond} ${name}_run"
                f' OR (run_id = ${name}_run AND "window" {beyond}= ${name}_window))'
            )
            parameters |= {f"{name}_run": key[0], f"{name}_window": key[1]}
    return " AND ".join(clauses) or "true", parameters


def _order(sort: tuple[tuple[str, str], ...]) -> str:
    terms = []
    for column, direction in sort:
        if column not in SORTABLE:
            raise StoreError(f"windows cannot be sorted by {column!r}; there are: {', '.join(SORTABLE)}")
        if direction not in ("asc", "desc"):
            raise StoreError(f"a sort direction is 'asc' or 'desc', not {direction!r}")
        terms.append(f"{quote_identifier(column)} {direction} NULLS LAST")
    return ", ".join([*terms, "run_id", '"window"'])


def aware_time(value: datetime | None) -> datetime | None:
    """Return a time marked as UTC: DuckDB returns it without a time zone."""
    return None if value is None else value.replace(tzinfo=UTC)


def aware(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its times marked as UTC."""
    return {name: aware_time(value) if isinstance(value, datetime) else value for name, value in row.items()}
