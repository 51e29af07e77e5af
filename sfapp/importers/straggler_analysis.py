"""Import ByteDance's StragglerAnalysis: ``trace-NAME.parquet`` of operations with ``meta-NAME.yaml``.

The stages of a window are kinds of operations, added up over micro-batches: a rank's own work first, then its
waits. Each pipeline stage is a role. The manifest's extra holds the slowdowns of the what-if by replay.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from sfapp.errors import TraceError
from sfapp.importers.duration_table import DurationTable, cut, duration_matrix
from sfapp.importers.import_result import (
    ImportedWindow,
    ImportNote,
    ImportOptions,
    ImportResult,
    guarded,
)
from sfapp.importers.mapping import Mapping
from sfapp.importers.run_names import run_names
from sfapp.importers.source_files import expand
from sfapp.importers.spans import IntervalUnion, own_time
from sfapp.importers.straggler_operations import Floats, Ints, OperationTable, read_table
from sfapp.importers.straggler_replay import (
    BACKWARD,
    CLIP,
    COLLECT,
    EMBEDDING,
    FORWARD,
    GATHER,
    NORM,
    OPTIMIZER,
    SCATTER,
    SENDS,
    TRANSFERS,
    waits_of_rows,
    what_if,
)
from sfapp.importers.window_builder import WindowInfo, build_window
from sfapp.model import Accumulation, Lane, Operators, Parallelism, RankIdentity
from sfapp.model import stages as names
from sfapp.model.manifest import MAX_WORLD_SIZE
from sfapp.model.operators import COLLECTIVE, KERNEL, NONE
from sfapp.model.parse import whole_number
from sfapp.packets import WindowDraft

WAIT = "pipeline.wait"
_STAGES = {
    GATHER: "comm.params_all_gather",
    FORWARD: names.FORWARD,
    BACKWARD: names.BACKWARD,
    WAIT: WAIT,
    COLLECT: "callbacks.gc",
    NORM: "comm.grads_reduce",
    SCATTER: "comm.grads_reduce",
    EMBEDDING: "comm.embedding_grads",
    CLIP: "optim.clip_grads",
    OPTIMIZER: names.OPTIMIZER,
}
_NS = 1_000_000_000
_MAX_META = 2**20


def read(paths: Sequence[Path], options: ImportOptions) -> ImportResult:
    """Read operation tables as windows; each file is a run."""
    windows: list[ImportedWindow] = []
    refused: list[TraceError] = []
    run_ids = run_names([path.parent.resolve() / _name(path) for path in paths])
    for path, run_id in zip(options.each(paths), run_ids, strict=True):
        with guarded(refused, path):
            windows += _windows(path, run_id, options.mapping)
    return ImportResult(tuple(windows), tuple(refused), sources=dict(zip(run_ids, paths, strict=True)))


def _windows(path: Path, run_id: str, mapping: Mapping) -> list[ImportedWindow]:
    table = read_table(path)
    meta, notes = _meta(path)
    stages = [_stage(kind, mapping) for kind in (*table.optypes, WAIT)]
    ordered = mapping.stages or tuple(_STAGES.values())
    listed = sorted(
        dict.fromkeys(stage for stage in stages if stage),
        key=lambda stage: ordered.index(stage) if stage in ordered else len(ordered),
    )
    extra, more, blocked = _replayed(table)
    cells, wait_cells, events = _lay_out(table, blocked)
    matrix = duration_matrix(cells, len(stages) + 1, path.name)
    planes = [
        matrix.duration_KNR[[k for k, each in enumerate(stages) if each == stage]].sum(axis=0)
        for stage in listed
    ]
    duration_SNR = np.stack(planes)
    waits = _waits(wait_cells, stages, path.name)
    last_N1 = matrix.duration_KNR[-1].max(axis=1, keepdims=True)
    wall_NR = last_N1.repeat(len(matrix.rank_R), axis=1)
    ranks, first = np.unique(table["rank"], return_index=True)
    places = zip(table["stage"][first].tolist(), table["dp_rank"][first].tolist(), strict=True)
    identities = [
        RankIdentity(rank, 0, 0, "", mapping.role_of(rank) or f"pp{stage}", {"dp": replica, "pp": stage})
        for rank, (stage, replica) in zip(ranks.tolist(), places, strict=True)
    ]
    micro_steps = max(int(table["mb_id"].max()), 0) + 1
    about = WindowInfo(
        run_id=run_id,
        world_size=max(meta.get("world_size", 0), int(ranks[-1]) + 1),
        parallelism=Parallelism(
            dp=max(meta.get("dp_size", 1), int(table["dp_rank"].max()) + 1),
            pp=max(meta.get("pp_size", 1), int(table["stage"].max()) + 1),
            tp=meta.get("tp_size", 1),
            cp=meta.get("dsp_size", 1),
        ),
        accumulation=Accumulation(factor=micro_steps, ordered=micro_steps == 1),
    )
    notes = [*_notes(micro_steps), *notes, *more, *matrix.notes]
    built = []
    for number, part in enumerate(cut(len(matrix.step_N))):
        step_N = matrix.step_N[part]
        window = build_window(
            replace(about, window=number),
            listed,
            duration_SNR[:, part],
            wall_NR[part],
            step_N,
            identities,
            wait_NR={stage: wait_NR[part] for stage, wait_NR in waits.items()},
        )
        mine = events.select(np.isin(events.step_E, step_N))
        built.append(ImportedWindow(_with(window, extra), mine, tuple(notes)))
    return built


def _stage(kind: str, mapping: Mapping) -> str:
    mapped = mapping.stage_of(kind)
    if mapped is not None:
        return mapped
    return "" if kind in SENDS else _STAGES.get(kind, kind)


def _name(path: Path) -> str:
    return path.name.removesuffix(".parquet").removeprefix("trace-") or "run"


def _with(window: WindowDraft, extra: dict[str, Any]) -> WindowDraft:
    return replace(window, manifest=replace(window.manifest, extra=window.manifest.extra | extra))


def _notes(micro_steps: int) -> list[ImportNote]:
    notes = [
        ImportNote("missing", "begin times of steps: for operator events, steps are laid end to end"),
        ImportNote("missing", "hosts and host work: all operations are device operations"),
    ]
    if micro_steps > 1:
        what = f"the {micro_steps} interleaved micro-batches of a step are added up, work before waits"
        notes.append(ImportNote("derived", what))
    return notes


def _meta(path: Path) -> tuple[dict[str, int], list[ImportNote]]:
    """Return the whole numbers of ``meta-NAME.yaml``; empty if the file is absent or unreadable."""
    meta_path = path.with_name(f"meta-{_name(path)}.yaml")
    if not meta_path.is_file():
        return {}, [ImportNote("missing", f"no {meta_path.name}: degrees of parallelism come from the table")]
    if importlib.util.find_spec("yaml") is None:
        return {}, [ImportNote("skipped", f"{meta_path.name} needs PyYAML: pip install 'sfapp[traces]'")]
    import yaml

    try:
        # Nodes, not values: merged keys (``<<``) would be copied without end.
        root = yaml.compose(expand(meta_path, _MAX_META), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, TraceError, ValueError, RecursionError):
        return {}, [ImportNote("skipped", f"{meta_path.name}: not valid YAML")]
    items = root.value if isinstance(root, yaml.MappingNode) else ()
    found = {
        key.value: whole_number(value.value)
        for key, value in items
        if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)
    }
    return {
        key: number for key, number in found.items() if number is not None and 1 <= number <= MAX_WORLD_SIZE
    }, []


def _replayed(table: OperationTable) -> tuple[dict[str, Any], list[ImportNote], Floats | None]:
    """Return the slowdowns of the what-if by replay, notes, and the seconds that each operation waits for the
    others of its transfer. If the job's schedule is not supported, there are no slowdowns and no waits."""
    try:
        found, blocked = what_if(table), waits_of_rows(table)
    except TraceError as error:
        return {}, [ImportNote("missing", f"what-if by replay: {error.reason}")], None
    kept = {name: value for name, value in asdict(found).items() if not isinstance(value, dict)}
    by = {
        name: {str(key): round(value, 6) for key, value in getattr(found, name).items()}
        for name in ("by_type", "by_stage", "by_replica")
    }
    return {"what_if": {"slowdown": found.slowdown} | kept | by}, [], blocked


def _waits(cells: DurationTable | None, stages: Sequence[str], where: str) -> dict[str, Ints]:
    """Return how long each rank waited for others, int64 ns [N, R], by stages in which any rank did.

    Args:
        cells: by kind of operation, in the order of ``stages``; None if the trace does not show it.
    """
    if cells is None:
        return {}
    wait_KNR = duration_matrix(cells, len(stages), where).duration_KNR
    found: dict[str, Ints] = {}
    for stage, wait_NR in zip(stages, wait_KNR, strict=True):
        if stage and wait_NR.any():
            found[stage] = found[stage] + wait_NR if stage in found else wait_NR
    return found


def _lay_out(
    table: OperationTable, blocked: Floats | None
) -> tuple[DurationTable, DurationTable | None, Operators]:
    """Return each rank's own time per kind of operation, gaps and step times; the part of them that is
    waiting for other members of a transfer; and the operations as events.

    Args:
        blocked: seconds of each row; None if not known.
    """
    steps, step_at = np.unique(table["step"], return_inverse=True)
    begin_N = np.full(len(steps), np.inf)
    np.minimum.at(begin_N, step_at, table["start_ts"])
    start = np.rint((table["start_ts"] - begin_N[step_at]) * _NS).astype(np.int64)
    end = start + np.rint(table["duration"] * _NS).astype(np.int64)
    length_N = np.zeros(len(steps), np.int64)
    np.maximum.at(length_N, step_at, end)
    order = np.lexsort((start, step_at, table["rank"]))
    rank, at, kind = table["rank"][order], step_at[order], table["optype"][order]
    start, end = start[order], end[order]
    line = np.cumsum(np.append(0, (np.diff(rank) != 0) | (np.diff(at) != 0)))
    origin_L = np.append(0, np.cumsum(length_N[at[np.append(0, np.flatnonzero(np.diff(line)) + 1)]]))[:-1]
    origin = origin_L[line]
    work = ~np.isin(kind, [code for code, name in enumerate(table.optypes) if name in SENDS])
    own, gap = own_time(start[work] + origin[work], end[work] + origin[work], origin[work])
    gap_end = start[work] + origin[work]
    begin_sends, end_sends = (start + origin)[~work], (end + origin)[~work]
    waited = IntervalUnion.of(begin_sends, end_sends).within(gap_end - gap, gap_end)
    step, gaps = steps[at], np.full(int(work.sum()), len(table.optypes))
    last = np.append(np.flatnonzero(np.diff(line)), len(line) - 1)
    end_L = np.zeros(len(origin_L), np.int64)
    np.maximum.at(end_L, line, end)
    whole = step[last], rank[last], np.full(len(last), len(table.optypes) + 1), end_L
    cells = DurationTable.concat(
        [
            DurationTable(step[work], rank[work], kind[work], own),
            DurationTable(step[work], rank[work], gaps, waited),
            DurationTable(*whole),
        ]
    )
    waits = None
    if blocked is not None:
        until = np.minimum(start + np.rint(blocked[order] * _NS).astype(np.int64), end)
        in_work = np.clip(until[work] - (end[work] - own), 0, own)
        in_gaps = IntervalUnion.of(begin_sends, (until + origin)[~work]).within(gap_end - gap, gap_end)
        waits = DurationTable.concat(
            [
                DurationTable(step[work], rank[work], kind[work], in_work),
                DurationTable(step[work], rank[work], gaps, in_gaps),
                DurationTable(
                    step[last], rank[last], np.zeros(len(last), np.int64), np.zeros(len(last), np.int64)
                ),
            ]
        )
    offset = np.append(0, np.cumsum(length_N))[:-1][at]
    return cells, waits, _events(table, order, at, start + offset, end + offset)


def _events(table: OperationTable, order: Ints, at: Ints, start: Ints, end: Ints) -> Operators:
    """Return operations as events; transfers carry their group and their number in it."""
    kind, rank = table["optype"][order], table["rank"][order]
    stage, replica, number = table["stage"][order], table["dp_rank"][order], table["seq_id"][order]
    last, count = int(stage.max()), int(number.max()) + 1
    lanes: dict[Lane, int] = {}
    groups: dict[str, int] = {}
    lane_E, group_E = np.zeros(len(kind), np.int64), np.full(len(kind), NONE)
    category_E = np.full(len(kind), KERNEL)
    for code, name in enumerate(table.optypes):
        mine = np.flatnonzero(kind == code)
        category_E[mine] = COLLECTIVE if name in TRANSFERS else KERNEL
        stream = name if name in SENDS else "compute"
        places = np.stack([rank[mine], stage[mine], replica[mine]])
        distinct, member = np.unique(places, axis=1, return_inverse=True)
        for place, (of_rank, of_stage, of_replica) in enumerate(distinct.T.tolist()):
            chosen = mine[member.ravel() == place]
            lane_E[chosen] = lanes.setdefault(Lane(of_rank, f"stream {stream}", True), len(lanes))
            group = _group(name, of_stage, of_replica, last)
            if group:
                group_E[chosen] = groups.setdefault(group, len(groups))
    micro = np.where(table["mb_id"][order] >= 0, at * count + np.maximum(table["mb_id"][order], 0), NONE)
    return Operators.of(
        names=table.optypes,
        name_E=kind,
        category_E=category_E,
        lanes=tuple(lanes),
        lane_E=lane_E,
        step_E=table["step"][order],
        start_ns_E=start,
        end_ns_E=end,
        groups=tuple(groups),
        group_E=group_E,
        sequence_E=np.where(group_E >= 0, at * count + number, NONE),
        sequence_number_E=micro,
    )


def _group(name: str, stage: int, replica: int, last: int) -> str:
    """Return the group of a transfer; empty if no other recorded rank belongs to it."""
    if name in SENDS:
        way = name.partition("-")[0]
        lower = stage if name in ("forward-send", "backward-recv") else stage - 1
        return f"{way} stage {lower} to {lower + 1}, replica {replica}" if 0 <= lower < last else ""
    if name in (GATHER, SCATTER):
        return f"{name}, stage {stage}"
    if name == EMBEDDING:
        return f"{name}, replica {replica}"
    return name if name == CLIP else ""
