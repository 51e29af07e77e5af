"""Describe a running job: its state, silent ranks, lost and refused data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sfapp.accounting import Onset, RollingVerdict, StepReports
from sfapp.model import RankTable
from sfapp.views import format

STALE_S = 5.0
"""Seconds without data after which a rank is marked as silent."""

_NAMED = 4

_MOMENT = 2
"""Number of steps up to which a late rank counts as transient."""

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


Tone = Literal["live", "warn", "alarm", "ended"]


@dataclass(frozen=True, slots=True)
class RollingWords:
    """A rolling verdict in words.

    Attributes:
        headline: one sentence. details: further ones, the most important first.
        tone: ``live`` if nothing is wrong, ``warn`` if it needs a look, ``alarm`` if it needs action.
    """

    headline: str
    details: tuple[str, ...]
    tone: Tone


def rolling_words(found: RollingVerdict, onset: Onset | None = None) -> RollingWords:
    """Return the rolling verdict on the last steps in words.

    Args:
        onset: the observed onset of the effect.
    """
    effect, details = _effect(found, onset)
    if found.kind == "ended":
        return RollingWords("The job has ended: all ranks disconnected.", tuple(effect), "ended")
    if found.kind == "standing":
        calls = _calls(found.roll)
        named = calls[:1] if found.roll.absent or found.roll.silent else []
        details = (*calls[len(named) :], *effect)
        return RollingWords(_standing_still(found, named), details, "alarm")
    if found.kind == "incomplete":
        missing, *more = _calls(found.roll)
        others = [f"Of the other ranks: {part}" for part in effect]
        if found.diagnosis is not None and not effect:
            others = [f"No other rank holds the job over the last {found.steps} steps"]
        return RollingWords(f"Incomplete data: {missing}", (*more, *others, *details), "alarm")
    if found.kind == "starting":
        return RollingWords("Waiting for the first steps that all ranks have finished.", (), "live")
    if found.kind == "healthy":
        return RollingWords(
            f"Healthy: no rank holds the job over the last {found.steps} steps, "
            f"{format.duration(found.step_ns)} per step",
            (),
            "live",
        )
    return RollingWords(effect[0], details, "warn" if _is_over(found) else "alarm")


def _is_over(found: RollingVerdict) -> bool:
    """Return whether late ranks are no longer late, or were late only for a moment."""
    return found.until_step is not None or found.late_steps <= _MOMENT


def rolling_subject(ranks: Collection[int], table: RankTable | None) -> tuple[str, bool]:
    """Return late ranks as the subject of a sentence, and whether that is plural: ``Rank 2``, ``Node 1 (ranks
    4–7)``."""
    if len(ranks) == 1:
        return f"Rank {next(iter(ranks))}", False
    listed = f"ranks {format.ranges(ranks)}"
    if table is not None:
        nodes = {node for rank, node in zip(table.rank, table.node_rank, strict=True) if rank in ranks}
        members = [rank for rank, node in zip(table.rank, table.node_rank, strict=True) if node in nodes]
        if len(nodes) == 1 and len(table.nodes) > 1 and set(members) == set(ranks):
            return f"Node {next(iter(nodes))} ({listed})", False
    return listed.capitalize(), True


def _effect(found: RollingVerdict, onset: Onset | None) -> tuple[list[str], tuple[str, ...]]:
    """Return the finding as a list of one sentence, empty if there is none, and details on it."""
    finding, step_ns = found.finding, found.step_ns
    if finding is None or step_ns is None or found.diagnosis is None:
        return [], ()
    where = format.in_stage(finding.stage)
    size = format.duration(finding.effect * step_ns)
    interval = _interval(finding.low * step_ns, finding.high * step_ns)
    if finding.kind == "growth":
        sentence = (
            f"All ranks are slower {where}: {size} ({interval}) of {format.duration(step_ns)} per step more "
            f"than in healthy windows, over the last {found.steps} steps"
        )
        return [sentence], ("95 % interval in brackets.",)
    table = None if found.measures is None else found.measures.window.ranks
    subject, is_plural = rolling_subject(finding.ranks, table)
    verb = "held" if _is_over(found) else "hold" if is_plural else "holds"
    end = "" if found.until_step is None else f" until step {found.until_step}"
    sentence = (
        f"{subject} {verb} the job {where}{end}: {size} ({interval}) of {format.duration(step_ns)} per step, "
        f"in {found.late_steps} of the last {found.steps} steps"
    )
    began, is_exact = found.since_step or found.diagnosis.first_step, found.since_step is not None
    if onset is not None:
        began, is_exact = onset.began, onset.is_exact
    since = f"since step {began}{'' if is_exact else ' or earlier'}"
    host = f" on {format.clip(finding.hostname)}" if finding.hostname else ""
    each = finding.effect * step_ns * found.steps / max(1, found.late_steps)
    in_each = f", {format.duration(each)} in each of these steps" if found.late_steps < found.steps else ""
    return [sentence], (f"Rank {finding.ranks[0]}{host}, {since}{in_each}. 95 % interval in brackets.",)


def _interval(low_ns: float, high_ns: float) -> str:
    unit = format.unit_for(high_ns)
    digits = 2 if high_ns / unit.ns < 9.995 else 1
    return f"{low_ns / unit.ns:.{digits}f}–{high_ns / unit.ns:.{digits}f} {unit.name}"


def _standing_still(found: RollingVerdict, named: Sequence[str]) -> str:
    """Return since when no step has ended, and why.

    Args:
        named: sentence on ranks that do not report, the most likely cause.
    """
    roll = found.roll
    text = f"Standing still for {format.lasting(roll.idle_s)} after step {roll.newest_step}: "
    if named:
        return f"{text}{named[0]}"
    late = sorted(rank for rank, _ in roll.behind)
    if not late:
        return f"{text}all ranks have finished it, and none the next one"
    return f"{text}{_ranks(late)} {'has' if len(late) == 1 else 'have'} not finished it"


def _calls(roll: StepReports) -> list[str]:
    """Return a sentence for each group of ranks that have not reported."""
    found = []
    if roll.absent:
        found.append(f"{_ranks(roll.absent)} {'has' if len(roll.absent) == 1 else 'have'} never reported")
    if roll.silent:
        ranks = [rank for rank, _ in roll.silent]
        shortest = format.lasting(min(seconds for _, seconds in roll.silent))
        longer = " or longer" if len(ranks) > 1 else ""
        if roll.reporting:
            found.append(f"no message from {_ranks(ranks)} for {shortest}{longer}")
        else:
            found.append(f"no message from any rank for {shortest}; look at the job, network and aggregator")
    late = {rank: step for rank, step in roll.behind if rank in roll.apart and step is not None}
    if late and roll.newest_step is not None:
        verb = "is" if len(late) == 1 else "are"
        behind = format.counted(roll.newest_step - min(late.values()), "step")
        found.append(f"{_ranks(late)} {verb} {behind} behind{' at most' if len(late) > 1 else ''}")
    others = [rank for rank in roll.apart if rank not in late]
    if others:
        verb = "reports" if len(others) == 1 else "report"
        found.append(f"{_ranks(others)} {verb} other stages or other steps than most ranks")
    return found


def _ranks(ranks: Collection[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format.ranges(ranks)}"
