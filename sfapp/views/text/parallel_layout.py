"""Name the pattern of late ranks in the parallel layout (accounting.md §20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfapp.model import Diagnosis, RankTable
from sfapp.model.parallel_layout import PATTERNS, LayoutPattern, PatternKind
from sfapp.views import format

NO_PATTERN = "No pattern: no rank stands out beyond noise, or the late ranks form none of the known groups."

_KINDS: Mapping[PatternKind, str] = {
    "worker": "one worker",
    "tensor_group": "one tensor-parallel group",
    "host": "one host",
    "pipeline_stage": "one pipeline stage",
    "data_row": "one data-parallel replica",
}


def pattern_sentences(pattern: LayoutPattern | None, layout: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Return the pattern, its usual cause, and what cannot be distinguished from it.

    Args:
        layout: coordinates of the window's ranks by dimension.
    """
    if pattern is None:
        return (NO_PATTERN,)
    verb = "is" if len(pattern.ranks) == 1 else "are"
    ranks = f"rank{'s' if len(pattern.ranks) > 1 else ''} {format.ranges(pattern.ranks)}"
    late = f"{format.duration(pattern.late_ns)} per step late"
    slow = f"{format.percent_change(pattern.slowdown)} vs the median rank"
    first = f"{_subject(pattern, layout)}: {ranks} {verb} {late} ({slow}). {PATTERNS[pattern.kind]}"
    if not pattern.also:
        return (first,)
    others = format.listed([_KINDS[kind] for kind in pattern.also], conjunction="and")
    return first, f"These ranks are also {others}: which of them is the cause cannot be distinguished here."


def verdict_pattern(diagnosis: Diagnosis, ranks: RankTable | None = None) -> tuple[str, ...]:
    """Return the pattern of a window's late ranks; empty if there is none.

    Args:
        ranks: the window's rank table; without it, the table of the diagnosis shows the pipeline stages.
    """
    table = diagnosis.layout
    if table is None or table.pattern is None:
        return ()
    shown = dict(zip(table.dimensions, (table.rows, table.columns), strict=True))
    return pattern_sentences(table.pattern, shown if ranks is None else ranks.layout)


def _subject(pattern: LayoutPattern, layout: Mapping[str, Sequence[int]]) -> str:
    """Return ``One worker (dp 3, pp 0, on node-1)``."""
    place = [f"{name} {coordinate}" for name, coordinate in pattern.coordinates.items()]
    if pattern.hostname:
        place.append(f"on {format.clip(pattern.hostname)}")
    name = _KINDS[pattern.kind].capitalize()
    if pattern.kind == "pipeline_stage" and pattern.coordinates["pp"] == max(layout.get("pp", (-1,))):
        name = "The last pipeline stage"
    return f"{name} ({', '.join(place)})" if place else name
