"""Merge a job's processes into a window: one matrix over the steps that all ranks have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfapp.errors import TraceError
from sfapp.importers.import_result import ImportedWindow, ImportNote, NoteKind
from sfapp.importers.kineto.blocked_time import blocked_time
from sfapp.importers.kineto.job_groups import Member, TraceJob
from sfapp.importers.kineto.operators import JobOperators
from sfapp.importers.kineto.ranges import Range
from sfapp.importers.kineto.stage_rules import durations, stage_ranges
from sfapp.importers.mapping import Mapping
from sfapp.importers.window_builder import FloatArray, IntArray, WindowInfo, build_window
from sfapp.model import RankIdentity
from sfapp.model.window import NOT_MEASURED

LATE = "step.start_late_ms"
"""Side channel: how much later than the first rank a rank began the step, by the hosts' clocks."""

_NOTABLE_LATENESS = 0.02
"""Share of the median step: ranks that start later than this are named."""


def window_of(job: TraceJob, mapping: Mapping) -> ImportedWindow:
    """Return a job's window with its operator events; empties the job's members to free memory.

    Raises:
        TraceError: the ranks have no step in common.
    """
    steps = np.array(sorted(job.steps), np.int64)
    if not len(steps):
        raise TraceError("ranks have no step in common", path=str(job.members[0].path.parent))
    found = [stage_ranges(each.process, mapping) for each in job.members]
    stages = mapping.ordered(each.stage for ranges in found for each in ranges)
    identities = _identities(job, mapping)
    notes = [*job.notes, *_of_ranks(job.members)]
    places = [np.searchsorted(each.process.step_N, steps) for each in job.members]
    duration_SNR = np.stack([
        durations(ranges, each.process, stages)[:, place]
        for ranges, each, place in zip(found, job.members, places, strict=True)
    ], axis=2)  # fmt: skip
    start_NR = np.stack([m.process.start_N[p] for m, p in zip(job.members, places, strict=True)], axis=1)
    end_NR = np.stack([m.process.end_N[p] for m, p in zip(job.members, places, strict=True)], axis=1)
    faults = []
    if any(len(each.process.step_N) != len(steps) for each in job.members):
        faults.append("step_misaligned")
        notes.append(ImportNote("skipped", f"steps that some ranks lack: {len(steps)} steps are common"))
    notes += _differing(found, job.members, stages)
    late_NR = (start_NR - start_NR.min(axis=1, keepdims=True)) / 1e6
    notes += _lateness(late_NR, end_NR - start_NR, job.members)
    about = WindowInfo(
        run_id=job.run_id,
        window=job.window,
        world_size=_world_size(job, notes),
        started_ns=int(start_NR.min()),
        ended_ns=int(end_NR.max()),
        faults=tuple(faults),
        backend=_backend(job),
    )
    window = build_window(
        about,
        stages,
        duration_SNR,
        end_NR - start_NR,
        steps,
        identities,
        {LATE: late_NR} if len(job.members) > 1 else None,
        _waits(job.members, found, places, stages),
    )
    events = JobOperators(sum(len(each.process.columns.start_E) for each in job.members))
    while job.members:  # free each file's columns once its events are added: a large job fits in memory once
        member = job.members.pop(0)
        events.add(member.process, member.rank or 0, mapping)
    del member
    operators, uneven = events.operators()
    notes += [
        ImportNote(
            "missing",
            f"ranks have different numbers of {group!r} in some steps: they cannot be matched there",
        )
        for group in uneven
    ]
    return ImportedWindow(window, operators if len(operators) else None, tuple(notes))


def _waits(
    members: Sequence[Member], found: Sequence[list[Range]], places: Sequence[IntArray], stages: Sequence[str]
) -> dict[str, IntArray]:
    """Return how long each rank was blocked in group communication, int64 ns [N, R], by the stages in which
    any was; ``NOT_MEASURED`` on ranks whose traces do not show it."""
    planes = []
    for ranges, member, place in zip(found, members, places, strict=True):
        blocked = blocked_time(member.process, ranges)
        if blocked is None:
            planes.append(np.full((len(stages), len(place)), NOT_MEASURED, np.int64))
        else:
            planes.append(durations(ranges, member.process, stages, blocked)[:, place])
    wait_SNR = np.stack(planes, axis=2)
    return {stage: wait_NR for stage, wait_NR in zip(stages, wait_SNR, strict=True) if (wait_NR > 0).any()}


def _of_ranks(members: Sequence[Member]) -> list[ImportNote]:
    """Return the notes of the ranks, without repetition if a note applies to all."""
    ranks: dict[tuple[NoteKind, str], list[int]] = {}
    for each in members:
        for note in dict.fromkeys(each.process.notes):
            ranks.setdefault(note, []).append(each.rank or 0)
    notes = []
    for (kind, what), numbers in ranks.items():
        shown = ", ".join(str(rank) for rank in numbers[:8]) + (" …" if len(numbers) > 8 else "")
        notes.append(ImportNote(kind, what, "" if len(numbers) == len(members) else f"rank {shown}"))
    return notes


def _world_size(job: TraceJob, notes: list[ImportNote]) -> int:
    """Return the world size stated in the trace, or the number of ranks found."""
    least = max(job.ranks) + 1
    stated = job.world_size
    if stated is None:
        if least == len(job.ranks):
            notes.append(ImportNote("guessed", f"world size {least}: no file states it"))
        return least
    if stated < least:
        notes.append(
            ImportNote("guessed", f"world size {least}: rank {least - 1} is present, but {stated} is stated")
        )
    if max(stated, least) > len(job.ranks):
        absent = max(stated, least) - len(job.ranks)
        notes.append(ImportNote("missing", f"{absent:,} of {max(stated, least):,} ranks have no file"))
    return max(stated, least)


def _backend(job: TraceJob) -> str:
    headers = (each.process.columns.header.distributed for each in job.members)
    return next((header.backend for header in headers if header is not None and header.backend), "")[:64]


def _identities(job: TraceJob, mapping: Mapping) -> list[RankIdentity]:
    """Return the ranks' identities: nodes are the hosts in file names, numbered by their lowest rank."""
    nodes: dict[str, int] = {}
    seen: dict[str, int] = {}
    found = []
    for each in job.members:
        node = nodes.setdefault(each.host, len(nodes))
        local = seen.get(each.host, 0)
        seen[each.host] = local + 1
        rank = each.rank or 0
        found.append(RankIdentity(rank, local, node, each.host[:256], mapping.role_of(rank)))
    if not any(each.host for each in job.members):
        job.notes.append(ImportNote("missing", "hosts: no file name contains one"))
    return found


def _differing(
    found: Sequence[Sequence[Range]], members: Sequence[Member], stages: Sequence[str]
) -> list[ImportNote]:
    """Return notes on stages that only some ranks have."""
    notes = []
    for stage in stages:
        without = [
            str(member.rank)
            for ranges, member in zip(found, members, strict=True)
            if not any(each.stage == stage for each in ranges)
        ]
        if without and len(without) < len(members):
            ranks = ", ".join(without[:8]) + (" …" if len(without) > 8 else "")
            notes.append(ImportNote("missing", f"{stage} on rank {ranks}, although other ranks have it"))
    return notes


def _lateness(late_NR: FloatArray, wall_NR: IntArray, members: Sequence[Member]) -> list[ImportNote]:
    """Return notes on ranks that begin their steps late, by the median over steps."""
    if len(members) < 2:
        return []
    late_R = np.median(late_NR, axis=0)
    least = max(_NOTABLE_LATENESS * float(np.median(wall_NR)) / 1e6, 0.1)
    return [
        ImportNote("derived", f"rank {members[place].rank} begins its steps {late_R[place]:.1f} ms late")
        for place in np.argsort(-late_R, kind="stable")[:8].tolist()
        if late_R[place] >= least
    ]
