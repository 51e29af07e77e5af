"""Query the store for groups of runs by day or by a field of their jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sfapp.accounting.trends import RunPart
from sfapp.model.trends import BY_DAY
from sfapp.store.database import Database
from sfapp.store.fleet_queries import RANK_HOURS
from sfapp.store.window_queries import aware_time

_MOST_FIELDS = 100
"""Names of fields that are offered."""

_MOST_TEXTS = 10_000
"""Different combinations of fields in which names are looked for."""


@dataclass(frozen=True, slots=True)
class TrendRows:
    """Parts of runs by the value of a field.

    Attributes:
        fields: those by which runs can be grouped, ``day`` first.
        parts: of the values that are shown, and, with the value None, of all others together.
        total_values: number of all values.
        runs: number of runs. unstated_runs: those with windows that do not state the field.
    """

    fields: tuple[str, ...]
    parts: list[RunPart]
    total_values: int
    runs: int
    unstated_runs: int


def _fields(database: Database) -> tuple[str, ...]:
    rows = database.tuples(
        """
        SELECT DISTINCT unnest(json_keys(job_fields)) AS name
        FROM (SELECT DISTINCT job_fields FROM windows WHERE job_fields IS NOT NULL LIMIT $texts)
        ORDER BY name LIMIT $names
        """,
        {"texts": _MOST_TEXTS, "names": _MOST_FIELDS},
    )
    return (BY_DAY, *(name for (name,) in rows if name != BY_DAY))


def trends(database: Database, by: str, most: int) -> TrendRows:
    """Return the parts of runs by the value of a field.

    Args:
        most: number of values that are shown: the latest days, or the values with the most rank-hours.
    """
    # Grouping by the whole text is faster than reading a field from the JSON of every window.
    value = "strftime(day, '%Y-%m-%d')" if by == BY_DAY else "json_extract_string(text, $pointer)"
    order = "value DESC" if by == BY_DAY else "sum(rank_hours) DESC, value"
    rows = database.tuples(
        f"""
        WITH summed AS MATERIALIZED (
            SELECT run_id, {"NULL" if by == BY_DAY else "job_fields"} AS text,
                {"date_trunc('day', started_at)" if by == BY_DAY else "NULL::TIMESTAMP"} AS day,
                hash(world_size, wrapper, frontier, recorded_stages) AS kind, count(*) AS windows,
                sum(step_mean_ns * steps * {RANK_HOURS}) AS rank_hours,
                sum("change" / nullif(1 + "change", 0) * step_mean_ns * steps * {RANK_HOURS}) AS above,
                sum(exposed_imbalance * step_mean_ns * steps * {RANK_HOURS}) AS imbalance,
                sum(step_mean_ns * steps) FILTER (NOT needs_attention AND NOT lacks_data) AS healthy_ns,
                sum(steps) FILTER (NOT needs_attention AND NOT lacks_data) AS healthy_steps,
                bool_or(needs_attention) FILTER (is_reference) AS is_troubled,
                min(started_at) AS first_at, max(started_at) AS last_at
            FROM windows GROUP BY ALL
        ), parts AS MATERIALIZED (
            SELECT * EXCLUDE (text, day, is_troubled), {value} AS value,
                coalesce(NOT bool_or(is_troubled) OVER (PARTITION BY run_id), false) AS has_healthy
            FROM summed
        ), shown AS MATERIALIZED (
            SELECT value FROM parts WHERE value IS NOT NULL GROUP BY value ORDER BY {order} LIMIT $most
        )
        SELECT run_id, kind, shown.value, parts.value IS NULL AS is_unstated,
            sum(windows), coalesce(sum(rank_hours), 0.0),
            greatest(0.0, coalesce(sum(above) FILTER (has_healthy), 0.0), coalesce(sum(imbalance), 0.0)),
            coalesce(sum(healthy_ns), 0.0), coalesce(sum(healthy_steps), 0), min(first_at), max(last_at),
            (SELECT count(DISTINCT value) FROM parts)
        FROM parts LEFT JOIN shown USING (value) GROUP BY ALL ORDER BY ALL
        """,
        {"most": most} | ({} if by == BY_DAY else {"pointer": _pointer(by)}),
    )
    stated = [row for row in rows if not row[3]]
    return TrendRows(
        fields=_fields(database),
        parts=[_part(*row) for row in stated],
        total_values=rows[0][-1] if rows else 0,
        runs=len({row[0] for row in rows}),
        unstated_runs=len({row[0] for row in rows if row[3]}),
    )


def _part(
    run_id: str, kind: int, value: str | None, _: bool, windows: int, rank_hours: float, lost_hours: float,
    healthy_ns: float, healthy_steps: int, first_at: Any, last_at: Any, __: int,
) -> RunPart:  # fmt: skip
    return RunPart(
        run_id, kind, value, int(windows), rank_hours, lost_hours, healthy_ns, int(healthy_steps),
        aware_time(first_at), aware_time(last_at),
    )  # fmt: skip


def _pointer(name: str) -> str:
    """Return the JSON pointer of a field."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
