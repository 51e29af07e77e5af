"""Import tables (CSV, Parquet) and numbers nested in JSON: step, rank, stage and duration, or start and end.

A mapping file names the columns and the stages. If rows have start and end, idle time before a span becomes a
range named ``before NAME``; in a pipeline this is the wait for the neighbouring stage. The rest of a step,
from a rank's last span to the end of the last rank, is the range ``after``. An overlap belongs to the span
that began first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sfapp.errors import TraceError
from sfapp.importers.column_reader import matches_file
from sfapp.importers.duration_table import DurationMatrix, DurationTable, cut, duration_matrix
from sfapp.importers.import_result import (
    ImportedWindow,
    ImportNote,
    ImportOptions,
    ImportResult,
    guarded,
)
from sfapp.importers.mapping import Mapping
from sfapp.importers.run_names import named_folders
from sfapp.importers.spans import own_time
from sfapp.importers.table_rows import TableRows
from sfapp.importers.window_builder import WindowInfo, build_window
from sfapp.model import RECORDED_STAGES, Accumulation, Lane, Operators
from sfapp.model.operators import STAGE
from sfapp.packets.packet_layout import MAX_VALUE

Ints = npt.NDArray[np.int64]

BEFORE, AFTER = "before ", "after"


def read(paths: Sequence[Path], options: ImportOptions) -> ImportResult:
    """Read tables as windows; the files of one folder are one run."""
    runs: dict[Path, TableRows] = {}
    refused: list[TraceError] = []
    skipped: list[ImportNote] = []
    for path in options.each(paths):
        if not matches_file(path, options.mapping):
            skipped.append(
                ImportNote("skipped", "its name does not match the mapping's setting 'file'", str(path))
            )
            continue
        rows = runs.setdefault(path.parent, TableRows(options.mapping))
        with guarded(refused, path):
            rows.take(path)
    windows: list[ImportedWindow] = []
    sources = named_folders([folder for folder, rows in runs.items() if rows.parts])
    for run_id, folder in sources.items():
        with guarded(refused, folder):
            windows += _windows(runs[folder], run_id, options.mapping)
    return ImportResult(tuple(windows), tuple(refused), tuple(skipped), sources)


def _windows(rows: TableRows, run_id: str, mapping: Mapping) -> list[ImportedWindow]:
    """Return the windows of a run: as its rows number them, or else every 100 steps."""
    spans, times_restart = _lay_out(rows)
    kinds = _StageKinds(rows.names, mapping)
    cells = DurationTable.concat(
        [
            _cells(rows, "duration", rows.column("name", "duration")),
            DurationTable(spans["key"], spans["rank"], spans["name"], spans["own"]),
            DurationTable(spans["key"], spans["rank"], spans["name"] + kinds.before, spans["gap"]),
            _walls(rows, kinds.wall),
        ]
    )
    notes = [*kinds.notes]
    repeated = rows.in_several_files()
    if repeated:
        notes.append(
            ImportNote(
                "guessed",
                f"{repeated:,} durations of a step, rank and stage are in a further file: they are added up; "
                "if one file is a copy of another, move it away",
            )
        )
    if times_restart:
        notes.append(
            ImportNote(
                "derived",
                "times restart with every step: for operator events, steps are laid end to end",
            )
        )
    return _cut(rows, cells, kinds, run_id, _events(rows, spans), notes)


class _StageKinds:
    """Kinds of cells (every foreign name, the idle time before it, the whole step) and their stages."""

    def __init__(self, names: dict[str, int], mapping: Mapping) -> None:
        self.before = len(names)
        self.after = 2 * len(names)
        self.wall = self.after + 1
        self.names = (*names, *(BEFORE + name for name in names), AFTER)
        self.notes: list[ImportNote] = []
        self.stage = [self._stage(name, mapping) for name in self.names]
        self.stages = mapping.ordered(stage for stage in self.stage if stage)

    def _stage(self, name: str, mapping: Mapping) -> str:
        mapped = mapping.stage_of(name)
        if mapped is not None or name.startswith(BEFORE) or name == AFTER:
            return mapped or ""
        if name not in RECORDED_STAGES:
            self.notes.append(
                ImportNote("derived", f"{name!r} is not in the mapping: it becomes a stage of that name")
            )
        return name


def _cells(rows: TableRows, having: str, kind: Ints) -> DurationTable:
    key = _key(rows.column("window", having), rows.column("step", having))
    return DurationTable(key, rows.column("rank", having), kind, rows.column(having, having))


def _walls(rows: TableRows, kind: int) -> DurationTable:
    """Return the step time of each rank and step; rows repeat it, so the largest counts."""
    cells = _cells(rows, "wall", np.full(len(rows.column("wall", "wall")), kind))
    order = np.lexsort((cells.ns_C, cells.rank_C, cells.step_C))
    step_C, rank_C = cells.step_C[order], cells.rank_C[order]
    last_C = np.append((np.diff(step_C) != 0) | (np.diff(rank_C) != 0), True)[: len(order)]
    return DurationTable(step_C[last_C], rank_C[last_C], cells.kind_C[last_C], cells.ns_C[order][last_C])


_STEPS = 2**40

_WINDOWS = 2**23
"""Windows whose combination with a step fits 64 bits."""


def _key(window: Ints, step: Ints) -> Ints:
    """Combine window and step into one ascending number."""
    if len(step) and int(step.max()) >= _STEPS and int(window.max()) >= 0:
        raise TraceError(f"step {int(step.max()):,} is too large for numbered windows")
    if len(window) and int(window.max()) >= _WINDOWS:
        raise TraceError(
            f"window {int(window.max()):,} is too large: the largest number of a window is {_WINDOWS - 1:,}"
        )
    return np.maximum(window, 0) * _STEPS + step


def _lay_out(rows: TableRows) -> tuple[dict[str, Ints], bool]:
    """Return spans by rank, step and start with own time, gap and position, and whether times restart.

    A step begins for all ranks at its first span, so a rank that starts late has a gap before its first span.
    """
    having = "start"
    start, end = rows.column("start", having), rows.column("end", having)
    key = _key(rows.column("window", having), rows.column("step", having))
    spans = {name: rows.column(name, having) for name in ("rank", "name", "micro_step")} | {"key": key}
    if not len(start):
        empty = np.empty(0, np.int64)
        return spans | dict.fromkeys(("own", "gap", "start", "end"), empty), False
    steps, at = np.unique(key, return_inverse=True)
    begin_N = np.full(len(steps), np.iinfo(np.int64).max)
    np.minimum.at(begin_N, at, start)
    length_N = np.zeros(len(steps), np.int64)
    np.maximum.at(length_N, at, end - begin_N[at])
    times_restart = bool((np.diff(begin_N) <= 0).any())
    if int(length_N.astype(np.float64).sum()) > MAX_VALUE:
        raise TraceError("the spans of all steps together are longer than a packet holds: check their unit")
    if times_restart:
        shift_N = np.append(0, np.cumsum(length_N))[:-1] - begin_N
        start, end = start + shift_N[at], end + shift_N[at]
        begin_N = begin_N + shift_N
    order = np.lexsort((start, at, spans["rank"]))
    spans = {name: values[order] for name, values in spans.items()}
    spans |= {"start": start[order], "end": end[order]}
    spans["own"], spans["gap"] = own_time(*_apart(spans, begin_N[at][order], length_N[at][order]))
    return spans, times_restart


def _apart(spans: dict[str, Ints], begin_E: Ints, length_E: Ints) -> tuple[Ints, Ints, Ints]:
    """Return start, end and origin of spans, with every (rank, step) on its own time line, laid end to
    end."""
    fresh = np.append(True, (np.diff(spans["rank"]) != 0) | (np.diff(spans["key"]) != 0))[: len(begin_E)]
    line_E = np.cumsum(fresh) - 1
    origin_L = np.append(0, np.cumsum(length_E[fresh].astype(np.int64)))[:-1]
    if len(origin_L) and int(length_E[fresh].astype(np.float64).sum()) > MAX_VALUE:
        raise TraceError("the spans of all ranks together are longer than 2^62 ns: import fewer at a time")
    shift_E = origin_L[line_E] - begin_E
    return spans["start"] + shift_E, spans["end"] + shift_E, origin_L[line_E]


def _events(rows: TableRows, spans: dict[str, Ints]) -> Operators | None:
    """Return the spans as operator events, one lane per rank."""
    if not len(spans["start"]):
        return None
    ranks, lane = np.unique(spans["rank"], return_inverse=True)
    return Operators.of(
        names=tuple(rows.names),
        name_E=spans["name"],
        category_E=np.full(len(lane), STAGE),
        lanes=[Lane(rank, "table", False) for rank in ranks.tolist()],
        lane_E=lane,
        step_E=spans["key"],
        start_ns_E=spans["start"],
        end_ns_E=spans["end"],
    )


def _cut(
    rows: TableRows,
    cells: DurationTable,
    kinds: _StageKinds,
    run_id: str,
    events: Operators | None,
    notes: list[ImportNote],
) -> list[ImportedWindow]:
    matrix = duration_matrix(cells, kinds.wall + 1, run_id)
    wall_NR, wall_notes = _wall(matrix, kinds, events is not None)
    planes = {
        stage: matrix.duration_KNR[[kind for kind, each in enumerate(kinds.stage) if each == stage]].sum(
            axis=0
        )
        for stage in kinds.stages
    }
    if not planes:
        raise TraceError("no stage is left: the mapping leaves out every name")
    duration_SNR = np.stack(list(planes.values()))
    notes = [*notes, *wall_notes, *matrix.notes]
    factor = 1 + max(int(rows.column("micro_step", "rank").max()), 0)
    about = WindowInfo(
        run_id=run_id,
        world_size=int(matrix.rank_R.max()) + 1,
        accumulation=Accumulation(factor=factor, ordered=factor == 1),
    )
    if factor > 1:
        notes = [
            *notes,
            ImportNote("derived", f"the {factor} micro-steps of a step are added up by stage"),
        ]
    numbered = bool((rows.column("window", "rank") >= 0).any())
    windows = matrix.step_N // _STEPS if numbered else np.zeros_like(matrix.step_N)
    step_N, restarts = _steps_on(matrix.step_N, windows) if numbered else (matrix.step_N, False)
    if restarts:
        notes = [
            *notes,
            ImportNote("derived", "step numbers restart in every window: steps are numbered consecutively"),
        ]
    built: list[ImportedWindow] = []
    for number in np.unique(windows).tolist():
        mine = np.flatnonzero(windows == number)
        for part in [slice(0, len(mine))] if numbered else cut(len(mine)):
            at = mine[part]
            window = build_window(
                replace(about, window=number if numbered else len(built)),
                kinds.stages,
                duration_SNR[:, at],
                wall_NR[at],
                step_N[at],
                rows.identities(matrix.rank_R),
            )
            of_window = None if events is None else _of_steps(events, matrix.step_N[at], step_N[at])
            built.append(ImportedWindow(window, of_window, tuple(notes)))
    return built


def _wall(matrix: DurationMatrix, kinds: _StageKinds, has_spans: bool) -> tuple[Ints, list[ImportNote]]:
    """Return each rank's step time. Spans share one clock: a step ends for all ranks with the last one."""
    notes = []
    wall_NR = matrix.duration_KNR[kinds.wall]
    if not wall_NR.any():
        wall_NR = matrix.duration_KNR[: kinds.wall].sum(axis=0)
        notes = [
            ImportNote(
                "derived", "a rank's step time is the sum of its stages, because no wall time is given"
            )
        ]
    if has_spans:
        end_N1 = wall_NR.max(axis=1, keepdims=True)
        matrix.duration_KNR[kinds.after] = end_N1 - wall_NR
        wall_NR = end_N1.repeat(wall_NR.shape[1], axis=1)
    return wall_NR, notes


def _steps_on(key_N: Ints, window_N: Ints) -> tuple[Ints, bool]:
    """Return step numbers that ascend over all windows, and whether the source restarts them."""
    step_N = key_N % _STEPS
    if (np.diff(step_N) > 0).all():
        return step_N, False
    last = -1
    for number in np.unique(window_N).tolist():
        mine = window_N == number
        step_N[mine] += last + 1
        last = int(step_N[mine].max())
    return step_N, True


def _of_steps(events: Operators, key_N: Ints, step_N: Ints) -> Operators:
    """Return the events of these steps, with the step numbers of the window."""
    found = events.select(np.isin(events.step_E, key_N))
    return replace(found, step_E=step_N[np.searchsorted(key_N, found.step_E)])
