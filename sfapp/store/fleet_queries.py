"""Query the store for what its runs show together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sfapp.accounting.fleet_hosts import NamedHost, RunHosts
from sfapp.model.fleet import FleetRun, LostTime
from sfapp.store.database import Database
from sfapp.store.window_queries import aware_time

RANK_HOURS = "(ranks + len(missing_ranks)) / 3.6e12"
"""Rank-hours of one nanosecond of a window; missing ranks wait as well."""


@dataclass(frozen=True, slots=True)
class FleetRows:
    """All runs of a store.

    Attributes:
        hosts: hosts of each run, and those that had the late rank.
        lost: each run with the time that it lost in one stage.
        runs: each run with its state; the time that it lost is not filled in.
    """

    hosts: list[RunHosts]
    lost: list[tuple[str, LostTime]]
    runs: list[FleetRun]


def fleet(database: Database) -> FleetRows:
    """Return all runs of the store, by run."""
    return FleetRows(_run_hosts(database), _lost_time(database), _runs(database))


def _run_hosts(database: Database) -> list[RunHosts]:
    hosts = database.tuples(
        """
        SELECT run_id, list(DISTINCT host ORDER BY host), any_value(windows)
        FROM (SELECT run_id, unnest(hostnames) AS host FROM packets WHERE state = 'shown')
        JOIN (SELECT run_id, count(*) AS windows FROM windows GROUP BY run_id) USING (run_id)
        GROUP BY run_id ORDER BY run_id
        """
    )
    named = _named(database)
    return [RunHosts(run, tuple(of_run), windows, named[run]) for run, of_run, windows in hosts]


def _named(database: Database) -> dict[str, dict[str, NamedHost]]:
    """Return the hosts that had the late rank, by run."""
    rows = database.tuples(
        """
        SELECT run_id, aim_hostname, aim_stage, count(*), min(started_at), max(ended_at)
        FROM windows WHERE needs_attention AND aim_rank IS NOT NULL AND aim_hostname IS NOT NULL
        GROUP BY run_id, aim_hostname, aim_stage ORDER BY run_id, aim_hostname, aim_stage
        """
    )
    stages: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    times: dict[tuple[str, str], tuple[list[datetime], list[datetime]]] = defaultdict(lambda: ([], []))
    for run, host, stage, windows, first, last in rows:
        stages[run, host][stage] = windows
        for moment, known in zip((first, last), times[run, host], strict=True):
            if moment is not None:
                known.append(moment)
    named: dict[str, dict[str, NamedHost]] = defaultdict(dict)
    for (run, host), of_host in stages.items():
        first, last = times[run, host]
        named[run][host] = NamedHost(
            of_host, aware_time(min(first, default=None)), aware_time(max(last, default=None))
        )
    return named


def _lost_time(database: Database) -> list[tuple[str, LostTime]]:
    # Where every window of a run has late ranks, the fastest stands for a healthy one: it is none.
    rows = database.tuples(
        f"""
        SELECT run_id, stage,
            coalesce(sum(delta_ns * steps * {RANK_HOURS}) FILTER (is_healthy), 0.0),
            coalesce(sum(coalesce(carry_over_excess, excess) * step_mean_ns * steps * {RANK_HOURS}), 0.0)
        FROM stages JOIN windows USING (run_id, "window")
        LEFT JOIN (SELECT run_id, NOT bool_or(needs_attention) AS is_healthy
                   FROM windows WHERE is_reference GROUP BY run_id) USING (run_id)
        GROUP BY run_id, stage ORDER BY run_id, stage
        """
    )
    return [(run, LostTime(*lost)) for run, *lost in rows]


def _runs(database: Database) -> list[FleetRun]:
    rows = database.tuples(
        """
        SELECT run_id, max(ranks), max(nodes), count(*),
            count(*) FILTER (needs_attention OR lacks_data),
            arg_max(needs_attention OR lacks_data, "window"), min(started_at), max(ended_at)
        FROM windows GROUP BY run_id ORDER BY run_id
        """
    )
    return [_run(*row) for row in rows]


def _run(
    run_id: str, ranks: int, nodes: int, windows: int, troubled: int, is_ongoing: bool, first: Any, last: Any
) -> FleetRun:
    return FleetRun(
        run_id=run_id,
        state="ongoing" if is_ongoing else "past" if troubled else "healthy",
        ranks=ranks,
        nodes=nodes,
        windows=windows,
        troubled_windows=troubled,
        started_at=aware_time(first),
        ended_at=aware_time(last),
        above_healthy=0.0,
        imbalance=0.0,
    )
