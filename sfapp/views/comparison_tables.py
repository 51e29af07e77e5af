"""Rows for the tables of a comparison: one row per stage, and one per property of the sides (accounting.md
§14)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sfapp.accounting import LETTERS, Change, Comparison, Side
from sfapp.model.labels import UNIVERSAL_LABEL, label_words
from sfapp.views import format
from sfapp.views.table_columns import Row, TableColumn
from sfapp.views.text.compare import leader_words, side_names

SUM = "sum"
"""Key of the row with the sum of the stages' changes."""


def stage_columns(found: Comparison) -> tuple[TableColumn, ...]:
    """Return the columns of ``stage_rows``."""
    unit = _unit(found).name
    letters = LETTERS[: len(found.sides)]
    times = [TableColumn(f"{one}_ns", f"{one}, {unit}", "mean per step", f"{one}_ns_text") for one in letters]
    columns = [
        TableColumn("name", "stage"),
        *times,
        TableColumn(
            "delta_ns",
            f"B − A, {unit}",
            "change per step; the stages add up to the step exactly",
            "delta_ns_text",
        ),
    ]
    if found.c is not None:
        back = "from B to C, per step; the stages add up exactly"
        columns.append(TableColumn("back_ns", f"C − B, {unit}", back, "back_ns_text"))
    if found.waiting_ns(found.a, found.b):
        own = "part of B − A until the last rank arrives in the stage, if both sides measured waits"
        columns.append(TableColumn("own_ns", "own time", own, "own_ns_text"))
        waiting = "part of B − A after the last rank arrived: computing, transfer or a wait outside the group"
        columns.append(TableColumn("waiting_ns", "waiting", waiting, "waiting_ns_text"))
    columns.append(TableColumn("share", "share", "share of the step, A → B", "share_text"))
    return tuple(columns)


def stage_rows(found: Comparison) -> list[Row]:
    """Return one row per stage in stage order, then their sum; printed times add up exactly.

    ``aligned_ns`` is the change on the step-aligned frontier; no column shows it, since the other numbers of
    the row use the selected frontier.
    """
    unit = _unit(found)
    rows: dict[str, Row] = {
        stage: {"stage": stage, "name": name} for stage, name in format.short_stages(found.stages).items()
    }
    rows[SUM] = {"stage": SUM, "name": "step time"}
    for letter, side in zip(LETTERS, found.sides, strict=False):
        _put(rows, f"{letter}_ns", found.account(side).per_step_ns, unit, signed=False)
    _put(rows, "delta_ns", found.main.delta_ns, unit)
    if found.c is not None:
        _put(rows, "back_ns", Change(found.account(found.b), found.account(found.c)).delta_ns, unit)
    aligned = found.change(found.a, found.b, "step")
    if aligned is not None:
        _put(rows, "aligned_ns", aligned.delta_ns, unit)
    _put_waits(rows, found, unit)
    _put_shares(rows, found)
    return list(rows.values())


def _put_waits(rows: dict[str, Row], found: Comparison, unit: format.Unit) -> None:
    """Add the parts of the change from A to B that are own time and waiting, for stages with known waits."""
    changes = found.waiting_ns(found.a, found.b)
    if not changes:
        return
    absent: Row = {"own_ns": None, "own_ns_text": "", "waiting_ns": None, "waiting_ns_text": ""}
    for row in rows.values():
        row |= absent
    for stage, waiting in changes.items():
        parts = {"own_ns": found.main.delta_ns[stage] - waiting, "waiting_ns": waiting}
        texts, _ = format.adding_up(parts, unit)
        for name, part in parts.items():
            rows[stage] |= {name: float(part), f"{name}_text": texts[name]}


def side_columns(found: Comparison) -> tuple[TableColumn, ...]:
    """Return the columns of ``side_rows``: one per side, and the change from A to B."""
    names = zip(LETTERS, side_names(found), strict=False)
    return (
        TableColumn("what", ""),
        *(TableColumn(letter, name) for letter, name in names),
        TableColumn("change", "A → B"),
    )


def side_rows(found: Comparison) -> list[Row]:
    """Return size, spread, severity, routing set, labels and slowest ranks of each side."""
    a, b = found.a, found.b
    rows = [
        _side_row("steps", [format.count(side.steps) for side in found.sides]),
        _side_row("ranks", [format.ranges(side.ranks) for side in found.sides]),
    ]
    if any(len(side.windows) > 1 for side in found.sides):
        rows.append(_side_row("windows", [format.count(len(side.windows)) for side in found.sides]))
        rows.append(_side_row("step time of windows", [_spread(found, side) for side in found.sides]))
    severities = [format.severity(side.severity) for side in found.sides]
    rows.append(_side_row("severity", severities))
    routed = [side.routing_set(found.frontier) for side in found.sides]
    short = format.short_stages(found.stages)
    rows.append(
        _side_row(
            "routing set",
            [format.ABSENT if one is None else ", ".join(short[stage] for stage in one) for one in routed],
            _gained_and_lost(
                [short[stage] for stage in routed[1] or () if stage not in (routed[0] or ())],
                [short[stage] for stage in routed[0] or () if stage not in (routed[1] or ())],
            ),
        )
    )
    rows.append(
        _side_row(
            "labels",
            [_labels(side) for side in found.sides],
            _gained_and_lost(
                [label_words(label) for label in found.labels_gained(a, b)],
                [label_words(label) for label in found.labels_gained(b, a)],
            ),
        )
    )
    return [*rows, *(_leader_row(found, stage) for stage in found.stages if _stands_out(found, stage))]


def _unit(found: Comparison) -> format.Unit:
    steps = [found.account(side).per_step_ns.values() for side in found.sides]
    return format.per_step_unit(max(max(values) for values in steps))


def _put(
    rows: dict[str, Row], field: str, parts_ns: dict[str, Fraction], unit: format.Unit, *, signed: bool = True
) -> None:
    """Add a column of times and their sum; the printed values add up exactly."""
    texts, total = format.adding_up(parts_ns, unit, signed=signed)
    for stage, part in parts_ns.items():
        rows[stage] |= {field: float(part), f"{field}_text": texts[stage]}
    rows[SUM] |= {field: float(sum(parts_ns.values(), Fraction())), f"{field}_text": total}


def _put_shares(rows: dict[str, Row], found: Comparison) -> None:
    shares = [side.shares(found.split_on) for side in found.sides]
    for stage in found.stages:
        values = [None if one is None else one[stage] for one in shares]
        before, after = values[:2]
        change = None if before is None or after is None else after - before
        rows[stage] |= {"share": change, "share_text": " → ".join(format.percent(value) for value in values)}
    rows[SUM] |= {"share": None, "share_text": ""}


def _stands_out(found: Comparison, stage: str) -> bool:
    return any(side.leaders[stage] is not None for side in found.sides)


def _leader_row(found: Comparison, stage: str) -> Row:
    """Return the rank that is most often slowest in a stage on each side, among steps with a clear slowest
    rank."""
    leaders = [side.leaders[stage] for side in found.sides]
    texts = [
        leader_words(leader, at_least=len(side.windows) > 1)
        for leader, side in zip(leaders, found.sides, strict=True)
    ]
    before, after = (None if leader is None else f"rank {leader.rank}" for leader in leaders[:2])
    change = _gained_and_lost([after] if after else [], [before] if before else [])
    return _side_row(
        f"slowest {format.in_stage(stage)}",
        texts,
        "unchanged" if before == after else change,
    )


def _side_row(what: str, values: Sequence[str], change: str = "") -> Row:
    return {"what": what, **dict(zip(LETTERS, values, strict=False)), "change": change}


def _spread(found: Comparison, side: Side) -> str:
    spread = side.spread(found.split_on)
    if spread is None or len(side.windows) < 2:
        return format.ABSENT
    least, most = format.duration(spread.least), format.duration(spread.most)
    return f"{least} – {most}, median {format.duration(spread.median)}"


def _labels(side: Side) -> str:
    """Return labels other than the universal one; for several windows, with the number of windows."""
    windows = len(side.windows)
    named = [
        label_words(label) if windows == 1 else f"{label_words(label)} ({count} of {windows})"
        for label, count in side.labels.items()
        if label != UNIVERSAL_LABEL
    ]
    return ", ".join(named) or "none"


def _gained_and_lost(gained: Sequence[str], lost: Sequence[str]) -> str:
    return ", ".join([*(f"+ {name}" for name in gained), *(f"− {name}" for name in lost)]) or "unchanged"
