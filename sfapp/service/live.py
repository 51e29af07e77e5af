"""The state of a running job: a snapshot from the store.

Everything is read from samples and packets, so the aggregator may run in another process. Verdicts come with
the finished windows; steps, skew and silence are available before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from sfapp.accounting import StepTimes, paced_steps
from sfapp.errors import CaptureError, WindowNotFoundError
from sfapp.model import RankIdentity, RankTable, Window
from sfapp.model.samples import AggregatorSample, GpuSample, LinkSample, NodeSample, ProcessSample, Sample
from sfapp.model.view import WindowKey
from sfapp.service.live_address import LiveState
from sfapp.service.live_rolling import RollingView
from sfapp.service.standstills import Standstill, present_standstill, standstills
from sfapp.service.workspace import Workspace
from sfapp.store import SampleQuery, Store, WindowQuery
from sfapp.store.samples import Paces
from sfapp.terminal import quoted
from sfapp.views import text as words
from sfapp.views.figures.live import recent_rows
from sfapp.views.live_tables import node_rows, rank_rows, shard_rows
from sfapp.views.window_list_rows import window_row

POINTS = 240
"""Maximum number of points of a line over time."""

PACKET_TIMEOUT_S = 300.0
"""Age of the newest window up to which a run without a stream counts as running."""

SAMPLE_TIMEOUT_S = 120.0
"""Age above which samples of machines and processes are not shown as their state."""

LATEST_S = 5.0
"""Maximum seconds until the history is read again; it is read earlier once one point of its lines has
passed."""

MANY_RANKS = 256
"""Number of ranks above which lines over time, which take long to read, are read again only after
``LATEST_S``."""

DOCUMENT_VERSION = 2
"""Version of the live pages' JSON, incremented with every change that an old reader would misread."""

_ONE_SECOND = timedelta(seconds=1)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class LiveHistory:
    """Step times and samples over the span of a page.

    Attributes:
        requested: the state of the page for which it was read.
        at: end of the span.
        read_at: time of reading, UTC.
        times: step times of all ranks; on a node's tab, of its ranks.
        paces: the samples behind ``times``, as the store returns them.
        nodes, gpus: samples of the open tab's node.
        drawn: plots of it, which pages of the same view share until it is read again.
    """

    requested: LiveState
    at: datetime
    read_at: datetime
    times: StepTimes
    paces: Paces
    nodes: Sequence[Row] = ()
    gpus: Sequence[Row] = ()
    drawn: dict[Any, Any] = field(default_factory=dict, repr=False)

    def holds(self, state: LiveState, at: datetime, has_many: bool) -> bool:
        """Return whether it is still valid for a state: there is no newer sample, or it was read a moment
        ago.

        The newest samples are eventually shown even if no others follow.

        Args:
            has_many: whether the run has many ranks.
        """
        age_s = (datetime.now(UTC) - self.read_at).total_seconds()
        is_recent = 0 <= age_s < (LATEST_S if has_many else min(state.span / POINTS, LATEST_S))
        return self.requested == state and (at == self.at or is_recent)


@dataclass(frozen=True)
class LiveRunSnapshot:
    """State of a run at one moment; rows are those of the store.

    Attributes:
        at: time of the newest sample, UTC, by the aggregator's clock.
        ranks: all ranks of the run.
        links, aggregator, nodes, gpus, processes: the newest samples at that time; GPUs and processes only on
            a node's tab and of that node.
        history: the span of the page.
        silent_s: by global rank, seconds since its last message; without ranks that have left.
        newest: the newest finished window's row, or None. generation: of the store when it was read.
        window: the newest finished window, on a node's tab.
        rolling: the verdict on the last steps; None if their rows are not available for that time.
        standstill: a standstill that lasts; None if the job does not stand still.
        drawn: contents drawn by one page, shared with others.
    """

    run_id: str
    state: LiveState
    at: datetime
    ranks: RankTable
    links: Sequence[Row]
    aggregator: Row | None
    nodes: Sequence[Row]
    gpus: Sequence[Row]
    processes: Sequence[Row]
    history: LiveHistory
    silent_s: Mapping[int, float]
    newest: Row | None = None
    generation: int = -1
    window: Window | None = None
    rolling: RollingView | None = None
    standstill: Standstill | None = None
    drawn: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def times(self) -> StepTimes:
        """Return the step times over the span of all ranks or, on a node's tab, of its ranks."""
        return self.history.times

    @property
    def left(self) -> frozenset[int]:
        """Return the ranks that have left."""
        return frozenset(link["rank"] for link in self.links if link["has_left"])

    @cached_property
    def node_table(self) -> list[Row]:
        """Return one row per node for ``NODE_COLUMNS``."""
        return node_rows(self.times, self.nodes, self.silent_s)

    def rank_table(self, node: int) -> list[Row]:
        """Return one row per rank of a node for ``RANK_COLUMNS``."""
        delays = None if self.rolling is None else self.rolling.verdict.delays
        return rank_rows(self.times, self.links, self.processes, self.silent_s, node, delays)

    def document(self) -> Row:
        """Return the snapshot as plain data, for the page's JSON."""
        summary, ranks = self.times.summary, self.ranks
        sentence, kind = words.standing(len(self.links), self.silent_s, self.left)
        steps = {
            "steps_each": self.times.steps_each,
            "step": self.times.step_N.tolist(),
            "median_ns": summary.median_N.tolist(),
            "worst_rank": [None if place < 0 else ranks.rank[place] for place in summary.worst_N],
            "rank_skew": summary.rank_skew_N.tolist(),
            "node_skew": summary.node_skew_N.tolist(),
            "node_median_ns": {
                str(node): summary.node_median_NK[:, place].tolist()
                for place, node in enumerate(summary.nodes)
            },
        }
        recent_R = self.times.recent_R(recent_rows(self.times)).tolist()
        recent = dict(zip(self.times.ranks.rank, recent_R, strict=True))
        return {
            "version": DOCUMENT_VERSION,
            "run": self.run_id,
            "at": self.at,
            "state": kind,
            "summary": sentence,
            "silent": list(words.silences(self.silent_s)),
            "rolling": None if self.rolling is None else self.rolling.document(),
            "standstill": None if self.standstill is None else self.standstill.document(),
            "ranks": [
                {
                    **link,
                    "no_data_for_s": self.silent_s.get(link["rank"]),
                    "recent_ns": _known(recent.get(link["rank"])),
                }
                for link in self.links
            ],
            "nodes": self.node_table,
            "aggregator": self.aggregator,
            "newest_step": steps["step"][-1] if steps["step"] else None,
            "steps": steps,
            "node_samples": list(self.nodes),
            "gpu_samples": list(self.gpus),
            "process_samples": list(self.processes),
            "shards": [row for node in ranks.nodes for row in shard_rows(self.window, node)],
            "newest_window": self.newest
            and {
                **{name: self.newest[name] for name in ("window", "aim_rank", "severity", "needs_attention")},
                **self.verdict,
            },
        }

    @property
    def verdict(self) -> dict[str, str]:
        """Return the newest finished window in words and its page; empty if there is none."""
        if self.newest is None:
            return {}
        row = window_row(self.newest)
        return {"href": row["href"], "summary": f"window {self.newest['window']}: {row['aim']}"}


def live_run_snapshot(
    workspace: Workspace,
    run_id: str,
    state: LiveState,
    *,
    whole: bool = False,
    before: LiveRunSnapshot | None = None,
) -> LiveRunSnapshot:
    """Read the state of a run from the store. Blocking: a few ms for some ranks, tens of ms for a thousand.

    Args:
        whole: include the contents of node tabs, for all nodes.
        before: the previous snapshot of the run; its history is reused while it is valid.

    Raises:
        WindowNotFoundError: the run was never streamed.
    """
    store = workspace.store
    until = None if state.until is None else datetime.fromtimestamp(state.until, UTC)
    links = _of_newest_world(_links(store, run_id, until, before))
    if not links:
        before_then = "" if until is None else f" before {until:%Y-%m-%d %H:%M:%S} UTC"
        raise WindowNotFoundError(f"no run {run_id!r} was streamed here{before_then}")
    at = max(link["sampled_at"] for link in links)
    node = None if whole else state.node

    def newest_of(kind: type[Sample], node: int | None = None) -> list[Row]:
        return store.newest_samples(
            kind, run_id, at + _ONE_SECOND, at - timedelta(seconds=SAMPLE_TIMEOUT_S), node
        )

    ranks = _identities(links)
    history = None if before is None or before.ranks != ranks else before.history
    if history is None or not history.holds(state, at, len(ranks) > MANY_RANKS):
        history = _history(store, run_id, state, at, links, node, before)
    generation = store.generation
    newest = None if before is None else before.newest
    if before is None or before.generation != generation:
        found = store.windows(WindowQuery(run=run_id, sort=(("window", "desc"),), limit=1)).rows
        newest = next(iter(found), None)
    has_machines = whole or node is not None
    return LiveRunSnapshot(
        run_id=run_id,
        state=state,
        at=at,
        ranks=ranks,
        links=links,
        aggregator=next(iter(newest_of(AggregatorSample)), None),
        nodes=newest_of(NodeSample),
        gpus=newest_of(GpuSample, node) if has_machines else (),
        processes=newest_of(ProcessSample, node) if has_machines else (),
        history=history,
        silent_s=_silences(links, at, datetime.now(UTC) if until is None else at),
        newest=newest,
        generation=generation,
        window=_window(workspace, run_id, newest) if has_machines else None,
        rolling=_rolling(workspace, run_id, state, before),
        standstill=present_standstill(standstills(store, run_id, until), at),
    )


def _rolling(
    workspace: Workspace, run_id: str, state: LiveState, before: LiveRunSnapshot | None
) -> RollingView | None:
    """Return the verdict on the last steps; for a frozen time, the one shown at that time."""
    if state.until is None:
        return workspace.rolling(run_id, state.steps)
    return None if before is None else before.rolling


def _links(store: Store, run_id: str, until: datetime | None, before: LiveRunSnapshot | None) -> list[Row]:
    """Return the newest link sample of every rank.

    A previous snapshot is updated with the last seconds only, because a thousand ranks send a sample every
    second.
    """
    if before is not None and until is None and before.state.until is None:
        fresh = store.newest_samples(LinkSample, run_id, since=before.at - _ONE_SECOND)
        if fresh:
            known = {link["rank"]: link for link in (*before.links, *fresh)}
            return [known[rank] for rank in sorted(known)]
    return store.newest_samples(LinkSample, run_id, until)


def _history(
    store: Store,
    run_id: str,
    state: LiveState,
    at: datetime,
    links: Sequence[Row],
    node: int | None,
    before: LiveRunSnapshot | None,
) -> LiveHistory:
    since, read_at = at - timedelta(seconds=state.span), datetime.now(UTC)

    def over_time(kind: type[Sample]) -> Sequence[Row]:
        if node is None:
            return ()
        return store.samples(SampleQuery(kind, run_id, node=node, since=since, until=at, points=POINTS))

    ranks = _identities([link for link in links if node in (None, link["node_rank"])])
    is_later = before is not None and before.history.requested == state and before.history.at <= at
    paces = store.paces(run_id, since, at, node, before.history.paces if before and is_later else None)
    times = paced_steps(ranks, paces["rank"], paces["step"], paces["steps"], paces["wall_mean_ns"], POINTS)
    return LiveHistory(state, at, read_at, times, paces, over_time(NodeSample), over_time(GpuSample))


def is_running(workspace: Workspace, run_id: str) -> bool:
    """Return whether a run is being streamed or wrote a packet in the last minutes."""
    if any(run["run_id"] == run_id for run in workspace.streaming.newest()):
        return True
    try:
        newest = workspace.run(run_id).newest_ended_at
    except WindowNotFoundError:
        return False
    return newest is not None and abs((datetime.now(UTC) - newest).total_seconds()) <= PACKET_TIMEOUT_S


def check_running(workspace: Workspace, run_id: str) -> None:
    """Check that ranks of a run may answer a request.

    Raises:
        CaptureError: they have ended.
    """
    if not is_running(workspace, run_id):
        raise CaptureError(f"run {quoted(run_id)} is not running: no rank would answer")


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _of_newest_world(links: Sequence[Row]) -> list[Row]:
    """Remove ranks beyond the newest world size: they are gone, not silent."""
    world = max(links, key=lambda link: link["sampled_at"])["world_size"] if links else 0
    return [link for link in links if link["rank"] < world]


def _identities(links: Sequence[Row]) -> RankTable:
    return RankTable.of(
        [
            RankIdentity(link["rank"], link["local_rank"], link["node_rank"], link["hostname"])
            for link in links
        ]
    )


def _silences(links: Sequence[Row], at: datetime, now: datetime) -> dict[int, float]:
    """Return seconds since the last message, by rank.

    The aggregator writes once a second; its own silence counts only once a sample is long overdue.
    """
    overdue_s = (now - at).total_seconds()
    gone_s = overdue_s if overdue_s > words.STALE_S else 0.0
    return {
        link["rank"]: link["silent_s"] + (at - link["sampled_at"]).total_seconds() + gone_s
        for link in links
        if not link["has_left"]
    }


def _window(workspace: Workspace, run_id: str, newest: Row | None) -> Window | None:
    """Return the newest finished window; None if there is none, or its packet is gone."""
    if newest is None:
        return None
    try:
        return workspace.newest_window(workspace.source(WindowKey(run_id, newest["window"])))
    except WindowNotFoundError:
        return None
