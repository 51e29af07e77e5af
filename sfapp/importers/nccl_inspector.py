"""Import NCCL Inspector logs, JSON lines per process: the duration of every collective on every rank.

The logs contain neither steps nor call times. Ranks leave a collective together, so the rank that spends
least time in it called it last. Each collective is taken as a step; lateness is measured from the first rank,
and no clocks are compared. The two ranks of a point-to-point operation number it independently, so nothing is
derived from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sfapp.errors import TraceError
from sfapp.importers.collective_arrivals import TRANSFER, WAIT, WORK, CollectiveEvents
from sfapp.importers.duration_table import cut
from sfapp.importers.import_result import (
    ImportedWindow,
    ImportNote,
    ImportOptions,
    ImportResult,
    NoteKind,
    guarded,
)
from sfapp.importers.nccl_inspector_log import MAX_RECORDS, InspectorCall, InspectorLog, read_log
from sfapp.importers.run_names import named_folders
from sfapp.importers.window_builder import WindowInfo, build_window
from sfapp.model import Lane, Operators, RankIdentity
from sfapp.model.operators import NONE

_US = 1000

Group = dict[int, dict[int, InspectorCall]]
"""Collectives of one communicator, by sequence number and rank."""


@dataclass(slots=True)
class _InspectedRun:
    """The logs of one folder.

    Attributes:
        groups: collectives by communicator.
        transfers: point-to-point records.
        others, absent, overwritten: as ``InspectorLog``.
    """

    groups: dict[str, Group] = field(default_factory=dict)
    transfers: list[InspectorCall] = field(default_factory=list)
    others: int = 0
    absent: int = 0
    overwritten: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the logs hold no records at all, as those of processes without communication."""
        return not (self.groups or self.transfers or self.others)

    def add(self, log: InspectorLog) -> None:
        """Add one log.

        Raises:
            TraceError: another log has a collective of the same rank with another time.
        """
        for call in log.collectives:
            other = self.groups.get(call.dump.communicator, {}).get(call.number, {}).get(call.dump.rank, call)
            if (other.kind, other.took_ns) != (call.kind, call.took_ns):
                raise TraceError(
                    f"the folder contains another log of rank {call.dump.rank} with another time of "
                    f"collective {call.number}: put the logs of each job into a folder of their own"
                )
        for call in log.collectives:
            calls = self.groups.setdefault(call.dump.communicator, {}).setdefault(call.number, {})
            calls[call.dump.rank] = call
        self.transfers += log.transfers
        self.others += log.others
        self.absent += log.absent
        self.overwritten += sum(log.overwritten.values())


def read(paths: Sequence[Path], options: ImportOptions) -> ImportResult:
    """Read logs as windows: the logs of one folder are one run, and its largest communicator is the
    window."""
    runs: dict[Path, _InspectedRun] = {}
    refused: list[TraceError] = []
    left = MAX_RECORDS
    for path in options.each(paths):
        with guarded(refused, path):
            log = read_log(path, left)
            left -= log.size
            runs.setdefault(path.parent, _InspectedRun()).add(log)
    windows: list[ImportedWindow] = []
    sources = named_folders([folder for folder, run in runs.items() if not run.is_empty])
    for run_id, folder in sources.items():
        with guarded(refused, folder):
            windows += _windows(run_id, runs[folder])
    return ImportResult(tuple(windows), tuple(refused), sources=sources)


def _windows(run_id: str, run: _InspectedRun) -> list[ImportedWindow]:
    groups = run.groups
    if not groups:
        raise TraceError("the logs hold no collectives, only other records")
    ranks_of = {name: {rank for calls in group.values() for rank in calls} for name, group in groups.items()}
    main = max(groups, key=lambda name: (len(ranks_of[name]), len(groups[name])))
    ranks = sorted(ranks_of[main])
    common = [number for number in sorted(groups[main]) if len(groups[main][number]) == len(ranks)]
    if not common:
        raise TraceError("no collective is in the logs of all ranks")
    world_size = groups[main][common[0]][ranks[0]].dump.n_ranks
    notes = _notes(run, len(groups[main]) - len(common))
    took_KR = np.asarray(
        [[groups[main][number][rank].took_ns for rank in ranks] for number in common], np.int64
    )
    longest_K1, least_K1 = took_KR.max(axis=1, keepdims=True), took_KR.min(axis=1, keepdims=True)
    planes = np.stack([longest_K1 - took_KR, took_KR - least_K1, np.broadcast_to(least_K1, took_KR.shape)])
    wall_KR = longest_K1.repeat(len(ranks), axis=1)
    last = groups[main][common[-1]]
    identities = [RankIdentity(rank, 0, 0, last[rank].dump.host) for rank in ranks]
    events = _operators(run, main, common)
    windows = []
    for number, part in enumerate(cut(len(common))):
        about = WindowInfo(run_id=run_id, window=number, world_size=world_size, backend="nccl")
        step_N = np.arange(part.start, part.stop)
        window = build_window(
            about, (WORK, WAIT, TRANSFER), planes[:, part], wall_KR[part], step_N, identities
        )
        mine = events.select(np.isin(events.step_E, step_N) | ((events.step_E < 0) & (number == 0)))
        windows.append(ImportedWindow(window, mine, notes))
    return windows


def _notes(run: _InspectedRun, uncommon: int) -> tuple[ImportNote, ...]:
    """Return the notes on a run, of whose main communicator ``uncommon`` collectives are not in all logs."""
    notes = [
        ImportNote("guessed", "each collective is taken as a step, because the log has no steps"),
        ImportNote(
            "derived",
            "ranks are assumed to leave a collective together: the rank that spends least in it arrived last",
        ),
        ImportNote("missing", "work between collectives and all times except that of the dump"),
    ]
    counted: tuple[tuple[NoteKind, int, str], ...] = (
        ("skipped", len(run.groups) - 1, "smaller communicators: events only"),
        ("skipped", uncommon, "collectives that are not in the logs of all ranks"),
        (
            "skipped",
            len(run.transfers),
            "point-to-point records: events only, because their two ranks number them independently",
        ),
        ("skipped", run.others, "records that are neither collectives nor point-to-point (proxy traces)"),
        ("missing", run.overwritten, "collectives that the Inspector overwrote before it dumped them"),
        ("missing", run.absent, "records that a dump announces and the log lacks"),
    )
    return (*notes, *(ImportNote(kind, f"{count:,} {what}") for kind, count, what in counted if count))


def _operators(run: _InspectedRun, main: str, common: Sequence[int]) -> Operators:
    """Return every record as an event that ends at its dump time, the only time that is known."""
    step_of = {number: step for step, number in enumerate(common)}
    made = CollectiveEvents()
    for name, group in run.groups.items():
        for number, calls in group.items():
            step = step_of.get(number, NONE) if name == main else NONE
            end_us = min(call.dump.at_us for call in calls.values())
            for call in calls.values():
                _add(made, call, step, end_us)
    for call in run.transfers:
        _add(made, call, NONE, call.dump.at_us)
    return made.operators()


def _add(made: CollectiveEvents, call: InspectorCall, step: int, end_us: int) -> None:
    communicator = call.dump.communicator
    lane = Lane(call.dump.rank, f"communicator {communicator}"[:64], True)
    end_ns = _US * end_us
    made.add(call.kind, lane, communicator, call.number, step, end_ns - call.took_ns, end_ns)
