"""Rows for the tables of a job while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sfapp.accounting import StepTimes
from sfapp.model import Window
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
    Column(
        "clock_offset_ns",
        "clock",
        "what its clock lacks to the aggregator's, and how sure that is; never part of a diagnosis",
        "clock_offset_ns_text",
    ),
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
    members_of: dict[int, list[int]] = {node: [] for node in summary.nodes}
    for rank, node in enumerate(ranks.node_rank):
        members_of[node].append(rank)
    rows: list[Row] = []
    for place, (node, members) in enumerate(members_of.items()):
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
                "clock_offset_ns": sample.get("clock_offset_ns"),
                "clock_offset_ns_text": format.offset(
                    sample.get("clock_offset_ns"), sample.get("clock_uncertainty_ns")
                ),
                "silent_s": min(heard, default=None),
                "silent_s_text": format.age(min(heard, default=None)) if heard else format.ABSENT,
            }
        )
    return rows


RANK_COLUMNS: tuple[Column, ...] = (
    Column("rank", "rank"),
    Column("local_rank", "local rank"),
    Column("step", "step", "the newest that it has finished"),
    Column("wall_ns", "step time", "of its newest steps", "wall_ns_text"),
    Column("cpu_percent", "CPU", "of its process; 100 % is one core", "cpu_percent_text"),
    Column("rss_bytes", "memory", "resident, of its process", "rss_bytes_text"),
    Column("lost_steps", "lost", "steps that a full send queue discarded"),
    Column("duplicates", "duplicates", "steps that came twice and were dropped"),
    Column("silent_s", "heard", "when it last said something", "silent_s_text"),
)


def rank_rows(
    times: StepTimes,
    links: Sequence[Mapping[str, Any]],
    processes: Sequence[Mapping[str, Any]],
    silent_s: Mapping[int, float],
    node: int,
) -> list[Row]:
    """One row a rank of a node: where it is, how fast, and when it was last heard of.

    Args:
        links, processes: the newest sample of each rank, as the store gives them.
        silent_s: by global rank, seconds since anything was heard of it, of those that have not left.
    """
    by_rank = {process["rank"]: process for process in processes}
    places = {rank: place for place, rank in enumerate(times.ranks.rank)}
    rows: list[Row] = []
    for link in links:
        rank = link["rank"]
        if link["node_rank"] != node or rank not in places:
            continue
        there = [step for step, wall in enumerate(times.wall_NR[:, places[rank]]) if not math.isnan(wall)]
        process = by_rank.get(rank, {})
        rows.append(
            {
                **{name: link[name] for name in ("rank", "local_rank", "lost_steps", "duplicates")},
                "step": int(times.step_N[there[-1]]) if there else None,
                **_text("wall_ns", float(times.wall_NR[there[-1], places[rank]]) if there else None),
                **_text("cpu_percent", process.get("cpu_percent")),
                **_text("rss_bytes", process.get("rss_bytes")),
                "silent_s": silent_s.get(rank),
                "silent_s_text": "left" if link["has_left"] else format.age(silent_s.get(rank)),
            }
        )
    return rows


SHARD_COLUMNS: tuple[Column, ...] = (
    Column("rank", "rank"),
    Column("shard_bytes", "its shard", "parameters that this rank holds", "shard_bytes_text"),
    Column("full_bytes", "whole model", "parameters of all ranks together", "full_bytes_text"),
    Column("part", "part", "its shard of the whole", "part_text"),
)

SHARD, FULL = "memory.parameter_shard_bytes", "memory.parameter_full_bytes"
"""Side channels of a window, as the recorder names them."""


def shard_rows(window: Window | None, node: int) -> list[Row]:
    """One row a rank of a node whose parameters were measured; none where nobody measured any."""
    if window is None or not {SHARD, FULL} <= window.side.keys():
        return []
    rows: list[Row] = []
    for place, rank in enumerate(window.ranks.rank):
        shard, full = (_newest(window, name, place) for name in (SHARD, FULL))
        if window.ranks.node_rank[place] == node and shard is not None and full is not None:
            part = shard / full if full else math.nan
            sizes = {**_text("shard_bytes", shard), **_text("full_bytes", full)}
            rows.append({"rank": rank, **sizes, **_percent("part", part)})
    return rows


def _newest(window: Window, name: str, place: int) -> float | None:
    """A side channel's newest value of one rank."""
    known = [value for value in window.side[name].value_NR[:, place].tolist() if not math.isnan(value)]
    return known[-1] if known else None


def _newest_whole(times: StepTimes) -> int | None:
    """The newest step that all ranks have finished; the newest at all where there is none."""
    steps = len(times.step_N)
    whole = [step for step in range(steps) if not (times.wall_NR[step] != times.wall_NR[step]).any()]
    return whole[-1] if whole else steps - 1 if steps else None


def _text(field: str, value: float | None) -> Row:
    known = None if value is None or math.isnan(value) else value
    return {field: known, f"{field}_text": format.measured(field, known)}


def _percent(field: str, value: float) -> Row:
    known = None if math.isnan(value) else float(value)
    return {field: known, f"{field}_text": format.percent(known, 1)}
