"""Neighbouring windows with the same suspect or the same missing data, and their words in timelines."""

from __future__ import annotations

from collections.abc import Sequence

from sfapp.model import CULPRITS
from sfapp.views import format
from sfapp.views.window_level import Row


def suspect_spans(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return ranges of neighbouring windows that lack the same data, or that need attention and have the same
    suspect: (first, last) place."""
    spans: list[tuple[int, int]] = []
    for place, row in enumerate(rows):
        if not (row["lacks_data"] or (row["needs_attention"] and row["aim_stage"])):
            continue
        if spans and spans[-1][1] == place - 1 and _same(rows[spans[-1][0]], row):
            spans[-1] = (spans[-1][0], place)
        else:
            spans.append((place, place))
    return spans


def _same(one: Row, other: Row) -> bool:
    keys = ["run_id", "missing_ranks", "first_missing_rank", "lacks_data", "needs_attention"]
    if one["needs_attention"]:
        keys += ["aim_stage", "aim_rank", "culprit_kind"]
    return all(one.get(key) == other.get(key) for key in keys)


def span_words(row: Row) -> str:
    """Return ``callbacks · rank 3 · persistent``; ``rank 7 missing`` before that where data are missing."""
    parts = [_missing_words(row)] if row["lacks_data"] else []
    if not (row["needs_attention"] and row["aim_stage"]):
        return " · ".join(parts)
    parts.append(format.short_stage(row["aim_stage"]))
    if row["aim_rank"] is not None:
        parts.append(f"rank {row['aim_rank']}")
    kind = row["culprit_kind"]
    if kind in CULPRITS and kind != "none":
        parts.append(CULPRITS[kind].words)
    return " · ".join(parts)


def _missing_words(row: Row) -> str:
    if not row["missing_ranks"]:
        return "gather failed"
    if row["missing_ranks"] == 1:
        return f"rank {row['first_missing_rank']} missing"
    return f"{format.count(row['missing_ranks'])} ranks missing"
