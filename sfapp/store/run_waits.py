"""Apply the rule for where a run's ranks wait to the windows in the store (accounting.md §10).

The rule itself is ``accounting.waits_of_windows``; the store groups windows with the same facts for it. A
window is diagnosed with the result for its run. If windows come or go and the result changes, it is diagnosed
again from its packets. The affected windows are always derived from stored data, so a killed ingest loses no
state.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from sfapp.accounting import RunStages, RunWaits, WaitFacts, waits_of_windows
from sfapp.store.database import Cursor, Database
from sfapp.store.verdict_rows import Key

_FACTS = """
SELECT own_boundary, own_wait_stages, met_boundary, count(*) FROM windows
WHERE run_id = $run AND recorded_stages = $stages::VARCHAR[]
    AND coalesce(own_boundary, met_boundary) IS NOT NULL
GROUP BY ALL
"""

# A window that is below the floor, has gaps between its steps, is of one rank, or was reduced is not aligned.
_BOUNDARIES = """
SELECT run_id, recorded_stages, own_boundary, own_wait_stages, met_boundary, sync_boundary, count(*),
    list("window") FILTER (ranks > 1 AND carry_over_shares IS NOT NULL AND exposed_imbalance IS NOT NULL)
FROM windows GROUP BY ALL
"""


def stored_waits(database: Database, key: RunStages) -> RunWaits:
    """Return where ranks wait according to the stored windows of a run that have these recorded stages."""
    run_id, stages = key
    counts: Counter[WaitFacts] = Counter()
    for own, own_stages, between_syncs, count in database.tuples(
        _FACTS, {"run": run_id, "stages": list(stages)}
    ):
        counts[_facts(own, own_stages, between_syncs)] += count
    return waits_of_windows(stages, counts)


def misaligned(cursor: Cursor) -> set[Key]:
    """Return the windows that are aligned at another stage than the windows of their run imply."""
    rows = cursor.execute(_BOUNDARIES).fetchall()
    counts: dict[RunStages, Counter[WaitFacts]] = defaultdict(Counter)
    for run_id, stages, own, own_stages, between_syncs, _, count, _ in rows:
        counts[run_id, tuple(stages)][_facts(own, own_stages, between_syncs)] += count
    waits = {key: waits_of_windows(key[1], facts) for key, facts in counts.items()}
    return {
        (run_id, number)
        for run_id, stages, own, _, _, boundary, _, numbers in rows
        if boundary != waits[run_id, tuple(stages)].boundary_for(own)
        for number in numbers or ()
    }


def _facts(own: str | None, own_stages: list[str] | None, between_syncs: str | None) -> WaitFacts:
    return WaitFacts(own, tuple(own_stages or ()), between_syncs)
