"""Where the ranks of a run wait for each other, by the fits of all its stored windows (accounting.md §10).

A window is diagnosed with what the run's others found. That changes as windows come and go; then it is
diagnosed again from its packets. As with references, a kill leaves nothing to remember: which windows are
aligned otherwise than they should be is worked out from what is stored.
"""

from __future__ import annotations

from sfapp.accounting import RunStages, RunWaits
from sfapp.accounting.run_waits import MET_IN, ONE_OF
from sfapp.store.database import Cursor, Database
from sfapp.store.verdict_rows import Key

# As accounting.run_waits has it, for one run or for all.
_WAITS = f"""
WITH measuring AS (
    SELECT run_id, recorded_stages, own_boundary, coalesce(own_boundary, met_boundary) AS boundary,
        CASE WHEN own_boundary IS NULL THEN [met_boundary] ELSE own_wait_stages END AS stages
    FROM windows
    WHERE coalesce(own_boundary, met_boundary) IS NOT NULL AND ($run IS NULL OR run_id = $run)
    QUALIFY own_boundary IS NOT NULL OR count(own_boundary) OVER (PARTITION BY run_id, recorded_stages) = 0
), found AS (
    SELECT run_id, recorded_stages, stage, count(*) AS windows
    FROM (SELECT run_id, recorded_stages, unnest(stages) AS stage FROM measuring) GROUP BY ALL
), met AS (
    SELECT run_id, recorded_stages, boundary AS stage, count(*) AS windows,
        count(*) FILTER (len(stages) > 1) AS preferring
    FROM measuring GROUP BY ALL
), job AS (
    SELECT run_id, recorded_stages, count(*) AS windows,
        CASE WHEN count(own_boundary) > 0 THEN 1 ELSE {MET_IN} END AS fewest
    FROM measuring GROUP BY ALL
), vouched AS (
    SELECT run_id, recorded_stages, stage, list_position(recorded_stages, stage) AS place,
        coalesce(met.preferring, 0) AS preferring, coalesce(met.windows, 0) AS meeting
    FROM found JOIN job USING (run_id, recorded_stages) LEFT JOIN met USING (run_id, recorded_stages, stage)
    WHERE {ONE_OF} * found.windows >= job.windows AND found.windows >= job.fewest
), waits AS (
    SELECT run_id, recorded_stages, list(stage ORDER BY place) AS stages,
        arg_max(stage, (preferring, meeting, -place)) AS boundary
    FROM vouched GROUP BY run_id, recorded_stages
)
"""

# A window that is below the floor, has gaps between its steps, is of one rank, or was reduced is not aligned.
_MISALIGNED = f"""
{_WAITS}
SELECT run_id, "window" FROM windows LEFT JOIN waits USING (run_id, recorded_stages)
WHERE ranks > 1 AND carry_over_shares IS NOT NULL AND exposed_imbalance IS NOT NULL
    AND sync_boundary IS DISTINCT FROM CASE
        WHEN own_boundary IS NOT NULL AND NOT coalesce(list_contains(waits.stages, own_boundary), false)
        THEN own_boundary ELSE boundary END
"""


def stored_waits(database: Database, key: RunStages) -> RunWaits:
    """What the stored windows of a run say, those with these recorded stages."""
    run_id, stages = key
    rows = database.tuples(
        f"{_WAITS} SELECT stages, boundary FROM waits WHERE recorded_stages = $stages::VARCHAR[]",
        {"run": run_id, "stages": list(stages)},
    )
    return RunWaits(*((tuple(rows[0][0]), rows[0][1]) if rows else ()))


def misaligned(cursor: Cursor) -> set[Key]:
    """Windows that are not aligned where the others of their run say."""
    return set(cursor.execute(_MISALIGNED, {"run": None}).fetchall())
