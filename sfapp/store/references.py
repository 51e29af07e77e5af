"""Choose the reference of each run and compare its windows with it (accounting.md §12).

Only stored diagnoses are used: a new reference never opens a packet. After every commit, all windows of a
run are compared with the reference in its row of ``run_references``, and with none if it has no row. A
process killed between two commits therefore leaves nothing to remember: the next ingest derives what is
still to be done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from sfapp.accounting import reference_of, with_reference
from sfapp.model import Reference
from sfapp.store.bulk_insert import IN_KEYS, IN_RUNS, KEYS, insert, key_values, replace_windows
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
    stages_table,
    windows_table,
)

_AT_ONCE = 512
"""Diagnoses decoded together: all windows of a run may not fit in memory."""

# The healthy window of one run or of every run: the lowest mean step among complete windows after the first.
_HEALTHY = """
SELECT run_id, arg_min("window", (step_mean_ns, "window"))
FROM windows JOIN (SELECT run_id, min("window") AS first FROM windows GROUP BY run_id) USING (run_id)
WHERE complete AND "window" > first AND ($run IS NULL OR run_id = $run)
GROUP BY run_id
"""


def runs_to_compare(cursor: Cursor, chosen: ReferenceChoices) -> list[str]:
    """Return the runs whose windows are compared with another reference than they should be."""
    stored = {
        run_id: (number, by_hand)
        for run_id, number, by_hand in cursor.execute(
            "SELECT run_id, reference_window, chosen FROM run_references"
        ).fetchall()
    }
    wanted = _wanted(cursor, chosen, None)
    return sorted(run for run in stored.keys() | wanted.keys() if stored.get(run) != wanted.get(run))


def update_reference(cursor: Cursor, chosen: ReferenceChoices, run_id: str) -> None:
    """Compare a run's windows with the reference that the run should have."""
    number, by_hand = _wanted(cursor, chosen, run_id).get(run_id, (None, False))
    found = [] if number is None else _load(cursor, [(run_id, number)])
    reference = reference_of(found[0].diagnosis) if found else None
    if reference != references_of(cursor, [run_id]).get(run_id):
        rows = cursor.execute('SELECT "window" FROM windows WHERE run_id = ?', [run_id]).fetchall()
        compare(cursor, [(run_id, number) for (number,) in sorted(rows)], reference)
    cursor.execute("DELETE FROM run_references WHERE run_id = ?", [run_id])
    if reference is not None:
        row = {
            "run_id": run_id,
            "reference_window": number,
            "chosen": by_hand,
            "reference": encode(reference),
        }
        insert(cursor, RUN_REFERENCES, RUN_REFERENCES.arrow([row]))


def invalidate_references(cursor: Cursor, keys: Collection[Key]) -> None:
    """Mark these windows' content as changed where one of them is a run's reference.

    The reference itself stays, because the run's windows are compared with it until ``update_reference``.
    """
    cursor.execute(
        f"UPDATE run_references SET reference_window = NULL WHERE (run_id, reference_window) IN {KEYS}",
        key_values(keys),
    )


def references_of(cursor: Cursor, runs: Iterable[str]) -> dict[str, Reference]:
    """Return the references of these runs, for those that have one."""
    sql = f"SELECT run_id, reference FROM run_references WHERE {IN_RUNS}"
    rows = cursor.execute(sql, {"runs": list(runs)}).fetchall()
    return {run_id: decode_reference(reference) for run_id, reference in rows}


def _wanted(
    cursor: Cursor, chosen: ReferenceChoices, run_id: str | None
) -> dict[str, tuple[int | None, bool]]:
    """Return for one run or all runs the window that should be the reference, and whether a user chose it."""
    healthy = cursor.execute(_HEALTHY, {"run": run_id}).fetchall()
    wanted: dict[str, tuple[int | None, bool]] = {run: (number, False) for run, number in healthy}
    picked = [key for key in chosen.pairs() if run_id is None or key[0] == run_id]
    sql = f'SELECT run_id, "window" FROM windows WHERE {IN_KEYS}'
    there = cursor.execute(sql, key_values(picked)).fetchall()
    return wanted | {run: (number, True) for run, number in there}


def compare(cursor: Cursor, keys: Sequence[Key], reference: Reference | None) -> None:
    """Compare stored windows of one run with this reference."""
    for begin in range(0, len(keys), _AT_ONCE):
        batch = keys[begin : begin + _AT_ONCE]
        compared = [
            replace(found, diagnosis=with_reference(found.diagnosis, reference))
            for found in _load(cursor, batch)
        ]
        stages = stages_table([found.diagnosis for found in compared])
        replace_windows(cursor, batch, windows_table(compared), stages)


def _load(cursor: Cursor, keys: Collection[Key]) -> list[DerivedWindow]:
    """Return stored windows; missing ones are left out."""
    rows = cursor.execute(
        "SELECT diagnosis, started_at, ended_at, wrapper, world_size, complete FROM windows "
        f'WHERE {IN_KEYS} ORDER BY run_id, "window"',
        key_values(keys),
    ).fetchall()
    return [DerivedWindow(decode_diagnosis(diagnosis), WindowOrigin(*origin)) for diagnosis, *origin in rows]
