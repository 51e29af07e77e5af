"""Choose the reference of each run and compare its windows with it (accounting.md §12).

Only stored diagnoses are used; a new reference never opens a packet. After every commit, all windows of a run
are compared with the reference in its row of ``run_references``, or with none if it has no row. A process
killed between two commits therefore loses no state: the next ingest derives the remaining work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from sfapp.accounting import (
    HealthyWindows,
    WindowPace,
    WindowSpread,
    healthy_windows,
    pooled_reference,
    reference_of,
    with_reference,
)
from sfapp.model import Gates, Reference
from sfapp.model.findings import StepNoise
from sfapp.store.bulk_insert import IN_KEYS, IN_RUNS, delete_windows, insert, insert_windows, key_values
from sfapp.store.database import Cursor
from sfapp.store.reference_choices import ReferenceChoices
from sfapp.store.schema import RUN_REFERENCES
from sfapp.store.verdict_rows import (
    DerivedWindow,
    Key,
    WindowOrigin,
    decode_diagnosis,
    decode_reference,
    encode,
    noise_values,
    stages_table,
    windows_table,
)

_AT_ONCE = 512
"""Number of diagnoses decoded together, because all windows of a run may not fit in memory."""

_COMPLETE = """
SELECT run_id, "window", step_mean_ns, step_noise, recorded_stages, ranks, has_late_ranks,
    carry_over_shares IS NOT NULL
FROM windows JOIN (SELECT run_id, min("window") AS first FROM windows GROUP BY run_id) USING (run_id)
WHERE complete AND "window" > first AND ($run IS NULL OR run_id = $run)
"""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The windows with which a run should be compared, and whether a user chose them."""

    healthy: HealthyWindows
    by_hand: bool


def runs_to_compare(cursor: Cursor, chosen: ReferenceChoices) -> list[str]:
    """Return the runs whose stored reference no longer fits their windows or the user's choice."""
    rows = cursor.execute(
        "SELECT run_id, healthy_windows, noise, between_ns, between_windows, chosen FROM run_references"
    ).fetchall()
    stored = {
        run_id: None
        if windows is None
        else _Wanted(HealthyWindows(tuple(windows), _noise(noise), WindowSpread(*spread)), by_hand)
        for run_id, windows, noise, *spread, by_hand in rows
    }
    wanted = _wanted(cursor, chosen, None)
    # A run without wanted windows must have no row, not even an invalidated one.
    return sorted(
        run for run in stored.keys() | wanted.keys() if run not in wanted or stored.get(run) != wanted[run]
    )


def update_reference(cursor: Cursor, chosen: ReferenceChoices, run_id: str) -> None:
    """Compare a run's windows with its present reference, and store that."""
    wanted = _wanted(cursor, chosen, run_id).get(run_id)
    reference = None if wanted is None else _reference(cursor, run_id, wanted)
    if reference != references_of(cursor, [run_id]).get(run_id):
        rows = cursor.execute('SELECT "window" FROM windows WHERE run_id = ?', [run_id]).fetchall()
        compare(cursor, [(run_id, number) for (number,) in sorted(rows)], reference)
    cursor.execute("DELETE FROM run_references WHERE run_id = ?", [run_id])
    if wanted is not None and reference is not None:
        noise = wanted.healthy.noise
        row = {
            "run_id": run_id,
            "reference_window": reference.window,
            "healthy_windows": list(wanted.healthy.windows),
            "noise": noise_values(noise),
            "between_ns": wanted.healthy.spread.ns,
            "between_windows": wanted.healthy.spread.windows,
            "chosen": wanted.by_hand,
            "reference": encode(reference),
        }
        insert(cursor, RUN_REFERENCES, RUN_REFERENCES.arrow([row]))


def _reference(cursor: Cursor, run_id: str, wanted: _Wanted) -> Reference | None:
    found = _load(cursor, [(run_id, number) for number in wanted.healthy.windows])
    parts = [reference_of(window.diagnosis) for window in found]
    return pooled_reference(parts, wanted.healthy.noise, wanted.healthy.spread) if parts else None


def invalidate_references(cursor: Cursor, keys: Collection[Key]) -> None:
    """Mark these windows' content as changed if a run is compared with one of them.

    The reference itself is kept, because the run's windows are compared with it until ``update_reference``.
    """
    by_run: dict[str, list[int]] = defaultdict(list)
    for run_id, number in keys:
        by_run[run_id].append(number)
    for run_id, numbers in by_run.items():
        cursor.execute(
            "UPDATE run_references SET healthy_windows = NULL "
            "WHERE run_id = ? AND list_has_any(healthy_windows, ?::BIGINT[])",
            [run_id, numbers],
        )


def references_of(cursor: Cursor, runs: Iterable[str]) -> dict[str, Reference]:
    """Return the references of these runs, for those that have one."""
    sql = f"SELECT run_id, reference FROM run_references WHERE {IN_RUNS}"
    rows = cursor.execute(sql, {"runs": list(runs)}).fetchall()
    return {run_id: decode_reference(reference) for run_id, reference in rows}


def _wanted(cursor: Cursor, chosen: ReferenceChoices, run_id: str | None) -> dict[str, _Wanted]:
    """Return for one run or all runs the windows with which it should be compared."""
    paces: dict[str, list[WindowPace]] = defaultdict(list)
    for run, number, step_ns, noise, stages, ranks, late, carried in cursor.execute(
        _COMPLETE, {"run": run_id}
    ).fetchall():
        paces[run].append(WindowPace(number, step_ns, _noise(noise), (tuple(stages), ranks), late, carried))
    wanted = {
        run: _Wanted(healthy, False)
        for run, found in paces.items()
        if (healthy := healthy_windows(found, Gates().min_effect)) is not None
    }
    picked = [key for key in chosen.windows.items() if run_id is None or key[0] == run_id]
    sql = f'SELECT run_id, "window", step_noise FROM windows WHERE {IN_KEYS}'
    there = cursor.execute(sql, key_values(picked)).fetchall()
    spread = {run: found.healthy.spread for run, found in wanted.items()}
    return wanted | {
        run: _Wanted(HealthyWindows((number,), _noise(noise), spread.get(run, WindowSpread())), True)
        for run, number, noise in there
    }


def _noise(values: Sequence[float] | None) -> StepNoise | None:
    return None if values is None else StepNoise(int(values[0]), *values[1:])


def compare(cursor: Cursor, keys: Sequence[Key], reference: Reference | None) -> None:
    """Compare stored windows of one run with this reference."""
    for begin in range(0, len(keys), _AT_ONCE):
        batch = keys[begin : begin + _AT_ONCE]
        compared = [
            replace(found, diagnosis=with_reference(found.diagnosis, reference))
            for found in _load(cursor, batch)
        ]
        stages = stages_table([found.diagnosis for found in compared])
        delete_windows(cursor, batch)
        insert_windows(cursor, windows_table(compared), stages)


def _load(cursor: Cursor, keys: Collection[Key]) -> list[DerivedWindow]:
    """Return stored windows; missing ones are left out."""
    rows = cursor.execute(
        "SELECT diagnosis, started_at, ended_at, wrapper, job_fields, world_size, complete FROM windows "
        f'WHERE {IN_KEYS} ORDER BY run_id, "window"',
        key_values(keys),
    ).fetchall()
    return [DerivedWindow(decode_diagnosis(diagnosis), WindowOrigin(*origin)) for diagnosis, *origin in rows]
