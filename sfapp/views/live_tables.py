"""Rows for the tables of a running job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sfapp.accounting import RankDelays, StepTimes
from sfapp.model import Window
from sfapp.views import format
from sfapp.views.table_columns import Row, TableColumn
from sfapp.views.text.standstill import place_words

NODE_COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("node_rank", "node"),
    TableColumn("hostname", "host"),
    TableColumn("ranks", "ranks"),
    TableColumn("median_ns", "median", "median step time of its ranks, newest step", "median_ns_text"),
    TableColumn("worst_rank", "slowest rank"),
    TableColumn("worst_ns", "step time", "step time of the slowest rank, newest step", "worst_ns_text"),
    TableColumn("rank_skew", "skew", "slowest rank relative to the node's median", "rank_skew_text"),
    TableColumn("behind", "behind", "median relative to the fastest node", "behind_text"),
    TableColumn("cpu_percent", "CPU", "of all cores", "cpu_percent_text"),
    TableColumn("memory_used_bytes", "memory", "in use", "memory_used_bytes_text"),
    TableColumn(
        "clock_offset_ns",
        "clock",
        "offset from the aggregator's clock with its uncertainty; not used in verdicts",
        "clock_offset_ns_text",
    ),
    TableColumn("silent_s", "seen", "time since a rank of the node last reported", "silent_s_text"),
)


def node_rows(
    times: StepTimes,
    samples: Sequence[Mapping[str, Any]] = (),
    silent_s: Mapping[int, float] | None = None,
) -> list[Row]:
    """Return one row per node: the newest step that all ranks have finished, else the newest one.

    Args:
        samples: the newest sample of each node, as stored.
        silent_s: by global rank, seconds since its last message.
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
        silent = [silent_s[ranks.rank[rank]] for rank in members if silent_s and ranks.rank[rank] in silent_s]
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
                "silent_s": min(silent, default=None),
                "silent_s_text": format.age(min(silent, default=None)) if silent else format.ABSENT,
            }
        )
    return rows


RANK_COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("rank", "rank"),
    TableColumn("local_rank", "local rank"),
    TableColumn("step", "step", "newest finished step"),
    TableColumn("place", "where", "where its training thread was, and for how long"),
    TableColumn("wall_ns", "step time", "mean of its newest steps", "wall_ns_text"),
    TableColumn(
        "behind_ns",
        "behind",
        "behind the median rank, where it is furthest behind; mean of the last steps",
        "behind_ns_text",
    ),
    TableColumn("cpu_percent", "CPU", "of its process; 100 % is one core", "cpu_percent_text"),
    TableColumn("rss_bytes", "memory", "resident, of its process", "rss_bytes_text"),
    TableColumn("lost_steps", "lost", "steps discarded by a full send queue"),
    TableColumn("duplicates", "duplicates", "steps that arrived more than once"),
    TableColumn("silent_s", "seen", "time since its last message", "silent_s_text"),
)


def rank_rows(
    times: StepTimes,
    links: Sequence[Mapping[str, Any]],
    processes: Sequence[Mapping[str, Any]],
    silent_s: Mapping[int, float],
    node: int,
    delays: RankDelays | None = None,
) -> list[Row]:
    """Return one row per rank of a node: its step, step time, lateness and last message.

    Args:
        links, processes: the newest sample of each rank, as stored.
        silent_s: by global rank, seconds since its last message; ranks that disconnected are left out.
        delays: lateness of the ranks in the last steps; None if these are not judged yet.
    """
    by_rank = {process["rank"]: process for process in processes}
    behind = {} if delays is None else dict(zip(delays.ranks.rank, delays.behind_R.tolist(), strict=True))
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
                "step": int(times.newest_R[places[rank]]) if there else None,
                "place": link_place(link),
                **_text("wall_ns", float(times.wall_NR[there[-1], places[rank]]) if there else None),
                **_text("behind_ns", max(0.0, behind[rank]) if rank in behind else None),
                **_text("cpu_percent", process.get("cpu_percent")),
                **_text("rss_bytes", process.get("rss_bytes")),
                "silent_s": silent_s.get(rank),
                "silent_s_text": "disconnected" if link["has_left"] else format.age(silent_s.get(rank)),
            }
        )
    return rows


def link_place(link: Mapping[str, Any]) -> str:
    """Return where a rank was at its newest heartbeat: ``step 12, in backward for 3 s``; empty if unknown."""
    step, still_s = link.get("step"), link.get("still_s")
    if step is None:
        return ""
    call, stage = link.get("call") or "", link.get("stage")
    return f"step {step}, {place_words(stage, call)} for {format.lasting(still_s)}"


SHARD_COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("rank", "rank"),
    TableColumn("shard_bytes", "shard", "parameters on this rank", "shard_bytes_text"),
    TableColumn("full_bytes", "whole model", "parameters of all ranks", "full_bytes_text"),
    TableColumn("part", "part", "shard relative to the whole model", "part_text"),
)

SHARD, FULL = "memory.parameter_shard_bytes", "memory.parameter_full_bytes"
"""Names of the recorder's side channels."""


def shard_rows(window: Window | None, node: int) -> list[Row]:
    """Return one row per rank of a node with measured parameters; none if nothing was measured."""
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
    """Newest value of one rank in a side channel."""
    known = [value for value in window.side[name].value_NR[:, place].tolist() if not math.isnan(value)]
    return known[-1] if known else None


def _newest_whole(times: StepTimes) -> int | None:
    """Return the newest step that all ranks have finished, else the newest one."""
    steps = len(times.step_N)
    whole = [step for step in range(steps) if not (times.wall_NR[step] != times.wall_NR[step]).any()]
    return whole[-1] if whole else steps - 1 if steps else None


def _text(field: str, value: float | None) -> Row:
    known = None if value is None or math.isnan(value) else value
    return {field: known, f"{field}_text": format.measured(field, known)}


def _percent(field: str, value: float) -> Row:
    known = None if math.isnan(value) else float(value)
    return {field: known, f"{field}_text": format.percent(known, 1)}
