"""Where the ranks of a run wait for each other, by the fits of all its stored windows (accounting.md §10).

A window whose own fit finds no wait is diagnosed with what the run's others found. Which those are changes as
windows come and go; then it is diagnosed again from its packets. As with references, a kill leaves nothing to
remember: which windows are aligned otherwise than they should be is worked out from what is stored.
"""

from __future__ import annotations

from sfapp.accounting import RunStages, RunWaits
from sfapp.accounting.run_waits import ONE_OF
from sfapp.model import Gates
from sfapp.store.database import Cursor, Database
from sfapp.store.rows import Key

# As RunWaits.stages has it. A window that is below the floor, has gaps between its steps, is of one rank, or
# was reduced cannot be aligned.
_MISALIGNED = """
WITH fits AS (
    SELECT run_id, recorded_stages,
        unnest(map_keys(least_slopes)) AS stage, unnest(map_values(least_slopes)) AS least
    FROM windows WHERE $run IS NULL OR run_id = $run
), found AS (
    SELECT run_id, recorded_stages, stage, count(*) AS windows
    FROM fits WHERE least >= $wait_slope GROUP BY ALL
), measuring AS (
    SELECT run_id, recorded_stages, count(*) AS windows
    FROM windows WHERE list_max(map_values(least_slopes)) >= $wait_slope GROUP BY ALL
), wanted AS (
    SELECT run_id, recorded_stages,
        list(stage ORDER BY list_position(recorded_stages, stage)) AS stages
    FROM found JOIN measuring USING (run_id, recorded_stages)
    WHERE $one_of * found.windows >= measuring.windows GROUP BY run_id, recorded_stages
)
SELECT run_id, "window" FROM windows LEFT JOIN wanted USING (run_id, recorded_stages)
WHERE ($run IS NULL OR run_id = $run)
    AND waits_from IS DISTINCT FROM 'window' AND wait_stages IS DISTINCT FROM coalesce(wanted.stages, [])
    AND ranks > 1 AND carry_over_shares IS NOT NULL AND exposed_imbalance IS NOT NULL
"""


def stored_waits(database: Database, key: RunStages) -> RunWaits:
    """What the stored windows of a run found, those with these recorded stages."""
    run_id, stages = key
    rows = database.tuples(
        "SELECT least_slopes FROM windows WHERE run_id = ? AND recorded_stages = ?::VARCHAR[]",
        [run_id, list(stages)],
    )
    return RunWaits.of(stages, (least for (least,) in rows))


def misaligned(cursor: Cursor, run_id: str | None = None) -> set[Key]:
    """Windows, of one run or of all, that are not aligned where the others of their run say."""
    values = {"run": run_id, "wait_slope": Gates().wait_slope, "one_of": ONE_OF}
    return set(cursor.execute(_MISALIGNED, values).fetchall())
