"""Jobs that stand still, simulated: ranks run programs of calls over nested groups until none can go on.

The simulator knows which ranks are broken. It leaves dumps as torch writes them, which the tests read as
files of a real job are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import msgspec

from sfapp.importers.recorded_calls import CallReader, HangDump
from sfapp.model.calls import JobCalls

MOST_PENDING = 6
"""Calls in flight after which a rank's host waits for the oldest."""


WAIT_FOR_ONE = "wait"
"""No call: the host waits for the oldest receive from a peer whose data it has not used."""


@dataclass(frozen=True)
class Op:
    """One call of a program; ``blocks`` if the host waits for it, ``peer`` for sends and receives."""

    group: str
    kind: str
    size: int = 8
    blocks: bool = True
    peer: int | None = None


@dataclass
class HangJob:
    """Groups by name with description and ranks, and each rank's program."""

    groups: dict[str, tuple[str, tuple[int, ...]]]
    programs: dict[int, list[Op]]


def grid_job(
    tensor: int,
    data: int,
    stages: int,
    *,
    blocking: frozenset[str],
    steps: int = 2,
    microbatches: int = 2,
    ahead: bool = False,
) -> HangJob:
    """Return a job of nested groups: tensor, expert (all of a stage), pipeline, data, and the world.

    Each step: per microbatch a forward through the stages, then backward, then gradients over data ranks.
    ``blocking`` names the kinds of calls for which hosts wait. With ``ahead``, the receive of the next
    microbatch is posted before this one is computed.
    """
    # Long because its nested functions share the groups and read in the order of a step.
    ranks = {at: number for number, at in enumerate(product(range(stages), range(data), range(tensor)))}
    groups: dict[str, tuple[str, tuple[int, ...]]] = {}

    def group(description: str, members: Sequence[int]) -> None:
        if len(members) > 1:
            groups[str(len(groups))] = (description, tuple(members))

    group("default_pg", range(len(ranks)))
    for stage in range(stages):
        for at in range(data):
            group("TENSOR", [ranks[stage, at, each] for each in range(tensor)])
        for at in range(tensor):
            group("DATA", [ranks[stage, each, at] for each in range(data)])
        group("EXPERT", [ranks[stage, a, b] for a in range(data) for b in range(tensor)])
    for a, b in product(range(data), range(tensor)):
        group("PIPELINE", [ranks[stage, a, b] for stage in range(stages)])

    def programs(stage: int, a: int, b: int) -> list[Op]:
        rank = ranks[stage, a, b]
        mine = {description: name for name, (description, members) in groups.items() if rank in members}
        ops: list[Op] = []

        def call(description: str, kind: str, size: int = 8, peer: int | None = None) -> None:
            if description in mine:
                blocks = (kind in blocking or "all" in blocking) and not (ahead and kind == "recv")
                ops.append(Op(mine[description], kind, size, blocks, peer))

        def receive(towards: int) -> None:
            source = stage - towards
            if 0 <= source < stages:
                call("PIPELINE", "recv", 16, ranks[source, a, b])

        def through(towards: int, more: bool) -> None:
            target = stage + towards
            if ahead:
                if 0 <= stage - towards < stages:
                    ops.append(Op(mine["PIPELINE"], WAIT_FOR_ONE, peer=ranks[stage - towards, a, b]))
                if more:
                    receive(towards)
            else:
                receive(towards)
            call("TENSOR", "all_reduce", 8)
            call("EXPERT", "all_to_all", 32)
            call("TENSOR", "_all_gather_base", 4)
            if 0 <= target < stages:
                call("PIPELINE", "send", 16, ranks[target, a, b])

        for _ in range(steps):
            for towards in (1, -1):
                if ahead:
                    receive(towards)
                for number in range(microbatches):
                    through(towards, number + 1 < microbatches)
            call("DATA", "all_reduce", 64)
            call("DATA", "all_reduce", 48)
            ops.append(Op("0", "all_reduce", 1))
        return ops

    return HangJob(groups, {rank: programs(*at) for at, rank in ranks.items()})


@dataclass
class Rank:
    program: list[Op]
    stops_at: int
    posted: list[tuple[Op, int]] = field(default_factory=list)
    completed: set[int] = field(default_factory=set)
    counters: dict[tuple[str, str], int] = field(default_factory=dict)
    at: int = 0
    used: set[int] = field(default_factory=set)

    def waits_for_data(self, op: Op) -> bool:
        """Return whether the data of the next receive from a peer is not there, or note that it is used."""
        receives = [
            at
            for at, (posted, _) in enumerate(self.posted)
            if posted.kind == "recv" and posted.peer == op.peer and at not in self.used
        ]
        if receives[0] not in self.completed:
            return True
        self.used.add(receives[0])
        return False

    def is_blocked(self) -> bool:
        pending = [at for at in range(len(self.posted)) if at not in self.completed]
        return len(pending) >= MOST_PENDING or any(self.posted[at][0].blocks for at in pending)


def run(job: HangJob, stopped: Mapping[int, int]) -> dict[int, Rank]:
    """Run until no rank can go on; ``stopped`` ranks make no call from that position of their program on."""
    ranks = {
        number: Rank(program, stopped.get(number, len(program))) for number, program in job.programs.items()
    }
    moved = True
    while moved:
        moved = False
        for number, rank in ranks.items():
            while rank.at < rank.stops_at and not rank.is_blocked():
                op = rank.program[rank.at]
                if op.kind == WAIT_FOR_ONE:
                    if rank.waits_for_data(op):
                        break
                else:
                    rank.posted.append((op, _count(rank, number, op)))
                rank.at += 1
                moved = True
        moved |= _complete(job, ranks)
    return ranks


def _count(rank: Rank, number: int, op: Op) -> int:
    """Return the call's number: per group for collectives, per pair and direction for transfers."""
    key = (
        op.group,
        "" if op.peer is None else f"{number}>{op.peer}" if op.kind == "send" else f"{op.peer}>{number}",
    )
    rank.counters[key] = rank.counters.get(key, 0) + 1
    return rank.counters[key]


def _complete(job: HangJob, ranks: dict[int, Rank]) -> bool:
    """Complete calls that all members made in the same way, in the order of each group; say if any was."""
    made: dict[tuple[str, tuple[int, int] | None, int], dict[int, int]] = {}
    for number, rank in ranks.items():
        for at, (op, count) in enumerate(rank.posted):
            channel = None
            if op.peer is not None:
                channel = (number, op.peer) if op.kind == "send" else (op.peer, number)
            made.setdefault((op.group, channel, count), {})[number] = at
    stuck: set[tuple[str, tuple[int, int] | None]] = set()
    any_completed = False
    for (group, channel, _), calls in sorted(made.items(), key=lambda item: item[0][2]):
        whole = calls.keys() == set(channel or job.groups[group][1])
        same = (
            len({(ranks[n].posted[at][0].kind, ranks[n].posted[at][0].size) for n, at in calls.items()}) == 1
        )
        if (group, channel) in stuck or not whole or not (same or channel is not None):
            stuck.add((group, channel))
            continue
        for number, at in calls.items():
            any_completed |= at not in ranks[number].completed
            ranks[number].completed.add(at)
    return any_completed


def hangs(ranks: Mapping[int, Rank], broken: Sequence[int]) -> bool:
    """Return whether a rank that is not broken did not reach the end of its program."""
    return any(
        rank.at < len(rank.program) or rank.is_blocked()
        for number, rank in ranks.items()
        if number not in broken
    )


def dump_of(
    job: HangJob,
    number: int,
    rank: Rank,
    *,
    only_pending: bool = False,
    buffer: int = 2000,
    status: bool = True,
) -> dict[str, Any]:
    """Return a rank's dump; with ``only_pending`` as torch leaves out completed calls, ``buffer`` entries."""
    own = {
        name: at for at, name in enumerate(n for n, (_, members) in job.groups.items() if number in members)
    }
    entries: list[dict[str, Any]] = []
    newest: dict[str, list[int]] = {name: [0, 0] for name in own}
    transfers = 0
    for at, (op, count) in enumerate(rank.posted):
        members = job.groups[op.group][1]
        done = at in rank.completed
        name = op.kind
        transfers += op.peer is not None
        if op.peer is not None:
            arrow = "->" if op.kind == "send" else "<-"
            name = f"{op.kind} {members.index(number)}{arrow}{members.index(op.peer)}"
        sequence = count if op.peer is None else transfers
        newest[op.group][0] = sequence
        if done:
            newest[op.group][1] = sequence
        entries.append(
            {
                "record_id": at,
                "pg_id": own[op.group],
                "process_group": (op.group, job.groups[op.group][0]),
                "collective_seq_id": count if op.peer is None else 0,
                "p2p_seq_id": 0 if op.peer is None else transfers,
                "profiling_name": f"nccl:{name}",
                "time_created_ns": 10**18 + at,
                "input_sizes": [[op.size]],
                "output_sizes": [[op.size]],
                "input_dtypes": ["Float"],
                "state": "completed" if done else "scheduled",
                "is_p2p": op.peer is not None,
            }
        )
    entries = entries[-buffer:]
    if only_pending:
        entries = [entry for entry in entries if entry["state"] != "completed"]
    config = {
        name: {"name": name, "desc": job.groups[name][0], "ranks": str(list(job.groups[name][1]))}
        for name in sorted(own)
    }
    dump = {"version": "2.10", "pg_config": config, "entries": entries}
    if status:
        dump["pg_status"] = {
            str(own[name]): {"last_enqueued_collective": enqueued, "last_completed_collective": done}
            for name, (enqueued, done) in newest.items()
        }
    return dump


def read(job: HangJob, ranks: Mapping[int, Rank], without: Sequence[int] = (), **options: Any) -> JobCalls:
    """Return what the dumps of a job show; ``without`` ranks leave none."""
    reader = CallReader()
    for number, rank in ranks.items():
        if number not in without:
            reader.add(number, msgspec.convert(dump_of(job, number, rank, **options), HangDump))
    return reader.job()


def with_other_call(job: HangJob, rank: int, at: int) -> HangJob:
    """Return the job with one call of a rank replaced by a barrier of its group."""
    program = list(job.programs[rank])
    program[at] = replace(program[at], kind="barrier", size=0)
    return HangJob(job.groups, job.programs | {rank: program})


def with_skipped_call(job: HangJob, rank: int, at: int) -> HangJob:
    """Return the job with one call of a rank left out."""
    program = list(job.programs[rank])
    del program[at]
    return HangJob(job.groups, job.programs | {rank: program})
