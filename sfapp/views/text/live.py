"""A job while it runs, in sentences: who is silent, what was lost, whether it goes on at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sfapp.views import format

STALE_S = 5.0
"""A rank that has said nothing for longer is marked."""

_NAMED = 4

Row = Mapping[str, Any]


def standing(ranks: int, silent_s: Mapping[int, float], left: Collection[int]) -> tuple[str, str]:
    """How the job is heard of, and what kind of news that is: ``live``, ``stale`` or ``ended``.

    Args:
        ranks: how many there are.
        silent_s: by global rank, seconds since anything was heard of it, of those that have not left.
        left: ranks that said goodbye.
    """
    if ranks and len(left) >= ranks:
        return "The job has ended: every rank said goodbye.", "ended"
    newest = min(silent_s.values(), default=None)
    if newest is None or newest > STALE_S:
        return f"Nothing was heard of any rank for {format.lasting(newest)}.", "stale"
    late = sum(seconds > STALE_S for seconds in silent_s.values())
    if late:
        return f"{format.count(late)} of {format.counted(ranks, 'rank')} silent.", "stale"
    going = ranks - len(left)
    gone = f", {format.count(len(left))} left" if left else ""
    return f"Live: {format.counted(going, 'rank')} heard of{gone}.", "live"


def silences(silent_s: Mapping[int, float]) -> tuple[str, ...]:
    """``rank 12: no data for 34 s``, the longest silence first; many are told together."""
    late = sorted((item for item in silent_s.items() if item[1] > STALE_S), key=lambda item: -item[1])
    if len(late) <= _NAMED:
        return tuple(f"rank {rank}: no data for {format.lasting(seconds)}" for rank, seconds in late)
    shortest = min(seconds for _, seconds in late)
    ranks = format.ranges([rank for rank, _ in late])
    return (f"ranks {ranks}: no data for {format.lasting(shortest)} or longer",)


def counters(links: Sequence[Row], aggregator: Row | None) -> tuple[tuple[str, str, str], ...]:
    """What was lost, came twice or could not be used: (text, ``warn`` or ``muted``, what it means).

    Args:
        links: the newest link sample of every rank.
        aggregator: the newest sample of the aggregator.
    """
    lost = {link["rank"]: link["lost_steps"] for link in links if link["lost_steps"]}
    who = f" by rank {format.ranges(lost)}" if lost else ""
    twice = sum(link["duplicates"] for link in links)
    heard = aggregator or {"malformed": 0, "oversized": 0, "newer_version": 0, "last_fault": ""}
    refused = {
        "malformed": heard["malformed"],
        "oversized": heard["oversized"],
        "of a newer version": heard["newer_version"],
    }
    total = sum(refused.values())
    kinds = format.listed([f"{format.count(count)} {kind}" for kind, count in refused.items() if count])
    said = f"{kinds}; the newest from {heard['last_fault']}" if total else "every message could be used"
    return (
        (
            f"{format.counted(sum(lost.values()), 'step')} lost{who}",
            "warn" if lost else "muted",
            "discarded because what waits for the aggregator had grown too large; a gap in the windows",
        ),
        (
            f"{format.counted(twice, 'duplicate')}",
            "muted",
            "steps that were sent again though they had arrived; each counts once",
        ),
        (
            f"{format.counted(total, 'message')} refused",
            "warn" if total else "muted",
            format.clip(said, 240),
        ),
    )
