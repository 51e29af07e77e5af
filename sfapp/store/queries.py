"""Query the store for pages. Every value is bound."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sfapp.errors import WindowNotFoundError
from sfapp.model import Diagnosis, Reference
from sfapp.storage import StoragePath, path_in
from sfapp.store.bulk_insert import IN_KEYS, IN_RUNS, key_values
from sfapp.store.database import Database
from sfapp.store.verdict_rows import EncodedVerdict, Key, decode_diagnosis, decode_reference
from sfapp.store.window_queries import aware, aware_time


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
    """A packet file of a window."""

    path: StoragePath
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
    """Files with different content for one window: used ones and those set aside."""

    run_id: str
    window: int
    reason: str
    shown: tuple[PacketSource, ...]
    set_aside: tuple[PacketSource, ...]


def hostnames(database: Database) -> frozenset[str]:
    """Return every host name in the packets."""
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
    return [RunSummary(**aware(row)) for row in rows]


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


def telling_windows(database: Database, runs: Sequence[str], most: int) -> dict[str, dict[int, int]]:
    """Return, by run, the latest ``most`` windows that need attention or lack ranks, and neighbours of those
    that need attention, ascending, each with a hash of its verdict. Runs without any are left out."""
    found = database.tuples(
        f"""
        FROM (
            SELECT run_id, "window", verdict_hash FROM windows WHERE {IN_RUNS}
            WINDOW in_order AS (PARTITION BY run_id ORDER BY "window")
            QUALIFY needs_attention OR lag(needs_attention) OVER in_order
                OR lead(needs_attention) OVER in_order OR lacks_data
        )
        QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY "window" DESC) <= $most
        ORDER BY run_id, "window"
        """,
        {"runs": list(runs), "most": most},
    )
    telling: dict[str, dict[int, int]] = {}
    for run, number, verdict_hash in found:
        telling.setdefault(run, {})[number] = verdict_hash
    return telling


def verdicts(database: Database, keys: Collection[Key]) -> Iterator[EncodedVerdict]:
    """Return the verdicts on some windows, by run and window; missing windows are left out."""
    if not keys:
        return iter(())
    # In two steps, because DuckDB would otherwise decompress the verdicts on all windows of the runs.
    with database.cursor() as cursor:
        cursor.begin()  # so that both see one state
        places = cursor.execute(f"SELECT rowid FROM windows WHERE {IN_KEYS}", key_values(keys)).fetchall()
        found = cursor.execute(
            """
            SELECT run_id, "window", diagnosis, started_at, ended_at FROM windows
            WHERE rowid IN (SELECT unnest($places::BIGINT[])) ORDER BY run_id, "window"
            """,
            {"places": [place for (place,) in places]},
        ).fetchall()
        cursor.rollback()
    return (
        EncodedVerdict((run_id, number), diagnosis, aware_time(started_at), aware_time(ended_at))
        for run_id, number, diagnosis, started_at, ended_at in found
    )


def troubled_runs(database: Database) -> list[str]:
    """Return the runs with a window that needs attention or lacks ranks, or that have stood still, in
    alphabetical order."""
    found = database.tuples(
        "SELECT run_id FROM windows WHERE needs_attention OR lacks_data "
        "UNION SELECT run_id FROM standstill_samples ORDER BY run_id"
    )
    return [run for (run,) in found]


def runs_that_stood_still(database: Database) -> set[str]:
    """Return the runs that have stood still."""
    return {run for (run,) in database.tuples("SELECT DISTINCT run_id FROM standstill_samples")}


def window_numbers(database: Database, runs: Sequence[str]) -> dict[str, list[int]]:
    """Return the numbers of the windows of some runs, ascending; runs without windows are left out."""
    found = database.tuples(
        f'SELECT run_id, list("window" ORDER BY "window") FROM windows WHERE {IN_RUNS} GROUP BY run_id',
        {"runs": list(runs)},
    )
    return dict(found)


def reference(database: Database, run: str) -> Reference | None:
    """Return the reference of a run's windows; None if none of them is healthy."""
    found = database.tuples("SELECT reference FROM run_references WHERE run_id = ?", [run])
    return decode_reference(found[0][0]) if found else None


def packet_files(
    database: Database, roots: Sequence[StoragePath], run: str, number: int
) -> tuple[list[PacketSource], list[PacketSource]]:
    """Return the packet files of a window, which lie at or below one of the roots, and those that were set
    aside; see ``conflicts``.

    Raises:
        WindowNotFoundError: no such window.
    """
    rows = database.tuples(
        """
        SELECT path, size, sha256, part_rank, state = 'set_aside' FROM packets
        WHERE run_id = ? AND "window" = ? AND state IN ('shown', 'set_aside')
        ORDER BY part_rank NULLS FIRST, path
        """,
        [run, number],
    )
    shown: list[PacketSource] = []
    set_aside: list[PacketSource] = []
    for path, size, sha256, part, is_set_aside in rows:
        source = PacketSource(path_in(roots, path), size, sha256, part)
        (set_aside if is_set_aside else shown).append(source)
    if not shown:
        raise _not_found(database, run, number)
    return shown, set_aside


def quarantine(database: Database) -> list[QuarantinedFile]:
    """Return every refused file, by name."""
    rows = database.tuples("SELECT path, size, sha256, reason, mtime_ns FROM quarantine ORDER BY path")
    return [
        QuarantinedFile(name, size, sha256, reason, _moment(mtime_ns))
        for name, size, sha256, reason, mtime_ns in rows
    ]


def conflicts(database: Database, roots: Sequence[StoragePath]) -> list[WindowConflict]:
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
        files[shown].append(PacketSource(path_in(roots, path), size, sha256))
    return [
        WindowConflict(*key, shown=tuple(files[True]), set_aside=tuple(files[False]))
        for key, files in found.items()
    ]


def newest_packet_at(database: Database) -> datetime | None:
    """Return the modification time of the newest packet file; None without packets."""
    ((newest,),) = database.tuples("SELECT max(mtime_ns) FROM packets")
    return None if newest is None else _moment(newest)


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
