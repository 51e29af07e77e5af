"""Which window of a run the others are compared with, and the comparing (accounting.md §12).

Works on stored diagnoses alone: a new reference never opens a packet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sfapp.accounting import healthy_reference, reference_of, with_reference
from sfapp.model import Diagnosis, Reference
from sfapp.store.database import Cursor
from sfapp.store.derive import Derived
from sfapp.store.rows import Origin, decode_diagnosis, decode_reference, encode
from sfapp.store.schema import RUNS
from sfapp.store.tables import IN_KEYS, given, insert, replace_windows

_AT_ONCE = 512
"""Diagnoses decoded together: a run may have more windows than fit in memory."""


@dataclass(frozen=True, slots=True)
class RunReference:
    """What a run's windows are compared with, as stored."""

    window: int | None
    chosen: bool
    reference: Reference | None


def stored_reference(cursor: Cursor, run_id: str) -> RunReference | None:
    """The run's row; None for a run that has none yet."""
    row = cursor.execute(
        "SELECT reference_window, chosen, reference FROM runs WHERE run_id = ?", [run_id]
    ).fetchone()
    if row is None:
        return None
    window, chosen, reference = row
    return RunReference(window, chosen, None if reference is None else decode_reference(reference))


def unsettle(cursor: Cursor, runs: Iterable[str]) -> None:
    """Mark runs whose windows have changed, so that a kill before ``settle`` is made good later."""
    for run_id in runs:
        if stored_reference(cursor, run_id) is None:
            insert(cursor, RUNS, [{"run_id": run_id, "chosen": False, "settled": False}])
        else:
            cursor.execute("UPDATE runs SET settled = false WHERE run_id = ?", [run_id])


def settle(cursor: Cursor, run_id: str, chosen: int | None, touched: Iterable[int] | None) -> None:
    """Find the run's reference and compare every window with it that is not already.

    Args:
        chosen: the window picked by hand; ignored while the run has no such window.
        touched: numbers of the windows that are new or changed since the run was last settled, already
            compared with the stored reference; None where windows went away or the choice may differ.
    """
    stored = stored_reference(cursor, run_id)
    numbers = _numbers(cursor, run_id)
    if not numbers:
        cursor.execute("DELETE FROM runs WHERE run_id = ?", [run_id])
        return
    candidates = _candidates(stored, numbers[0], touched)
    picked = _load(cursor, run_id, [chosen]) if chosen is not None else []
    healthy = picked[0].diagnosis if picked else _healthiest(cursor, run_id, candidates or numbers)
    reference = None if healthy is None else reference_of(healthy)
    if candidates is None or stored is None or stored.reference != reference:
        _compare(cursor, run_id, numbers, reference)
    cursor.execute("DELETE FROM runs WHERE run_id = ?", [run_id])
    row = {"run_id": run_id, "chosen": bool(picked), "settled": True}
    if reference is not None:
        row |= {"reference_window": reference.window, "reference": encode(reference)}
    insert(cursor, RUNS, [row])


def _candidates(stored: RunReference | None, first: int, touched: Iterable[int] | None) -> list[int] | None:
    """The windows among which the healthy one is, ascending; None for all of them.

    It is the minimum over a set from which only the run's first window is left out. So where neither the
    first nor the healthy window has changed, it is found among the latter and the new ones.
    """
    if touched is None or stored is None or stored.chosen or stored.window is None:
        return None
    changed = set(touched)
    if first in changed or stored.window in changed:
        return None
    return sorted(changed | {first, stored.window})


def _healthiest(cursor: Cursor, run_id: str, numbers: Sequence[int]) -> Diagnosis | None:
    """The healthy window among these, which start with the run's first, holding one handful at a time."""
    first: Diagnosis | None = None
    best: Diagnosis | None = None
    for handful in _handfuls(numbers):
        found = [derived.diagnosis for derived in _load(cursor, run_id, handful)]
        if first is None:
            first, *found = found
        # The first window never counts, so it leads every handful; the best so far runs again.
        best = healthy_reference([first, *([best] if best else []), *found])
    return best


def _compare(cursor: Cursor, run_id: str, numbers: Sequence[int], reference: Reference | None) -> None:
    """Compare every window that was compared with something else."""
    for handful in _handfuls(numbers):
        found = _load(cursor, run_id, handful)
        stale = [derived for derived in found if derived.diagnosis.reference != reference]
        replace_windows(
            cursor,
            [(run_id, derived.diagnosis.window) for derived in stale],
            [Derived(with_reference(each.diagnosis, reference), each.origin) for each in stale],
        )


def _numbers(cursor: Cursor, run_id: str) -> list[int]:
    found = cursor.execute('SELECT "window" FROM windows WHERE run_id = ? ORDER BY ALL', [run_id]).fetchall()
    return [number for (number,) in found]


def _handfuls(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for begin in range(0, len(numbers), _AT_ONCE):
        yield numbers[begin : begin + _AT_ONCE]


def _load(cursor: Cursor, run_id: str, numbers: Sequence[int]) -> list[Derived]:
    """Stored windows of a run, ascending; those that are not there are left out."""
    with given(cursor, keys=[(run_id, number) for number in numbers]):
        rows = cursor.execute(
            "SELECT diagnosis, started_at, ended_at, wrapper, world_size FROM windows "
            f'WHERE {IN_KEYS} ORDER BY "window"'
        ).fetchall()
    return [Derived(decode_diagnosis(diagnosis), Origin(*origin)) for diagnosis, *origin in rows]
