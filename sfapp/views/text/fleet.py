"""What all runs show together, in sentences (accounting.md §23)."""

from __future__ import annotations

from datetime import datetime

from sfapp.model.fleet import Fleet, FleetHost, RunState
from sfapp.views import format

STATE_WORDS: dict[RunState, str] = {
    "ongoing": "needs attention",
    "past": "had problems",
    "healthy": "healthy",
}

_MOST_STAGES = 3


def fleet_headline(fleet: Fleet) -> str:
    """Return the answer to "which host is bad?" in one sentence."""
    runs, hosts = format.counted(len(fleet.runs), "run"), format.counted(fleet.total_hosts, "host")
    suspects = fleet.suspects
    if suspects:
        names = format.listed([format.clip(one.hostname) for one in suspects])
        verb = "has" if len(suspects) == 1 else "have"
        return f"{names} {verb} the late rank in more runs than expected by chance ({hosts} in {runs})"
    if not any(one.compared_runs for one in fleet.hosts):
        return f"No run on several hosts has a late rank ({hosts} in {runs})"
    return f"No host has the late rank in more runs than expected by chance ({hosts} in {runs})"


def host_sentence(host: FleetHost) -> str:
    """Return how often a host was named, against chance, in which stages and since when."""
    of = f"Of {format.counted(host.compared_runs, 'run')} on several hosts with a late rank"
    often = f"{of}, {host.named_runs:,} {'has' if host.named_runs == 1 else 'have'} it on this host"
    chance = f"by chance {_expected(host.expected_runs)} would (chance {format.chance(host.chance)})"
    stages = [f"{format.short_stage(stage)} ({windows:,})" for stage, windows in host.stages]
    windows = format.counted(host.named_windows, "window")
    where = f"{windows} of {host.windows:,}: {format.listed(stages, _MOST_STAGES)}"
    return f"{often}; {chance}. {where[:1].upper()}{where[1:]}.{_since(host.first_at, host.last_at)}"


def _expected(runs: float) -> str:
    return f"{runs:,.0f}" if runs >= 10 else f"{runs:.1f}"


def _since(first: datetime | None, last: datetime | None) -> str:
    if first is None:
        return ""
    until = "" if last is None else f", last {last:%Y-%m-%d %H:%M} UTC"
    return f" First {first:%Y-%m-%d %H:%M} UTC{until}."


def host_advice(host: FleetHost) -> str:
    """Return what to do about a host that is named too often."""
    where = format.in_stage(host.stages[0][0])
    name = format.clip(host.hostname)
    runs = f"{format.count(host.named_runs)} of {format.counted(host.compared_runs, 'run')}"
    return f"Take {name} out of the pool and test it: its ranks are late {where} in {runs}."
