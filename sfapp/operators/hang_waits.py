"""In which calls ranks of a standing job wait, and for which ranks: by group, sequence number and direction.

Flight Recorder numbers the collectives of a group from 1 on every rank, so the same number is the same call.
A rank whose newest number is lower has not made the call. Sends and receives are numbered over all peers of a
rank, so those numbers are not comparable between ranks: pending ones are counted by pair and direction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sfapp.model.calls import ROOTED, CallGroup, JobCalls, PendingCall

WaitReason = Literal["not_called", "mismatch", "no_dump", "unfinished"]


@dataclass(frozen=True, slots=True)
class Wait:
    """Ranks of a group that wait in a call, and the ranks that they wait for.

    Attributes:
        reason: ``not_called`` if the held ranks have not made the call, ``mismatch`` if they called something
            else under its number, ``no_dump`` if their dumps are absent and all others called it,
            ``unfinished`` if all called it and it has not completed on any.
        call: its kind, of the waiting ranks: ``all_reduce``, ``send``.
        sequence: its number; for sends and receives the waiting rank's number of its newest one.
        other_call: what the held ranks called instead, for ``mismatch``; else empty.
        transfer: whether it is a send or receive.
        doubtful: whether the waiting rank has a lag, so that its transfers may have completed.
    """

    group: CallGroup
    reason: WaitReason
    call: str
    sequence: int
    waiting: tuple[int, ...]
    held_by: tuple[int, ...]
    other_call: str = ""
    transfer: bool = False
    doubtful: bool = False

    @property
    def is_strict(self) -> bool:
        """Return whether the call cannot complete until the held ranks do something else."""
        return self.reason in ("not_called", "mismatch")


@dataclass(frozen=True, slots=True)
class Lag:
    """A collective that completed on other ranks of the group and is pending on this one.

    Its device did its part, so the device or the watchdog of this rank stopped afterwards.
    """

    rank: int
    group: CallGroup
    call: str
    sequence: int
    completed_on: tuple[int, ...]


def waits_of(job: JobCalls) -> tuple[list[Wait], list[Lag]]:
    """Return the waits of all groups, and the first lag of each rank that has one, by rank."""
    waits: list[Wait] = []
    lags: dict[int, Lag] = {}
    collectives = {
        number: _without_lags(job, number, pending, lags)
        for number, pending in sorted(_by_group(job, transfers=False).items())
        if len(job.groups[number].ranks) > 1
    }
    for number, pending in collectives.items():
        waits += _collective_waits(job, number, pending, lags)
    for number, transfers in _by_group(job, transfers=True).items():
        waits += _transfer_waits(job, job.groups[number], transfers, lags)
    return waits, [lags[rank] for rank in sorted(lags)]


def _by_group(job: JobCalls, *, transfers: bool) -> dict[int, dict[int, list[PendingCall]]]:
    found: dict[int, dict[int, list[PendingCall]]] = {}
    for rank, calls in job.ranks.items():
        for call in calls.pending:
            if (call.peer is not None) == transfers:
                found.setdefault(call.group, {}).setdefault(rank, []).append(call)
    return found


def _without_lags(
    job: JobCalls, number: int, pending: dict[int, list[PendingCall]], lags: dict[int, Lag]
) -> dict[int, dict[int, PendingCall]]:
    """Return pending calls by rank and sequence number, without those that completed on another rank, which
    are noted as lags."""
    group = job.groups[number]
    completed = {rank: job.ranks[rank].completed.get(number, -1) for rank in group.ranks if rank in job.ranks}
    newest = max(completed.values(), default=-1)
    kept: dict[int, dict[int, PendingCall]] = {}
    for rank, calls in pending.items():
        for call in calls:
            if call.sequence > newest:
                kept.setdefault(rank, {})[call.sequence] = call
            elif call.kind not in ROOTED and rank not in lags:
                elsewhere = tuple(each for each, done in completed.items() if done >= call.sequence)
                lags[rank] = Lag(rank, group, call.kind, call.sequence, elsewhere)
    return kept


def _collective_waits(
    job: JobCalls, number: int, pending: dict[int, dict[int, PendingCall]], lags: Mapping[int, Lag]
) -> Iterator[Wait]:
    """Yield the waits of one group's collectives.

    All ranks of the group call its collectives in one order, so the first number that a rank lacks decides:
    ranks with that call or a later one pending wait for the ranks without it. What is pending on a rank with
    a lag may have completed, so only ranks that lack a call hold it.
    """
    if not pending:
        return
    group = job.groups[number]
    first = min(min(calls) for calls in pending.values())
    known = {
        rank: job.ranks[rank].called[number]
        for rank in group.ranks
        if rank in job.ranks and number in job.ranks[rank].called
    }
    # A rank whose dump does not name the group has not made the first call that is pending on others.
    absent = {rank: first - 1 for rank in group.ranks if rank in job.ranks and rank not in known}
    called = known | absent
    last_common = min(called.values())
    differing = _mismatch(group, pending)
    if differing is not None and differing.sequence <= last_common + 1:
        yield differing
        if differing.sequence <= last_common:
            return
    elif first <= last_common:
        yield from _unfinished(job, group, first, pending, lags)
    callers = {rank: calls for rank, calls in pending.items() if max(calls) > last_common}
    if not callers:
        return
    sequence = min(each for calls in callers.values() for each in calls if each > last_common)
    missing = tuple(rank for rank in group.ranks if called.get(rank, sequence) < sequence)
    if missing:
        kind = next(calls[sequence].kind for calls in callers.values() if sequence in calls)
        yield Wait(group, "not_called", kind, sequence, tuple(sorted(callers)), missing)


def _unfinished(
    job: JobCalls,
    group: CallGroup,
    first: int,
    pending: Mapping[int, Mapping[int, PendingCall]],
    lags: Mapping[int, Lag],
) -> Iterator[Wait]:
    """Yield the wait in a call that all ranks with a dump have made: for those without a dump, if any."""
    inside = {rank: calls[first] for rank, calls in pending.items() if first in calls}
    kind = next(iter(inside.values())).kind
    waiting = tuple(sorted(inside.keys() - lags.keys()))
    if not waiting:
        return
    if unknown := tuple(rank for rank in group.ranks if rank not in job.ranks):
        yield Wait(group, "no_dump", kind, first, waiting, unknown)
        return
    # A device that has not started the call is busy with something else, where starts are recorded.
    idle = tuple(sorted(rank for rank, call in inside.items() if not call.started))
    held_by = idle if 0 < len(idle) < len(inside) else tuple(sorted(inside))
    yield Wait(group, "unfinished", kind, first, waiting, held_by)


def _mismatch(group: CallGroup, pending: Mapping[int, Mapping[int, PendingCall]]) -> Wait | None:
    """Return the first number under which ranks called different things; the fewer ranks hold the others, or
    all each other if there is no majority."""
    for sequence in sorted({each for calls in pending.values() for each in calls}):
        made = {rank: calls[sequence] for rank, calls in pending.items() if sequence in calls}
        votes = Counter((call.kind, call.signature) for call in made.values())
        if len(votes) < 2:
            continue
        (winner, most), (_, next_most) = votes.most_common(2)
        few = tuple(sorted(rank for rank, call in made.items() if (call.kind, call.signature) != winner))
        other = made[few[0]]
        call, other_call = _described(*winner), _described(other.kind, other.signature)
        if most == next_most:
            everyone = tuple(sorted(made))
            return Wait(group, "mismatch", call, sequence, everyone, everyone, other_call)
        many = tuple(sorted(set(made) - set(few)))
        return Wait(group, "mismatch", call, sequence, many, few, other_call)
    return None


def _described(kind: str, signature: str) -> str:
    return f"{kind} ({signature})" if signature else kind


def _transfer_waits(
    job: JobCalls, group: CallGroup, pending: Mapping[int, list[PendingCall]], lags: Mapping[int, Lag]
) -> Iterator[Wait]:
    """Yield the waits in sends and receives of a group: the side with more pending calls has the newer ones.

    A rank with a lag keeps completed transfers pending: of its waits, only those for a side that seems to
    lack a call are yielded, as doubtful.
    """
    counts: dict[tuple[int, int], dict[str, tuple[int, PendingCall]]] = {}
    for rank, calls in pending.items():
        for call in calls:
            if call.peer is None:
                continue
            channel = (rank, call.peer) if call.kind == "send" else (call.peer, rank)
            sides = counts.setdefault(channel, {})
            sides[call.kind] = (sides[call.kind][0] + 1 if call.kind in sides else 1, call)
    for (source, target), sides in sorted(counts.items()):
        for kind, rank, peer in (("send", source, target), ("recv", target, source)):
            if kind not in sides:
                continue
            count, call = sides[kind]
            matched = sides["recv" if kind == "send" else "send"][0] if len(sides) > 1 else 0
            known = peer in job.ranks
            reason: WaitReason = "no_dump" if not known else "not_called" if count > matched else "unfinished"
            doubtful = rank in lags
            if doubtful and reason != "not_called":
                continue
            yield Wait(group, reason, kind, call.sequence, (rank,), (peer,), "", True, doubtful)
            if reason == "not_called" and matched and not doubtful:
                yield Wait(group, "unfinished", kind, call.sequence, (rank,), (peer,), transfer=True)
