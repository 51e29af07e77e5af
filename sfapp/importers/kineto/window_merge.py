"""From a job's processes to a window: one matrix on the steps that all ranks have, ranks side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfapp.errors import TraceError
from sfapp.importers.import_result import ImportedWindow, ImportNote, NoteKind
from sfapp.importers.kineto.jobs import Job, Member
from sfapp.importers.kineto.operators import Gathered
from sfapp.importers.kineto.ranges import Range
from sfapp.importers.kineto.stage_rules import durations, stage_ranges
from sfapp.importers.mapping import Mapping
from sfapp.importers.window_builder import About, FloatArray, IntArray, build_window
from sfapp.model import RankIdentity

LATE = "step.start_late_ms"
"""Side channel: how much later than the earliest rank a rank began the step, by the clocks of the hosts."""

_WORTH_SAYING = 0.02
"""Of the median step: a rank that starts later than this is named."""


def window_of(job: Job, mapping: Mapping) -> ImportedWindow:
    """A job's window with its operator events. The job gives its members up.

    Raises:
        TraceError: its ranks have no step in common.
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
        notes.append(ImportNote("skipped", f"steps that not all ranks have: {len(steps)} are common"))
    notes += _differing(found, job.members, stages)
    late_NR = (start_NR - start_NR.min(axis=1, keepdims=True)) / 1e6
    notes += _lateness(late_NR, end_NR - start_NR, job.members)
    about = About(
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
    )
    events = Gathered(sum(len(each.process.columns.start_E) for each in job.members))
    while job.members:  # a file's columns go as its events come: a large job fits once
        member = job.members.pop(0)
        events.add(member.process, member.rank or 0, mapping)
    del member
    operators, uneven = events.operators()
    notes += [
        ImportNote("missing", f"ranks differ in the number of {group!r}: in those steps nothing ties them")
        for group in uneven
    ]
    return ImportedWindow(window, operators if len(operators) else None, tuple(notes))


def _of_ranks(members: Sequence[Member]) -> list[ImportNote]:
    """What was noted of each rank: once where it holds of all."""
    ranks: dict[tuple[NoteKind, str], list[int]] = {}
    for each in members:
        for note in dict.fromkeys(each.process.notes):
            ranks.setdefault(note, []).append(each.rank or 0)
    notes = []
    for (kind, what), who in ranks.items():
        shown = ", ".join(str(rank) for rank in who[:8]) + (" …" if len(who) > 8 else "")
        notes.append(ImportNote(kind, what, "" if len(who) == len(members) else f"rank {shown}"))
    return notes


def _world_size(job: Job, notes: list[ImportNote]) -> int:
    """As many as the trace says, or as many as are there."""
    least = max(job.ranks) + 1
    stated = job.world_size
    if stated is None:
        if least == len(job.ranks):
            notes.append(ImportNote("guessed", f"a job of {least}: nothing says how many ranks there are"))
        return least
    if stated < least:
        notes.append(
            ImportNote("guessed", f"a job of {least}: rank {least - 1} is there, of {stated} stated")
        )
    if max(stated, least) > len(job.ranks):
        absent = max(stated, least) - len(job.ranks)
        notes.append(ImportNote("missing", f"{absent:,} of {max(stated, least):,} ranks have no file"))
    return max(stated, least)


def _backend(job: Job) -> str:
    headers = (each.process.columns.header.distributed for each in job.members)
    return next((header.backend for header in headers if header is not None and header.backend), "")[:64]


def _identities(job: Job, mapping: Mapping) -> list[RankIdentity]:
    """Where each rank ran: nodes are the hosts of the files' names, numbered by their lowest rank."""
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
        job.notes.append(ImportNote("missing", "hosts: no file's name has one"))
    return found


def _differing(
    found: Sequence[Sequence[Range]], members: Sequence[Member], stages: Sequence[str]
) -> list[ImportNote]:
    """Stages that some ranks have and others have not."""
    notes = []
    for stage in stages:
        without = [
            str(member.rank)
            for ranges, member in zip(found, members, strict=True)
            if not any(each.stage == stage for each in ranges)
        ]
        if without and len(without) < len(members):
            ranks = ", ".join(without[:8]) + (" …" if len(without) > 8 else "")
            notes.append(ImportNote("missing", f"{stage} on rank {ranks}, which others have"))
    return notes


def _lateness(late_NR: FloatArray, wall_NR: IntArray, members: Sequence[Member]) -> list[ImportNote]:
    """Which ranks begin their steps late, in the median over steps."""
    if len(members) < 2:
        return []
    late_R = np.median(late_NR, axis=0)
    least = max(_WORTH_SAYING * float(np.median(wall_NR)) / 1e6, 0.1)
    return [
        ImportNote("derived", f"rank {members[place].rank} begins its steps {late_R[place]:.1f} ms late")
        for place in np.argsort(-late_R, kind="stable")[:8].tolist()
        if late_R[place] >= least
    ]
