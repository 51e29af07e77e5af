"""The fleet: all runs of a store together (accounting.md §23)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from sfapp.accounting.fleet_hosts import fleet_hosts
from sfapp.model.fleet import Fleet, FleetHost, FleetRun, LostTime
from sfapp.model.search_words import is_found, search_words
from sfapp.model.trends import Trends
from sfapp.service.trends import trends_document

if TYPE_CHECKING:
    from sfapp.store import Store

_STATES = ("ongoing", "past", "healthy")


def fleet_of(store: Store) -> Fleet:
    """Return what the runs of a store show together. Reads no packets."""
    rows = store.fleet()
    of_run: dict[str, list[LostTime]] = defaultdict(list)
    of_stage: dict[str, list[LostTime]] = defaultdict(list)
    for run_id, lost in rows.lost:
        of_run[run_id].append(lost)
        of_stage[lost.stage].append(lost)
    runs = [_with_lost_time(run, of_run[run.run_id]) for run in rows.runs]
    every = [LostTime(stage, *_sums(of)) for stage, of in of_stage.items()]
    return Fleet(
        total_hosts=len({host for run in rows.hosts for host in run.hosts}),
        hosts=fleet_hosts(rows.hosts),
        lost=tuple(sorted(every, key=lambda one: (-max(one.above_healthy, one.imbalance), one.stage))),
        runs=tuple(sorted(runs, key=_urgency)),
    )


def _sums(lost: Sequence[LostTime]) -> tuple[float, float]:
    return sum(one.above_healthy for one in lost), sum(one.imbalance for one in lost)


def _with_lost_time(run: FleetRun, lost: Sequence[LostTime]) -> FleetRun:
    above_healthy, imbalance = _sums(lost)
    return replace(run, above_healthy=above_healthy, imbalance=imbalance)


def _urgency(run: FleetRun) -> tuple[int, float, str]:
    return _STATES.index(run.state), -max(run.above_healthy, run.imbalance), run.run_id


@dataclass(frozen=True, slots=True)
class FleetQuery:
    """Which hosts and runs are listed.

    Attributes:
        text: those whose name or stages contain all its words; all if empty. The chances of hosts are those
            of the whole fleet.
    """

    text: str = ""

    def select(self, fleet: Fleet) -> Fleet:
        """Return the fleet with the hosts and runs that match."""
        words = search_words(self.text)
        if not words:
            return fleet
        hosts = tuple(one for one in fleet.hosts if is_found(words, "", _names_of_host(one)))
        known = {run for one in hosts for run in one.run_ids}
        runs = tuple(
            run
            for run in fleet.runs
            if run.run_id in known or is_found(words, "", f"{run.run_id}\n{run.state}")
        )
        return replace(fleet, hosts=hosts, runs=runs)


def _names_of_host(host: FleetHost) -> str:
    return "\n".join((host.hostname, *(stage for stage, _ in host.stages), *host.run_ids))


def fleet_document(fleet: Fleet, most: int | None = None, trends: Trends | None = None) -> dict[str, Any]:
    """Return a fleet as plain data for JSON (docs/json.md), times as RFC 3339.

    Args:
        most: number of hosts and of runs that are listed; all if None.
        trends: groups of the runs; left out if None.
    """
    return {
        "suspects": [one.hostname for one in fleet.suspects],
        "hosts": _listed(fleet.hosts, most),
        "total_hosts": fleet.total_hosts,
        "lost": _listed(fleet.lost, None),
        "runs": _listed(fleet.runs, most),
        "total_runs": len(fleet.runs),
        **({} if trends is None else {"trends": trends_document(trends)}),
    }


def _listed(found: Iterable[Any], most: int | None) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(one) for one in list(found)[:most]]
