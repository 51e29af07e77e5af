"""A running job in sentences: its state, silent ranks, lost and refused data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sfapp.views import format

STALE_S = 5.0
"""Seconds without data after which a rank is marked as silent."""

_NAMED = 4

Row = Mapping[str, Any]


def standing(ranks: int, silent_s: Mapping[int, float], left: Collection[int]) -> tuple[str, str]:
    """Return the state of the job as a sentence and as ``live``, ``stale`` or ``ended``.

    Args:
        ranks: number of ranks.
        silent_s: by global rank, seconds since its last message; ranks that disconnected are left out.
        left: ranks that disconnected.
    """
    if ranks and len(left) >= ranks:
        return "The job has ended: all ranks disconnected.", "ended"
    newest = min(silent_s.values(), default=None)
    if newest is None or newest > STALE_S:
        return f"No rank has reported for {format.lasting(newest)}.", "stale"
    late = sum(seconds > STALE_S for seconds in silent_s.values())
    if late:
        return f"{format.count(late)} of {format.counted(ranks, 'rank')} silent.", "stale"
    going = ranks - len(left)
    gone = f", {format.count(len(left))} disconnected" if left else ""
    return f"Live: {format.counted(going, 'rank')} reporting{gone}.", "live"


def silences(silent_s: Mapping[int, float]) -> tuple[str, ...]:
    """Return ``rank 12: no data for 34 s``, the longest silence first; many ranks share one line."""
    late = sorted((item for item in silent_s.items() if item[1] > STALE_S), key=lambda item: -item[1])
    if len(late) <= _NAMED:
        return tuple(f"rank {rank}: no data for {format.lasting(seconds)}" for rank, seconds in late)
    shortest = min(seconds for _, seconds in late)
    ranks = format.ranges([rank for rank, _ in late])
    return (f"ranks {ranks}: no data for {format.lasting(shortest)} or longer",)


def counters(links: Sequence[Row], aggregator: Row | None) -> tuple[tuple[str, str, str], ...]:
    """Return counts of lost, duplicate and refused data as (text, ``warn`` or ``muted``, meaning).

    Args:
        links: the newest link sample of every rank.
        aggregator: the newest sample of the aggregator.
    """
    lost = {link["rank"]: link["lost_steps"] for link in links if link["lost_steps"]}
    ranks = f" by rank {format.ranges(lost)}" if lost else ""
    twice = sum(link["duplicates"] for link in links)
    sample = aggregator or {"malformed": 0, "oversized": 0, "newer_version": 0, "last_fault": ""}
    refused = {
        "malformed": sample["malformed"],
        "oversized": sample["oversized"],
        "of a newer version": sample["newer_version"],
    }
    total = sum(refused.values())
    kinds = format.listed([f"{format.count(count)} {kind}" for kind, count in refused.items() if count])
    detail = f"{kinds}; the newest from {sample['last_fault']}" if total else "no message was refused"
    return (
        (
            f"{format.counted(sum(lost.values()), 'step')} lost{ranks}",
            "warn" if lost else "muted",
            "discarded because the send queue to the aggregator was full; the windows have a gap there",
        ),
        (
            f"{format.counted(twice, 'duplicate')}",
            "muted",
            "steps that arrived more than once; each counts once",
        ),
        (
            f"{format.counted(total, 'message')} refused",
            "warn" if total else "muted",
            format.clip(detail, 240),
        ),
    )
