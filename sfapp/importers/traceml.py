"""Import TraceML's SQLite database (``aggregator/telemetry``): step events, identity and strategy.

TraceML's ``step_time`` begins after the batch has arrived, so the wait for data is added to it. Durations are
host times; device times are not in the prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from sfapp.errors import TraceError
from sfapp.importers.duration_table import DurationMatrix, DurationTable, cut, duration_matrix
from sfapp.importers.import_result import (
    ImportedWindow,
    ImportNote,
    ImportOptions,
    ImportResult,
    guarded,
)
from sfapp.importers.mapping import Mapping
from sfapp.importers.run_names import run_names
from sfapp.importers.sqlite_reader import SqliteDatabase, open_database
from sfapp.importers.window_builder import WindowInfo, build_window
from sfapp.model import RankIdentity
from sfapp.model.manifest import MAX_WORLD_SIZE, Wrapper
from sfapp.model.stages import BACKWARD, DATA, FORWARD, OPTIMIZER
from sfapp.packets import WindowDraft
from sfapp.packets.packet_layout import MAX_RANK_VALUE, MAX_VALUE
from sfapp.terminal import first_line, quoted

Ints = npt.NDArray[np.int64]

STEPS, ENVIRONMENT = "step_time_samples", "runtime_environment"
H2D = "data.h2d"

MAX_SAMPLES = 2**22
"""Largest number of rows (ranks × steps) of one database."""

_EVENTS = {
    "_traceml_internal:dataloader_next": DATA,
    "_traceml_internal:h2d_time": H2D,
    "_traceml_internal:forward_time": FORWARD,
    "_traceml_internal:backward_time": BACKWARD,
    "_traceml_internal:optimizer_step": OPTIMIZER,
}
_STEP = "_traceml_internal:step_time"
_WRAPPERS: dict[str, Wrapper] = {"ddp": "ddp", "single_process": "single", "single": "single"}
_MS = 1_000_000


class _Stats(msgspec.Struct, frozen=True):
    """One event on one device in one step, ms."""

    duration_ms: float | None = None
    cpu_ms: float | None = None
    gpu_ms: float | None = None

    @property
    def host_ms(self) -> float | None:
        return self.duration_ms if self.cpu_ms is None else self.cpu_ms


_DECODER = msgspec.json.Decoder(dict[str, dict[str, _Stats]])


@dataclass(slots=True)
class _TelemetryRun:
    """Step data of one database."""

    path: Path
    mapping: Mapping
    stages: dict[str, int] = field(default_factory=dict)
    cells: list[tuple[int, int, int, int]] = field(default_factory=list)
    walls: dict[tuple[int, int], int] = field(default_factory=dict)
    identities: dict[int, RankIdentity] = field(default_factory=dict)
    world_size: int = 0
    strategy: str = ""
    backend: str = ""
    on_device: bool = False
    unknown: set[str] = field(default_factory=set)

    def take(self, step: int, rank: int, events: dict[str, dict[str, _Stats]], place: str) -> None:
        """Add the events of one step of one rank; of a repeated step, the later row counts.

        Raises:
            TraceError: a duration is negative or not a number.
        """
        host_ms = {}
        for name, by_device in events.items():
            stats = list(by_device.values())
            self.on_device |= any(each.gpu_ms is not None for each in stats)
            values = [each.host_ms for each in stats if each.host_ms is not None]
            # Two sums of events in a step are added up; they must fit 64 bits, and their rounding too.
            if any(not value >= 0 for value in values) or not sum(values) * _MS <= MAX_VALUE // 2:
                raise TraceError(f"{quoted(name)} took {min(values):g} ms", path=str(self.path), place=place)
            if values:
                host_ms[name] = sum(values)
        if _STEP not in host_ms:
            raise TraceError("the events have no step time", path=str(self.path), place=place)
        wall = 0
        for name, value in host_ms.items():
            stage = self.mapping.stage_of(name) or _EVENTS.get(name)
            if name == _STEP:
                wall += round(value * _MS)
            elif stage is None:
                self.unknown.add(name)
            else:
                kind = self.stages.setdefault(stage, len(self.stages))
                self.cells.append((step, rank, kind, round(value * _MS)))
                wall += round(value * _MS) if name == "_traceml_internal:dataloader_next" else 0
        self.walls[step, rank] = wall


def read(paths: Sequence[Path], options: ImportOptions) -> ImportResult:
    """Read databases as windows; each is one run, named after its folder."""
    windows: list[ImportedWindow] = []
    refused: list[TraceError] = []
    names = run_names([_place(path) for path in paths])
    for path, run_id in zip(options.each(paths), names, strict=True):
        with guarded(refused, path):
            windows += _windows(run_id, _run(path, options))
    return ImportResult(tuple(windows), tuple(refused), sources=dict(zip(names, paths, strict=True)))


def _run(path: Path, options: ImportOptions) -> _TelemetryRun:
    run = _TelemetryRun(path, options.mapping)
    with open_database(path, options.scratch) as found:
        if STEPS not in found.columns:
            raise TraceError(f"is not a TraceML database: no table {STEPS}")
        count = found.count(STEPS)
        if count > MAX_SAMPLES:
            raise TraceError(f"{count:,} samples, more than {MAX_SAMPLES:,}", place=f"table {STEPS}")
        _take_steps(run, found)
        _take_environment(run, found)
    return run


def _take_steps(run: _TelemetryRun, found: SqliteDatabase) -> None:
    optional = ["rank", "global_rank", "local_rank", "node_rank", "hostname", "world_size"]
    texts = ["events_json", "hostname"]
    seen: dict[tuple[int, int], tuple[dict[str, dict[str, _Stats]], str]] = {}
    for batch in found.rows(STEPS, ["id", "step", "events_json"], optional, "ORDER BY id", texts):
        for row, step, text, legacy, rank, local, node, host, world in batch:
            place = f"table {STEPS}, id {row}"
            number = legacy if rank is None else rank
            if not _is_index(number, MAX_RANK_VALUE) or not _is_index(step, MAX_VALUE):
                raise TraceError(f"rank {number!r} and step {step!r} are not both whole numbers", place=place)
            try:
                events = _DECODER.decode(text if isinstance(text, str) else "")
            except (msgspec.DecodeError, RecursionError) as error:
                raise TraceError(f"events_json: {first_line(str(error))}", place=place) from error
            seen[step, number] = (events, place)
            run.identities[number] = RankIdentity(
                number,
                local if _is_index(local, MAX_RANK_VALUE) else 0,
                node if _is_index(node, MAX_RANK_VALUE) else 0,
                host[:256] if isinstance(host, str) else "",
            )
            run.world_size = max(run.world_size, world if _is_index(world, MAX_WORLD_SIZE) else 0, number + 1)
    for (step, number), (events, place) in seen.items():
        run.take(step, number, events, place)


def _is_index(value: object, most: int) -> bool:
    return isinstance(value, int) and 0 <= value <= most


def _take_environment(run: _TelemetryRun, found: SqliteDatabase) -> None:
    if ENVIRONMENT not in found.columns:
        return
    texts = ["training_strategy", "distributed_backend"]
    for batch in found.rows(ENVIRONMENT, [], texts, texts=texts):
        for strategy, backend in batch:
            run.strategy = strategy[:64] if isinstance(strategy, str) else run.strategy
            run.backend = backend[:64] if isinstance(backend, str) else run.backend


def _windows(run_id: str, run: _TelemetryRun) -> list[ImportedWindow]:
    if not run.walls:
        raise TraceError("contains no steps: did the script mark them with trace_step?", path=str(run.path))
    stages = run.mapping.ordered(run.stages)
    matrix, wall_NR = _matrix(run)
    duration_SNR = matrix.duration_KNR[[run.stages[stage] for stage in stages]]
    notes = [*_notes(run), *matrix.notes]
    windows = []
    for number, part in enumerate(cut(len(matrix.step_N))):
        about = WindowInfo(run_id=run_id, window=number, world_size=run.world_size, backend=run.backend)
        identities = [run.identities[rank] for rank in matrix.rank_R.tolist()]
        window = build_window(
            about, stages, duration_SNR[:, part], wall_NR[part], matrix.step_N[part], identities
        )
        windows.append(ImportedWindow(_wrapped(window, run.strategy), notes=tuple(notes)))
    return windows


def _matrix(run: _TelemetryRun) -> tuple[DurationMatrix, Ints]:
    walls = [(step, rank, len(run.stages), wall) for (step, rank), wall in run.walls.items()]
    columns = np.asarray([*run.cells, *walls], np.int64).T
    matrix = duration_matrix(DurationTable(*columns), len(run.stages) + 1, str(run.path))
    return matrix, matrix.duration_KNR[-1]


def _place(path: Path) -> Path:
    """Return the folder of a run with a database of TraceML's own name, or else the file without suffix."""
    if path.name != "telemetry":
        return path.parent.resolve() / path.stem
    folder = path.resolve().parent
    while folder.name == "aggregator":
        folder = folder.parent
    return folder


def _wrapped(window: WindowDraft, strategy: str) -> WindowDraft:
    wrapper = _WRAPPERS.get(strategy, "other")
    extra = window.manifest.extra | ({"training_strategy": strategy} if strategy else {})
    return replace(window, manifest=replace(window.manifest, wrapper=wrapper, extra=extra))


def _notes(run: _TelemetryRun) -> list[ImportNote]:
    notes = [
        ImportNote(
            "derived", "a step is TraceML's step_time plus the wait for its batch, which step_time excludes"
        ),
        ImportNote("missing", "begin times of steps: TraceML stores durations only"),
    ]
    if run.on_device:
        notes.append(ImportNote("skipped", "device times: stages use host times"))
    for stage in (DATA, FORWARD, BACKWARD, OPTIMIZER):
        if stage not in run.stages:
            notes.append(ImportNote("missing", f"no event for {stage}"))
    for name in sorted(run.unknown):
        notes.append(ImportNote("skipped", f"event {quoted(name)}: the mapping assigns no stage to it"))
    return notes
