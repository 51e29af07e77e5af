"""Find the ranks that block a stalled job (docs/hangs.md).

Ranks and the calls they wait in form a graph: a rank points to its call, the call to the ranks that it waits
for. Ranks from which no path leads on are the first cause; all others are victims. Ranks that wait for each
other form one component, within which weaker kinds of waits are left out to find the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sfapp.model.calls import JobCalls
from sfapp.model.standstill import CERTAINTIES, Certainty
from sfapp.operators.hang_waits import Lag, Wait, waits_of

EvidenceKind = Literal[
    "not_called", "mismatch", "no_dump", "unfinished", "no_entries", "lag", "out_of_step", "waits_itself"
]


@dataclass(frozen=True, slots=True)
class HangEvidence:
    """One reason to suspect a rank.

    Attributes:
        kind: a ``WaitReason`` of other ranks, or what the rank's own dump shows.
        wait: the wait of other ranks, if any; for ``waits_itself`` and ``out_of_step`` the rank's own.
        last_called: the rank's newest number in the wait's group; None if unknown or for transfers.
    """

    kind: EvidenceKind
    wait: Wait | None = None
    last_called: int | None = None
    lag: Lag | None = None


@dataclass(frozen=True, slots=True)
class HangSuspect:
    """A rank that may hold the job.

    Attributes:
        certainty: ``shown`` if others wait for the rank and it waits for none; ``likely`` if it is the best
            explanation among ranks that wait for each other, or the only rank without a dump that others wait
            for and no other rank is shown; ``possible`` otherwise.
        waiting: number of ranks that wait for it directly.
    """

    rank: int
    certainty: Certainty
    evidence: tuple[HangEvidence, ...]
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Hang:
    """Which ranks hold a job.

    Attributes:
        suspects: first cause first.
        waits: by group, all waits, those of the suspects first.
        lags: ranks on which calls are pending that completed on others; a second fault, or a victim whose
            watchdog stopped. They need not be suspects.
    """

    suspects: tuple[HangSuspect, ...]
    waits: tuple[Wait, ...]
    lags: tuple[Lag, ...]
    ranks_with_dump: tuple[int, ...]
    ranks_without_entries: tuple[int, ...]
    ranks_without_dump: tuple[int, ...]


@dataclass(slots=True)
class _Found:
    """Suspects by rank while they are collected; the first certainty given to a rank stays."""

    job: JobCalls
    waits: Sequence[Wait]
    held: dict[int, list[Wait]]
    lags: dict[int, Lag]
    suspects: dict[int, HangSuspect] = field(default_factory=dict)
    _position: dict[int, int] = field(init=False)
    _of_absent: dict[tuple[int, ...], tuple[tuple[HangEvidence, ...], int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # By identity: comparing groups of thousands of ranks takes as long as reading their dumps.
        self._position = {id(group): at for at, group in enumerate(self.job.groups)}

    def add(self, rank: int, certainty: Certainty, *more: HangEvidence) -> None:
        if rank in self.suspects:
            return
        waits = self.held.get(rank, [])
        if rank not in self.job.ranks:
            evidence, waiting = self._without_dump(waits)
            self.suspects[rank] = HangSuspect(rank, certainty, more + evidence if more else evidence, waiting)
            return
        waits = _strongest(waits)
        found = list(more)
        if not self.job.ranks[rank].entries:
            found.append(HangEvidence("no_entries"))
        if rank in self.lags:
            found.append(HangEvidence("lag", lag=self.lags[rank]))
        found += [HangEvidence(wait.reason, wait, self._last_called(rank, wait)) for wait in waits]
        self.suspects[rank] = HangSuspect(rank, certainty, tuple(found), len(_waiting(waits) - {rank}))

    def _without_dump(self, waits: Sequence[Wait]) -> tuple[tuple[HangEvidence, ...], int]:
        """Return the evidence about a rank without a dump, and the number of ranks that wait for it.

        Thousands of ranks may have no dump: those in the same waits share their evidence.
        """
        key = tuple(map(id, waits))
        if key not in self._of_absent:
            strongest = _strongest(waits)
            evidence = tuple(HangEvidence(wait.reason, wait) for wait in strongest)
            self._of_absent[key] = evidence or (HangEvidence("no_dump"),), len(_waiting(strongest))
        return self._of_absent[key]

    def _last_called(self, rank: int, wait: Wait) -> int | None:
        return None if wait.transfer else self.job.ranks[rank].called.get(self.position(wait))

    def position(self, wait: Wait) -> int:
        """Return the number of a wait's group."""
        return self._position[id(wait.group)]

    def has(self, certainty: Certainty) -> bool:
        return any(suspect.certainty == certainty for suspect in self.suspects.values())


def _strongest(waits: Sequence[Wait]) -> list[Wait]:
    """Return the strict waits if there are any, else all; the strongest first."""
    strict = [wait for wait in waits if wait.is_strict]
    return sorted(strict or waits, key=_weakness)


def _waiting(waits: Iterable[Wait]) -> set[int]:
    return {rank for wait in waits for rank in wait.waiting}


def _weakness(wait: Wait) -> tuple[bool, bool, int]:
    return not wait.is_strict, wait.transfer, -len(wait.waiting)


def find_hang(job: JobCalls) -> Hang:
    """Return which ranks hold the job, first cause first; no suspects if no rank waits."""
    waits, lags = waits_of(job)
    held: dict[int, list[Wait]] = {}
    for wait in waits:
        for rank in wait.held_by:
            held.setdefault(rank, []).append(wait)
    found = _Found(job, waits, held, {lag.rank: lag for lag in lags})
    unresolved = []
    firm = _last_components([wait for wait in waits if not wait.doubtful])
    alone = {rank for component in _last_components(waits) if len(component) == 1 for rank in component}
    for component in firm:
        if component & held.keys():
            if len(component) == 1:
                _add_single(found, *component, doubtful=not component <= alone)
            elif any(wait.is_strict for rank in component for wait in held.get(rank, ())):
                _add_cycle(found, component)
            else:
                unresolved.append(component)
    for rank in alone & held.keys() & job.ranks.keys():
        # The first cause if the doubtful waits are true; else the rank with the lag is, which is likely, too.
        if frozenset((rank,)) not in firm:
            found.add(rank, "likely")
    _add_without_dump(found)
    if not found.suspects:
        for component in unresolved:
            _add_unfinished(found, component)
    if not found.suspects:
        for rank in found.lags:
            found.add(rank, "likely")
    if waits:
        _add_silent(found)
    order = sorted(
        found.suspects.values(),
        key=lambda each: (CERTAINTIES.index(each.certainty), -each.waiting, each.rank),
    )
    # By identity: the hash of a wait looks at all its ranks.
    first = {id(wait): at for at, wait in enumerate(e.wait for s in order for e in s.evidence if e.wait)}
    return Hang(
        tuple(order),
        tuple(sorted(waits, key=lambda wait: (first.get(id(wait), len(first)), not wait.is_strict))),
        tuple(lags),
        tuple(job.ranks),
        tuple(rank for rank, calls in job.ranks.items() if not calls.entries),
        tuple(rank for rank in job.world if rank not in job.ranks),
    )


def _add_single(found: _Found, rank: int, *, doubtful: bool) -> None:
    """Add a rank that others wait for and that waits for none, or at most in doubtful calls; ranks without a
    dump are added later."""
    if rank not in found.job.ranks or rank not in found.held:
        return
    strict = any(wait.is_strict for wait in found.held[rank])
    found.add(rank, "shown" if strict and not doubtful else "likely")


def _add_cycle(found: _Found, component: frozenset[int]) -> None:
    """Add ranks that wait for each other: a rank out of step leads, else the one that most wait for."""
    deviant = _out_of_step(found, component)
    best = set(deviant) if len(deviant) == 1 else _most_waited_for(found, component)
    for rank in sorted(component):
        more = [HangEvidence("out_of_step", deviant[rank])] if rank in deviant else []
        own = (
            wait for wait in found.waits if rank in wait.waiting and component & set(wait.held_by) - {rank}
        )
        more += [HangEvidence("waits_itself", wait) for wait in sorted(own, key=_weakness)[:1]]
        found.add(rank, "likely" if rank in best else "possible", *more)


def _most_waited_for(found: _Found, component: frozenset[int]) -> set[int]:
    """Return the ranks for which more than half of the others of a component wait, if not all are such.

    Ranks in one call agree with each other, so the more of them there are, the likelier is the fault
    elsewhere. Ranks outside are not counted: they are victims, and their number depends on the groups' sizes.
    """
    most = set()
    for rank in component & found.held.keys():
        waiting = {each for wait in found.held[rank] if wait.is_strict for each in wait.waiting}
        if len(waiting & component - {rank}) * 2 > len(component) - 1:
            most.add(rank)
    return most if len(most) < len(component) else set()


def _out_of_step(found: _Found, component: frozenset[int]) -> dict[int, Wait]:
    """Return ranks of a component that made a call after another number of calls in other groups than all
    other ranks of the call, which agree: they skipped a call, or made one too many."""
    deviant: dict[int, Wait] = {}
    for wait in found.waits:
        if wait.transfer or not component & set(wait.waiting):
            continue
        group = found.position(wait)
        before = {
            rank: call.before
            for rank in wait.waiting
            for call in found.job.ranks[rank].pending
            if call.group == group and call.sequence == wait.sequence and call.before
        }
        names = set.intersection(*map(set, before.values())) if before else set()
        seen = {rank: tuple(numbers[name] for name in sorted(names)) for rank, numbers in before.items()}
        for rank in component & seen.keys():
            others = {each: numbers for each, numbers in seen.items() if each != rank}
            independent = len(others) > 1 or not component & others.keys()
            if (
                others
                and independent
                and len(set(others.values())) == 1
                and seen[rank] not in others.values()
            ):
                deviant[rank] = wait
    return deviant


def _add_unfinished(found: _Found, component: frozenset[int]) -> None:
    """Add the ranks of a call that all have made: those whose device has not started it, if starts are
    recorded, else all of them."""
    idle = {
        rank for wait in found.waits if set(wait.held_by) < set(wait.waiting) for rank in wait.held_by
    } & component
    for rank in sorted(component):
        found.add(rank, "likely" if rank in idle else "possible")


def _add_without_dump(found: _Found) -> None:
    """Add ranks without a dump that others wait for."""
    unknown = [rank for rank in found.held if rank not in found.job.ranks]
    for rank in unknown:
        alone = len(unknown) == 1 and not found.has("shown")
        found.add(rank, "likely" if alone else "possible")


def _add_silent(found: _Found) -> None:
    """Add ranks without a dump or without entries for which no rank is seen to wait.

    A rank without entries is left out if its counters show that it made all calls that are pending.
    """
    job = found.job
    pending = {call.group for calls in job.ranks.values() for call in calls.pending}
    for rank in job.world:
        if rank not in job.ranks:
            found.add(rank, "possible")
        elif not job.ranks[rank].entries:
            mine = {at for at in pending if rank in job.groups[at].ranks}
            if not mine or not mine <= job.ranks[rank].called.keys():
                found.add(rank, "possible")


def _last_components(waits: Sequence[Wait]) -> list[frozenset[int]]:
    """Return the sets of ranks that wait for each other and for no rank outside: strongly connected
    components without an edge that leaves them. A rank that waits for none is one by itself.

    Ranks are nodes r ≥ 0, waits are nodes −1 − position.
    """
    after: dict[int, list[int]] = {}
    for position, wait in enumerate(waits):
        after[-1 - position] = list(wait.held_by)
        for rank in wait.waiting:
            after.setdefault(rank, []).append(-1 - position)
        for rank in wait.held_by:
            after.setdefault(rank, [])
    component_of = _components(after)
    leaves = {
        component_of[node]
        for node, nexts in after.items()
        for each in nexts
        if component_of[each] != component_of[node]
    }
    members: dict[int, set[int]] = {}
    for node, component in component_of.items():
        if node >= 0 and component not in leaves:
            members.setdefault(component, set()).add(node)
    return [frozenset(each) for each in members.values()]


def _components(after: dict[int, list[int]]) -> dict[int, int]:
    """Return the number of each node's strongly connected component (Tarjan 1972), without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    open_nodes: list[int] = []
    for start in after:
        if start in index:
            continue
        path: list[tuple[int, Iterable[int]]] = []
        node = start
        while True:
            index[node] = low[node] = len(index)
            open_nodes.append(node)
            path.append((node, iter(after[node])))
            node = -1
            while path:
                at, nexts = path[-1]
                new = None
                for each in nexts:
                    if each not in index:
                        new = each
                        break
                    if each not in component:
                        low[at] = min(low[at], index[each])
                if new is not None:
                    node = new
                    break
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[at])
                if low[at] == index[at]:
                    while True:
                        member = open_nodes.pop()
                        component[member] = at
                        if member == at:
                            break
            else:
                break
    return component
