"""Rows for the tables of a job while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sfapp.accounting import StepTimes
from sfapp.views import format
from sfapp.views.tables import Column, Row

NODE_COLUMNS: tuple[Column, ...] = (
    Column("node_rank", "node"),
    Column("hostname", "host"),
    Column("ranks", "ranks"),
    Column("median_ns", "median", "of its ranks' times in the newest step", "median_ns_text"),
    Column("worst_rank", "slowest rank"),
    Column("worst_ns", "its time", "in the newest step", "worst_ns_text"),
    Column("rank_skew", "skew", "its slowest rank above its median", "rank_skew_text"),
    Column("behind", "behind", "its median above the fastest node's", "behind_text"),
    Column("cpu_percent", "CPU", "of all its cores", "cpu_percent_text"),
    Column("memory_used_bytes", "memory", "in use", "memory_used_bytes_text"),
    Column("silent_s", "heard", "when a rank of it last said something", "silent_s_text"),
)


def node_rows(
    times: StepTimes,
    samples: Sequence[Mapping[str, Any]] = (),
    silent_s: Mapping[int, float] | None = None,
) -> list[Row]:
    """One row a node: how its ranks did in the newest step that all of them have finished, else the newest.

    Args:
        samples: the newest sample of each node, as the store gives them.
        silent_s: by global rank, seconds since anything was heard of it.
    """
    summary, ranks = times.summary, times.ranks
    by_node = {sample["node_rank"]: sample for sample in samples}
    step = _newest_whole(times)
    fastest = min(
        (value for value in (summary.node_median_NK[step] if step is not None else ()) if value > 0),
        default=math.nan,
    )
    rows: list[Row] = []
    for place, node in enumerate(summary.nodes):
        members = [rank for rank in range(len(ranks)) if ranks.node_rank[rank] == node]
        worst = -1 if step is None else int(summary.node_worst_NK[step, place])
        median = math.nan if step is None else float(summary.node_median_NK[step, place])
        skew = math.nan if step is None else float(summary.node_rank_skew_NK[step, place])
        sample = by_node.get(node, {})
        heard = [silent_s[ranks.rank[rank]] for rank in members if silent_s and ranks.rank[rank] in silent_s]
        rows.append(
            {
                "node_rank": node,
                "hostname": ranks.hostname[members[0]],
                "ranks": len(members),
                "worst_rank": None if worst < 0 else ranks.rank[worst],
                **_text("median_ns", median),
                **_text(
                    "worst_ns", math.nan if worst < 0 or step is None else float(times.wall_NR[step, worst])
                ),
                **_percent("rank_skew", skew),
                **_percent("behind", median / fastest - 1),
                **_text("cpu_percent", sample.get("cpu_percent")),
                **_text("memory_used_bytes", sample.get("memory_used_bytes")),
                "silent_s": min(heard, default=None),
                "silent_s_text": format.age(min(heard, default=None)) if heard else format.ABSENT,
            }
        )
    return rows


def _newest_whole(times: StepTimes) -> int | None:
    """The newest step that all ranks have finished; the newest at all where there is none."""
    steps = len(times.step_N)
    whole = [step for step in range(steps) if not (times.wall_NR[step] != times.wall_NR[step]).any()]
    return whole[-1] if whole else steps - 1 if steps else None


def _text(field: str, value: float | None) -> Row:
    known = None if value is None or math.isnan(value) else value
    return {field: known, f"{field}_text": format.measured(field, known)}


def _percent(field: str, value: float) -> Row:
    known = None if math.isnan(value) else value
    return {field: known, f"{field}_text": format.percent(known, 1)}
