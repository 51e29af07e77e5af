"""Rows for the tables of one window: raw values for sorting with their text (``share`` and
``share_text``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from sfapp.accounting import Measures
from sfapp.model import LABELS, Diagnosis, Manifest
from sfapp.model.labels import label_words
from sfapp.model.reasons import reason_sentence
from sfapp.views import format
from sfapp.views.figures.active_frontier import (
    active_frontier,
)
from sfapp.views.figures.node import lead_shares, ranks_on
from sfapp.views.table_columns import Row, TableColumn
from sfapp.views.text import evidence_lines

_MOST_EXTRA, _LONGEST_EXTRA = 64, 1000  # entries of a manifest's `extra`, and characters of one


def _numeric(field: str, title: str, help: str = "") -> TableColumn:
    return TableColumn(field, title, help, f"{field}_text")


RANK_COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("rank", "rank"),
    TableColumn("hostname", "host"),
    TableColumn("node_rank", "node"),
    TableColumn("local_rank", "local"),
    TableColumn("role", "role"),
    TableColumn("mark", "▲", "slowest rank of the suspect stage"),
    _numeric("step_ns", "rank's step", "sum of the rank's own stages, mean per step"),
    _numeric("lead", "is slowest", "share of the steps in which it is slowest in the suspect stage"),
    _numeric("stage_ns", "suspect stage", "mean per step in the suspect stage"),
    _numeric("slack_ns", "slack", "lead over the slowest rank on entering the suspect stage, mean"),
    _numeric("lag_ns", "lag", "delay behind the median rank on leaving the suspect stage, mean"),
)

STAGE_COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("name", "stage"),
    _numeric("advance_ns", "advance", "mean per step, selected frontier"),
    _numeric("share", "A", "share of the step-aligned frontier"),
    _numeric("carry_share", "A'", "share of the carry-over frontier"),
    _numeric("gain", "G", "static gain: clip this stage alone"),
    _numeric("excess", "X", "excess over a typical rank, step-aligned"),
    _numeric("carry_excess", "X'", "excess over a typical rank, carry-over"),
    _numeric("takeover", "T", "growth when the top stage is clipped"),
    _numeric("delta_ns", "Δ", "change of the mean advance vs the healthy window"),
    _numeric("slope", "wait slope", "time spent here per unit of slack on entry, ± standard error"),
    TableColumn("sets", "sets", "routing set, ambiguity set, wait stage"),
)

WAIT_RANK_COLUMNS: tuple[TableColumn, ...] = (
    _numeric("own_ns", "own", "mean per step in the suspect stage, without waits for other ranks"),
    _numeric("wait_ns", "waiting", "mean per step in the suspect stage in which it waits for other ranks"),
)
"""Further columns if the packet holds waits of the suspect stage."""

WAIT_STAGE_COLUMNS: tuple[TableColumn, ...] = (
    _numeric("own_ns", "own", "advance until the last rank arrives in the stage, mean per step"),
    _numeric("wait_ns", "waiting", "advance while even the last rank waits, mean per step"),
)
"""Further columns if the packet holds waits of any stage."""

STEP_COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("step", "step"),
    _numeric("time_ns", "exposed time"),
    TableColumn("top", "largest stage"),
    _numeric("top_ns", "advance", "of the largest stage"),
    TableColumn("leader", "slowest rank", "in the largest stage"),
    TableColumn("hostname", "host"),
    _numeric("gap_ns", "gap", "to the second slowest rank"),
)

EVIDENCE_COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("mark", ""),
    TableColumn("title", "check"),
    TableColumn("text", "result"),
    TableColumn("source", "based on", "checks based on the same numbers count as one source"),
    TableColumn("meaning", "meaning"),
)


def stage_columns(rows: Sequence[Row]) -> tuple[TableColumn, ...]:
    """Return the columns of rows of ``stage_rows``."""
    return _with_waits(STAGE_COLUMNS, WAIT_STAGE_COLUMNS, "advance_ns", rows)


def rank_columns(rows: Sequence[Row]) -> tuple[TableColumn, ...]:
    """Return the columns of rows of ``rank_rows``."""
    return _with_waits(RANK_COLUMNS, WAIT_RANK_COLUMNS, "stage_ns", rows)


def _with_waits(
    columns: Sequence[TableColumn], waits: Sequence[TableColumn], after: str, rows: Sequence[Row]
) -> tuple[TableColumn, ...]:
    """Return the columns, with those of waits after the field ``after`` if the rows have them."""
    if not any("wait_ns" in row for row in rows):
        return tuple(columns)
    place = next(place for place, column in enumerate(columns) if column.field == after) + 1
    return (*columns[:place], *waits, *columns[place:])


def stage_rows(diagnosis: Diagnosis) -> list[Row]:
    """Return one row per broad stage, in stage order, with own time and waiting if the waits of any stage are
    known (accounting.md §15)."""
    carried = diagnosis.carry_over_advances_ns if diagnosis.frontier == "carry_over" else None
    advances = carried or diagnosis.advances_ns
    short = format.short_stages(diagnosis.stages)
    rows = []
    for stage in diagnosis.stages:
        fit = _fit(diagnosis, stage)
        row: Row = {"stage": stage, "name": short[stage], "sets": _sets(diagnosis, stage)}
        row |= _duration("advance_ns", advances[stage] / diagnosis.steps)
        row |= _own_advance(diagnosis, stage)
        row |= _share("share", diagnosis.shares, stage)
        row |= _share("carry_share", diagnosis.carry_over_shares, stage)
        row |= _share("gain", diagnosis.static_gain, stage)
        row |= _share("excess", diagnosis.excess, stage)
        row |= _share("carry_excess", diagnosis.carry_over_excess, stage)
        row |= _share("takeover", diagnosis.takeover, stage)
        delta = None if diagnosis.delta_ns is None else diagnosis.delta_ns[stage]
        row |= {"delta_ns": delta, "delta_ns_text": format.change(delta)}
        row |= {"slope": fit[0] if fit else None, "slope_text": format.slope(*fit) if fit else format.ABSENT}
        rows.append(row)
    return rows


def _own_advance(diagnosis: Diagnosis, stage: str) -> Row:
    """Return a_own and a_wait of a stage per step, on the carry-over frontier if there is one; empty if no
    stage's waits are known."""
    if not diagnosis.wait_advances_ns:
        return {}
    advances = diagnosis.carry_over_advances_ns or diagnosis.advances_ns
    waiting = diagnosis.wait_advances_ns.get(stage)
    own = None if waiting is None else advances[stage] - waiting
    return {
        name: value
        for field, total in (("own_ns", own), ("wait_ns", waiting))
        for name, value in _duration(field, None if total is None else total / diagnosis.steps).items()
    }


def _fit(diagnosis: Diagnosis, stage: str) -> tuple[float, float] | None:
    """Return the wait fit of a broad stage; with micro-steps, the one with the largest slope."""
    fits = [
        (fit.slope, fit.se)
        for name, fit in (diagnosis.wait_fit or {}).items()
        if fit is not None and (name == stage or name.startswith(f"{stage}["))
    ]
    return max(fits, default=None)


def _sets(diagnosis: Diagnosis, stage: str) -> str:
    parts = []
    if stage in (diagnosis.routing_set or ()):
        parts.append("routing")
    if stage in (diagnosis.co_critical_stages or ()):
        parts.append("ambiguity")
    if any(name == stage or name.startswith(f"{stage}[") for name in diagnosis.wait_stages):
        parts.append("wait")
    return ", ".join(parts)


def slowest_first(measures: Measures, diagnosis: Diagnosis, node: int | None = None) -> list[int]:
    """Return the positions of a node's ranks, or of all; the ranks most often slowest at the suspect stage
    come first."""
    places = (
        np.arange(len(measures.window.ranks)) if node is None else np.array(ranks_on(measures, node), int)
    )
    lead_R = lead_shares(measures, diagnosis)[places]
    found: list[int] = places[np.argsort(-lead_R, kind="stable")].tolist()
    return found


def step_rows(measures: Measures, diagnosis: Diagnosis) -> list[Row]:
    """Return one row per step, ascending."""
    active = active_frontier(measures, diagnosis)
    advance_BN = measures.by_broad(active.advance_SN)
    total_N = advance_BN.sum(axis=0)
    top_N = advance_BN.argmax(axis=0)
    ranks = measures.led_by
    short = format.short_stages(measures.broad)
    rows = []
    for place, step in enumerate(measures.step_N.tolist()):
        top = int(top_N[place])
        boundary = max(measures.members(top), key=lambda stage: active.advance_SN[stage, place])
        leader = int(active.leader_SN[boundary, place])
        row: Row = {"step": step, "top": short[measures.broad[top]]}
        row |= {"leader": ranks.rank[leader], "hostname": ranks.hostname[leader]}
        row |= _duration("time_ns", float(total_N[place]))
        row |= _duration("top_ns", float(advance_BN[top, place]))
        row |= _duration("gap_ns", float(active.gap_SN[boundary, place]) if measures.ranks > 1 else None)
        rows.append(row)
    return rows


def evidence_rows(diagnosis: Diagnosis) -> list[Row]:
    """Return one row per check."""
    return [asdict(line) for line in evidence_lines(diagnosis)]


def label_rows(diagnosis: Diagnosis) -> list[Row]:
    """Return labels that hold and labels that are suppressed, with explanation and reasons."""
    held = [(label, "holds") for label in diagnosis.labels]
    suppressed = [(label, "suppressed") for label in diagnosis.suppressed]
    return [
        {
            "label": label.label,
            "words": label_words(label.label),
            "state": state,
            "meaning": LABELS[label.label].explanation,
            "reasons": ", ".join(label.reasons),
            "reasons_text": " ".join(_reason_text(reason) for reason in label.reasons),
        }
        for label, state in (*held, *suppressed)
    ]


def _reason_text(reason: str) -> str:
    """Return why a label holds, or which label suppresses it."""
    return f"Suppressed by {label_words(reason)}." if reason in LABELS else reason_sentence(reason)


def manifest_rows(manifest: Manifest) -> list[Row]:
    """Return the packet's manifest as text, one row per key."""
    accumulation, degrees = manifest.accumulation, manifest.parallelism
    recorder, overhead = manifest.recorder, manifest.overhead
    train = overhead.train_ns or 0
    cost = (overhead.gather_ns + overhead.record_ns) / train if train else None
    values = {
        "run": manifest.run_id,
        "window": str(manifest.window),
        "stages": ", ".join(manifest.stages),
        "stage hash": manifest.stage_hash,
        "world size": format.count(manifest.world_size),
        "missing ranks": format.ranges(manifest.missing_ranks, 8) or "none",
        "gather": "complete"
        if manifest.gather_ok
        else f"failed: {manifest.gather_error or 'no reason given'}",
        "started": manifest.started_at or format.ABSENT,
        "ended": manifest.ended_at or format.ABSENT,
        "closed by": manifest.closed_by.replace("_", " "),
        "accumulation": f"{accumulation.factor}, {'ordered' if accumulation.ordered else 'collapsed'}, "
        f"sync {accumulation.sync}",
        "parallelism": ", ".join(f"{name} {degree}" for name, degree in asdict(degrees).items()),
        "wrapper": manifest.wrapper,
        "wait model declared": "yes" if manifest.model_fit else "no",
        "prefetch": manifest.prefetch,
        "recorder": " · ".join(
            part for part in (recorder.version, recorder.torch, recorder.backend, recorder.host) if part
        )
        or format.ABSENT,
        "overhead": format.ABSENT if cost is None else f"{format.percent(cost, 3)} of training time",
        "faults": ", ".join(manifest.faults) or "none",
    }
    for key, value in list(manifest.extra.items())[:_MOST_EXTRA]:
        values[f"extra: {format.clip(key, 80)}"] = format.clip(
            str(value)[: 2 * _LONGEST_EXTRA], _LONGEST_EXTRA
        )
    return [{"key": key, "value": value} for key, value in values.items()]


def source_rows(sources: Sequence[Any]) -> list[Row]:
    """Return the packet files of a window; each source has ``path``, ``size`` and ``sha256``."""
    return [
        {
            "path": str(source.path),
            "size": source.size,
            "size_text": format.size(source.size),
            "sha256": source.sha256,
        }
        for source in sources
    ]


def _duration(field: str, ns: float | None) -> Row:
    return {field: ns, f"{field}_text": format.duration(ns)}


def _share(field: str, values: dict[str, float] | None, stage: str) -> Row:
    value = None if values is None else values.get(stage)
    return {field: value, f"{field}_text": format.percent(value, 1)}
