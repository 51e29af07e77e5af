"""Rows of the table of windows: the texts of a row of the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfapp.model import CULPRITS
from sfapp.model.labels import UNIVERSAL_LABEL, label_words
from sfapp.model.reasons import UNNAMED_RANKS
from sfapp.model.view import WindowKey
from sfapp.views import format, palette
from sfapp.views.address import window_page
from sfapp.views.text.problems import missing_title
from sfapp.views.window_level import window_level


def window_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row of ``Store.windows`` for the table of windows: texts, and the bar of shares."""
    short = format.short_stages(row["stages"])
    return {
        "href": window_page(WindowKey(row["run_id"], row["window"])),
        "name": f"window {row['window']}",
        "level": window_level(row),
        "severity": format.severity(row["severity"]),
        "aim": _aim(row, short),
        "persistence": _persistence(row),
        "time": format.duration(row["step_mean_ns"]),
        "spread": f"{format.duration(row['step_p50_ns'])} / {format.duration(row['step_p95_ns'])}",
        "change": "healthy" if row["is_reference"] else format.percent_change(row["change"]),
        "imbalance": format.severity(row["exposed_imbalance"]),
        "top": f"{short.get(row['top_stage'], '')} {format.percent(row['top_share'])}".strip(),
        "routing": " + ".join(short.get(stage, stage) for stage in row["routing_set"] or ()),
        "labels": [label_words(label) for label in row["labels"] if label != UNIVERSAL_LABEL],
        "leader": _leader(row),
        "steps": f"{row['first_step']}–{row['last_step']}",
        "ranks": format.count(row["ranks"]),
        "nodes": format.count(row["nodes"]),
        "bar": _bar(row, short),
    }


def _aim(row: Mapping[str, Any], short: Mapping[str, str]) -> str:
    stage = short.get(row["aim_stage"], row["aim_stage"])
    if row["lacks_data"]:
        missing = missing_title(row["missing_ranks"] or ())
        if not (row["needs_attention"] and stage):
            return missing
        return f"{missing}; {_suspect(row, stage)}"
    if not stage:
        return format.ABSENT
    return _suspect(row, stage) if row["needs_attention"] else "healthy"


def _suspect(row: Mapping[str, Any], stage: str) -> str:
    if row["aim_rank"] is not None:
        return f"{stage} on rank {row['aim_rank']}"
    return f"{stage} {UNNAMED_RANKS.get(row['aim_rank_reason'], '')}".strip()


def _persistence(row: Mapping[str, Any]) -> str:
    kind = row["culprit_kind"]
    if not row["needs_attention"] or kind in (None, "none") or row["aim_rank_reason"] == "all_ranks":
        return ""
    return CULPRITS[kind].words if kind in CULPRITS else ""


def _leader(row: Mapping[str, Any]) -> str:
    if row["leader_rank"] is None:
        return format.ABSENT
    host = format.clip(row["leader_hostname"], 24)
    return f"r{row['leader_rank']} {host}, {format.percent(row['leader_share'])}"


def _bar(row: Mapping[str, Any], short: Mapping[str, str]) -> list[tuple[str, float, str]]:
    """Return colour, share and text of each stage, on the frontier in use."""
    shares = row["carry_over_shares" if row["frontier"] == "carry_over" else "shares"] or {}
    colours = palette.stage_colours(row["stages"])
    return [
        (colours[stage], shares[stage], f"{short[stage]} {format.percent(shares[stage])}")
        for stage in row["stages"]
        if shares.get(stage)
    ]
