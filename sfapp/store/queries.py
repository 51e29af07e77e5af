"""Query the store for pages. Every value is bound, and sort columns come from a fixed list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sfapp.errors import StoreError, WindowNotFoundError
from sfapp.model import LABELS, Diagnosis, Reference
from sfapp.model.problems import TimedDiagnosis
from sfapp.store.database import Database
from sfapp.store.schema import WINDOWS, quote_identifier
from sfapp.store.verdict_rows import decode_diagnosis, decode_reference

_UNSORTABLE = frozenset({"diagnosis", "shares", "carry_over_shares"})
SORTABLE = tuple(name for name in WINDOWS.names if name not in _UNSORTABLE)
"""Columns of ``windows`` that a query may sort by."""

WORST_FIRST = (("lacks_data", "desc"), ("severity", "desc"))
"""Windows of which nothing is known in part, then by severity."""

_ROW = ", ".join(quote_identifier(name) for name in WINDOWS.names if name != "diagnosis")
_SEARCHED = """concat_ws(
    chr(10), run_id, aim_stage, aim_hostname, top_stage, leader_hostname, array_to_string(labels, chr(10))
)"""


@dataclass(frozen=True, slots=True)
class WindowQuery:
    """Filters, order and page of a query for windows. Filters that are None accept everything.

    Attributes:
        run: exactly this run.
        label: windows with this label.
        stage: windows whose suspect stage or routing set is or contains it.
        text: windows with this text in run, labels, stages or hosts; case does not matter.
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


@dataclass(frozen=True, slots=True)
class WindowRows:
    """One page of windows.

    Attributes:
        rows: a dict per window with all columns of ``windows`` except ``diagnosis``.
        total: number of windows that match.
    """

    rows: list[dict[str, Any]]
    total: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Summary of one run; times are UTC."""

    run_id: str
    windows: int
    ranks: int
    nodes: int
    first_started_at: datetime | None
    newest_ended_at: datetime | None
    reference_window: int | None
    reference_chosen: bool
    worst_severity: float | None


@dataclass(frozen=True, slots=True)
class PacketSource:
    """A packet file that a window is built from."""

    path: Path
    size: int
    sha256: str
    part_rank: int | None = None


@dataclass(frozen=True, slots=True)
class QuarantinedFile:
    """A file that was refused. ``name`` is untrusted text; bytes that are not UTF-8 are escaped."""

    name: str
    size: int
    sha256: str
    reason: str
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class WindowConflict:
    """Files with different content for one window: those that are used and those set aside."""

    run_id: str
    window: int
    reason: str
    shown: tuple[PacketSource, ...]
    set_aside: tuple[PacketSource, ...]


def hostnames(database: Database) -> frozenset[str]:
    """Return every host that the packets name."""
    return frozenset(name for (name,) in database.tuples("SELECT DISTINCT unnest(hostnames) FROM packets"))


def runs(database: Database) -> list[RunSummary]:
    """Return every run, the one with the newest window first."""
    rows = database.rows(
        """
        SELECT run_id, count(*) AS windows, max(ranks) AS ranks, max(nodes) AS nodes,
            min(started_at) AS first_started_at, max(ended_at) AS newest_ended_at,
            any_value(run_references.reference_window) AS reference_window,
            coalesce(any_value(chosen), false) AS reference_chosen, max(severity) AS worst_severity
        FROM windows LEFT JOIN run_references USING (run_id)
        GROUP BY run_id ORDER BY newest_ended_at DESC NULLS LAST, run_id
        """
    )
    return [RunSummary(**_aware(row)) for row in rows]


def windows(database: Database, query: WindowQuery) -> WindowRows:
    """Return one page of the windows that match.

    Raises:
        StoreError: a sort column or direction does not exist, or offset or limit is negative.
    """
    if query.offset < 0 or query.limit < 0:
        raise StoreError(f"offset {query.offset} and limit {query.limit} must not be negative")
    order = _order(query.sort)
    where, parameters = _filters(query)
    total = database.tuples(f"SELECT count(*) FROM windows WHERE {where}", parameters)[0][0]
    rows = database.rows(
        f"SELECT {_ROW} FROM windows WHERE {where} ORDER BY {order} LIMIT $limit OFFSET $offset",
        {**parameters, "limit": query.limit, "offset": query.offset},
    )
    return WindowRows([_aware(row) for row in rows], total)


def timeline(database: Database, run: str | None, latest: int | None) -> list[dict[str, Any]]:
    """Return what an overview plots of every window of one or all runs, or of the latest, in order.

    ``shares`` are the carry-over shares where they exist: the suspect is chosen by them, and they add up to
    ``step_time_ns``. Step-aligned shares would show a late optimizer as backward.
    """
    rows = database.rows(
        """
        SELECT run_id, "window", started_at, first_step, last_step, step_mean_ns AS step_time_ns,
            map_values(coalesce(carry_over_shares, shares)) AS shares,
            label, severity, needs_attention, aim_stage, aim_rank, aim_hostname, culprit_kind, is_reference,
            len(missing_ranks) AS missing_ranks, missing_ranks[1] AS first_missing_rank, lacks_data,
            hash(stages) AS schema
        FROM (FROM windows WHERE $run IS NULL OR run_id = $run
              ORDER BY started_at DESC NULLS LAST, "window" DESC, run_id LIMIT $latest)
        ORDER BY run_id, "window"
        """,
        {"run": run, "latest": latest},
    )
    # Building the dicts here takes a third of the time: there are few names and many windows.
    stages = dict(database.tuples("SELECT DISTINCT hash(stages), stages FROM windows"))
    for row in rows:
        names = stages.get(row.pop("schema"), ())
        row["shares"] = None if row["shares"] is None else dict(zip(names, row["shares"], strict=False))
    return [_aware(row) for row in rows]


def diagnosis(database: Database, run: str, number: int) -> Diagnosis:
    """Return a stored diagnosis, exactly as it was computed.

    Raises:
        WindowNotFoundError: no such window.
    """
    found = database.tuples('SELECT diagnosis FROM windows WHERE run_id = ? AND "window" = ?', [run, number])
    if not found:
        raise _not_found(database, run, number)
    return decode_diagnosis(found[0][0])


def diagnoses(database: Database, run: str) -> list[Diagnosis]:
    """Return the stored diagnoses of a run, ascending by window.

    Raises:
        WindowNotFoundError: no such run.
    """
    found = database.tuples('SELECT diagnosis FROM windows WHERE run_id = ? ORDER BY "window"', [run])
    if not found:
        raise WindowNotFoundError(f"no run {run!r} in the store")
    return [decode_diagnosis(diagnosis) for (diagnosis,) in found]


def telling_windows(database: Database, run: str, most: int) -> list[tuple[int, int]]:
    """Return the latest windows that need attention or miss ranks, and those next to one that needs
    attention, ascending, each with a hash of its verdict; none where there is no such run.
    """
    found = database.tuples(
        """
        SELECT "window", hash(diagnosis) FROM windows WHERE run_id = $run
        WINDOW in_order AS (ORDER BY "window")
        QUALIFY needs_attention OR lag(needs_attention) OVER in_order OR lead(needs_attention) OVER in_order
            OR lacks_data
        ORDER BY "window" DESC LIMIT $most
        """,
        {"run": run, "most": most},
    )
    return [(number, digest) for number, digest in reversed(found)]


def verdicts(database: Database, run: str, windows: Sequence[int]) -> list[TimedDiagnosis]:
    """Return the verdicts on some windows of a run, ascending; those that are gone are left out."""
    found = database.tuples(
        """
        SELECT diagnosis, started_at, ended_at FROM windows
        WHERE run_id = $run AND list_contains($windows, "window") ORDER BY "window"
        """,
        {"run": run, "windows": list(windows)},
    )
    return [
        TimedDiagnosis(decode_diagnosis(diagnosis), _aware_time(started_at), _aware_time(ended_at))
        for diagnosis, started_at, ended_at in found
    ]


def troubled_runs(database: Database) -> list[str]:
    """Return the runs that have a window that needs attention or misses ranks, in alphabetical order."""
    found = database.tuples(
        "SELECT DISTINCT run_id FROM windows WHERE needs_attention OR lacks_data ORDER BY run_id"
    )
    return [run for (run,) in found]


def window_numbers(database: Database, run: str) -> list[int]:
    """Return the numbers of a run's windows, ascending; none where there is no such run."""
    found = database.tuples('SELECT "window" FROM windows WHERE run_id = ? ORDER BY 1', [run])
    return [number for (number,) in found]


def neighbours(database: Database, run: str, number: int) -> tuple[int | None, int | None]:
    """Return the numbers of the windows before and after one of the same run, which need not exist itself."""
    ((before, after),) = database.tuples(
        """
        SELECT max("window") FILTER ("window" < $number), min("window") FILTER ("window" > $number)
        FROM windows WHERE run_id = $run
        """,
        {"run": run, "number": number},
    )
    return before, after


def reference(database: Database, run: str) -> Reference | None:
    """Return the reference of a run's windows; None if none of them is healthy."""
    found = database.tuples("SELECT reference FROM run_references WHERE run_id = ?", [run])
    return decode_reference(found[0][0]) if found else None


def sources(database: Database, run: str, number: int) -> list[PacketSource]:
    """Return the packet files that a window is built from.

    Raises:
        WindowNotFoundError: no such window.
    """
    found = _packets(database, run, number, "shown")
    if not found:
        raise _not_found(database, run, number)
    return found


def set_aside(database: Database, run: str, number: int) -> list[PacketSource]:
    """Return the files of a window that were set aside; see ``conflicts``."""
    return _packets(database, run, number, "set_aside")


def _packets(database: Database, run: str, number: int, state: str) -> list[PacketSource]:
    rows = database.tuples(
        """
        SELECT path, size, sha256, part_rank FROM packets
        WHERE run_id = ? AND "window" = ? AND state = ? ORDER BY part_rank NULLS FIRST, path
        """,
        [run, number, state],
    )
    return [PacketSource(Path(path), size, sha256, part) for path, size, sha256, part in rows]


def quarantine(database: Database) -> list[QuarantinedFile]:
    """Return every refused file, by name."""
    rows = database.tuples("SELECT path, size, sha256, reason, mtime_ns FROM quarantine ORDER BY path")
    return [
        QuarantinedFile(name, size, sha256, reason, _moment(mtime_ns))
        for name, size, sha256, reason, mtime_ns in rows
    ]


def conflicts(database: Database) -> list[WindowConflict]:
    """Return every conflict, by run and window."""
    found: dict[tuple[str, int, str], dict[bool, list[PacketSource]]] = {}
    rows = database.tuples(
        """
        SELECT run_id, "window", reason, shown, path, size, sha256 FROM conflicts
        ORDER BY run_id, "window", reason, path
        """
    )
    for run_id, number, reason, shown, path, size, sha256 in rows:
        files = found.setdefault((run_id, number, reason), {True: [], False: []})
        files[shown].append(PacketSource(Path(path), size, sha256))
    return [
        WindowConflict(*key, shown=tuple(files[True]), set_aside=tuple(files[False]))
        for key, files in found.items()
    ]


def newest_packet_at(database: Database) -> datetime | None:
    """Return the modification time of the newest packet file; None without packets."""
    ((newest,),) = database.tuples("SELECT max(mtime_ns) FROM packets")
    return None if newest is None else _moment(newest)


def _filters(query: WindowQuery) -> tuple[str, dict[str, Any]]:
    """Return the WHERE clause and the values it binds."""
    conditions = {
        "run": "run_id = $run",
        "label": "list_contains(labels, $label)",
        "stage": "(aim_stage = $stage OR list_contains(routing_set, $stage))",
        "text": f"(contains(lower({_SEARCHED}), lower($text)) OR list_has_any(labels, $text_labels))",
        "min_severity": "severity >= $min_severity",
        "needs_attention": "(needs_attention OR lacks_data) = $needs_attention",
    }
    asked = {name: getattr(query, name) for name in conditions}
    parameters = {name: value for name, value in asked.items() if value is not None}
    clauses = [conditions[name] for name in parameters]
    if query.text is not None:
        parameters["text_labels"] = _labels_on_screen(query.text)
    for name, key, beyond in (("first", query.first, ">"), ("last", query.last, "<")):
        if key is not None:
            clauses.append(
                f"(run_id {beyond} ${name}_run"
                f' OR (run_id = ${name}_run AND "window" {beyond}= ${name}_window))'
            )
            parameters |= {f"{name}_run": key[0], f"{name}_window": key[1]}
    return " AND ".join(clauses) or "true", parameters


def _labels_on_screen(text: str) -> list[str]:
    """Labels whose words on screen contain a text; the label that every window holds is left out."""
    return [
        name
        for name, label in LABELS.items()
        if label.group != "accounting" and text.strip() and text.lower() in label.words
    ]


def _order(sort: tuple[tuple[str, str], ...]) -> str:
    terms = []
    for column, direction in sort:
        if column not in SORTABLE:
            raise StoreError(f"windows cannot be sorted by {column!r}; there are: {', '.join(SORTABLE)}")
        if direction not in ("asc", "desc"):
            raise StoreError(f"a sort direction is 'asc' or 'desc', not {direction!r}")
        terms.append(f"{quote_identifier(column)} {direction} NULLS LAST")
    return ", ".join([*terms, "run_id", '"window"'])


def _aware_time(value: datetime | None) -> datetime | None:
    """Return a time marked as UTC: DuckDB returns it without a time zone."""
    return None if value is None else value.replace(tzinfo=UTC)


def _aware(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its times marked as UTC."""
    return {name: _aware_time(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _moment(mtime_ns: int) -> datetime:
    return datetime.fromtimestamp(mtime_ns / 1e9, UTC)


def _not_found(database: Database, run: str, number: int) -> WindowNotFoundError:
    ((count, first, last),) = database.tuples(
        'SELECT count(*), min("window"), max("window") FROM windows WHERE run_id = ?', [run]
    )
    if not count:
        return WindowNotFoundError(f"no run {run!r} in the store")
    there = f"only window {first}" if count == 1 else f"{count}, from {first} to {last}"
    return WindowNotFoundError(f"run {run!r} has no window {number}; it has {there}")
