"""Samples of ranks arrive in files and in the store, on one time axis."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

import sfapp
from sfapp.metrics import find_folders, read_segment, segments_in
from sfapp.metrics.sample_files import metrics_folder
from sfapp.model import RankIdentity
from sfapp.model.samples import (
    AggregatorSample,
    AnySample,
    LinkSample,
    NodeSample,
    PaceSample,
    ProcessSample,
)
from sfapp.store import SampleQuery, Store
from sfapp.stream import metrics_writer
from sfapp.stream.live_state import KEPT_STEPS, LiveSnapshot, RankSnapshot, RankStates, Rows
from sfapp.stream.messages import VERSION, Echo, StreamHello
from sfapp.stream.metrics_writer import MetricsWriter
from sfapp.stream.steady_time import SteadyTime
from sfapp.stream.system_sampler import SystemSampler
from tests.stream.streams import aggregate, aggregating, free_port, recorder, train, until, windows_in

SECOND = 10**9


def samples_in(root: Path) -> list[AnySample]:
    found: list[AnySample] = []
    for path in segments_in(find_folders([root])):
        if (chunk := read_segment(path)) is not None:  # Its first line may be being written.
            assert not chunk.refused
            found += chunk.samples
    return found


def hello(rank: int = 0, run_id: str = "run") -> StreamHello:
    return StreamHello(v=VERSION, rank=rank, incarnation="i", run_id=run_id, attempt="a", world_size=4)


def rows(*steps: int) -> Rows:
    return np.array([[step, 100 + step, 1] for step in steps], dtype=np.int64).reshape(-1, 3)


def rank_now(rank: int, run_id: str = "run") -> RankSnapshot:
    identity = RankIdentity(rank, rank, 0, "host")
    return RankSnapshot(run_id, identity, 4, ("a",), rows(), 0, 0.0, False, 0, 0)


def now(*ranks: RankSnapshot) -> LiveSnapshot:
    return LiveSnapshot(ranks, {}, {}, 0)


def test_a_jobs_samples_are_in_files_and_in_the_store(tmp_path: Path) -> None:
    port = free_port()
    begun_ns = time.time_ns()
    with (
        aggregate(tmp_path, port),
        sfapp.Recorder(tmp_path, run_id="run", window_steps=10, stream=f"tcp://127.0.0.1:{port}") as perf,
    ):
        train(perf, 25)
        until(
            lambda: (
                {type(sample) for sample in samples_in(tmp_path)} >= {NodeSample, ProcessSample, PaceSample}
            )
        )
        until(
            lambda: any(
                sample.clock_offset_ns is not None
                for sample in samples_in(tmp_path)
                if isinstance(sample, NodeSample)
            )
        )
        assert not perf.failures
    paces = [sample for sample in samples_in(tmp_path) if isinstance(sample, PaceSample)]
    assert sum(pace.steps for pace in paces) == 25
    assert max(pace.step for pace in paces) == 24
    with Store.open([tmp_path], memory=True) as store:
        report = store.ingest()
        assert (report.added, report.quarantined) == (3, 0)
        *_, newest = store.samples(SampleQuery(NodeSample, "run"))
        # one machine, one clock
        assert abs(newest["clock_offset_ns"]) <= newest["clock_uncertainty_ns"] + 1000
        assert newest["clock_jumps"] == 0
        assert begun_ns / SECOND - 1 < newest["sampled_at"].timestamp() < time.time() + 1
        (process,) = store.newest_samples(ProcessSample, "run")
        assert process["rss_bytes"] > 2**20


def test_an_aggregator_without_samples_still_stores_steps(tmp_path: Path) -> None:
    with aggregating(tmp_path / "packets") as aggregator:
        perf = recorder(tmp_path, aggregator.endpoint)
        train(perf, 10)
        perf.close()
    assert [len(window.step_N) for window in windows_in(tmp_path / "packets")] == [10]
    assert "sfapp-system" not in {thread.name for thread in threading.enumerate()}


def test_times_are_moved_to_the_aggregator_s_clock() -> None:
    failures: deque[str] = deque(maxlen=16)
    sampler = SystemSampler(failures)
    assert sampler.samples() == []
    sampler.set_identity(RankIdentity(0, 0, 0, "host"))
    ahead_ns = 3600 * SECOND
    for second in range(3):
        sent_ns = time.time_ns() + second * SECOND
        arrives_ns = sent_ns + ahead_ns + 100_000
        sampler.on_echo(
            Echo(
                v=VERSION,
                rank=0,
                incarnation="i",
                sent_ns=sent_ns,
                received_ns=arrives_ns,
                replied_ns=arrives_ns,
            ),
            sent_ns + 200_000,
        )
    found: list[AnySample] = []

    def nodes() -> list[NodeSample]:
        found.extend(sampler.samples())
        return [sample for sample in found if isinstance(sample, NodeSample)]

    (node, *_) = until(nodes)
    sampler.close()
    sampler.close()
    assert node.clock_offset_ns == pytest.approx(ahead_ns, abs=1000)
    assert 100_000 <= (node.clock_uncertainty_ns or 0) < 3_000_000
    assert abs(node.at_ns - ahead_ns - time.time_ns()) < 20 * SECOND
    assert not failures


def test_a_changed_identity_is_sampled_from_then_on() -> None:
    sampler = SystemSampler(deque())
    for rank in (3, 1):
        sampler.set_identity(RankIdentity(rank, rank, 0, "host"))
        found = until(sampler.samples)
        assert {sample.rank for sample in found if isinstance(sample, ProcessSample)} == {rank}
    sampler.close()
    assert sampler.samples() == []


def test_every_step_is_counted_once_at_its_pace(tmp_path: Path) -> None:
    metrics = MetricsWriter(tmp_path, now_s=lambda: 1_700_000_000.0)
    metrics.count_steps(hello(1), rows(4))
    metrics.write(now())
    for rank, step in ((0, 5), (0, 6)):
        metrics.count_steps(hello(rank), rows(step))
    metrics.write(now())
    metrics.count_steps(hello(1), rows(5, 6))
    metrics.count_steps(hello(0), rows(7))
    metrics.write(now())
    metrics.write(now())
    paces = [sample for sample in samples_in(tmp_path) if isinstance(sample, PaceSample)]
    assert [(pace.rank, pace.step, pace.steps, pace.wall_max_ns) for pace in paces] == [
        (1, 4, 1, 104),
        (0, 6, 2, 106),
        (0, 7, 1, 107),
        (1, 6, 2, 106),
    ]


@pytest.mark.parametrize("jump_s", [-86_400, -1, 86_400])
def test_samples_stay_in_order_when_the_aggregators_clock_is_set(tmp_path: Path, jump_s: int) -> None:
    wall_ns, elapsed_ns = [1_700_000_000 * SECOND], [0]
    steady = SteadyTime(lambda: wall_ns[0], lambda: elapsed_ns[0])
    metrics = MetricsWriter(tmp_path, steady.seconds)
    for step in range(4):
        metrics.count_steps(hello(), rows(step))
        metrics.write(now())
        elapsed_ns[0] += SECOND
        wall_ns[0] += SECOND + (jump_s * SECOND if step == 1 else 0)
    paces = [sample for sample in samples_in(tmp_path) if isinstance(sample, PaceSample)]
    in_order = [pace.step for pace in sorted(paces, key=lambda pace: pace.at_ns)]
    # A jump ahead makes older samples old enough to be merged; none is lost.
    assert in_order == ([1, 2, 3] if jump_s > 0 else [0, 1, 2, 3])
    assert sum(pace.steps for pace in paces) == 4


def test_a_rank_that_returns_to_a_checkpoint_continues_counting(tmp_path: Path) -> None:
    metrics = MetricsWriter(tmp_path)
    for steps in ([50, 51], [40, 41, 42], [43]):
        metrics.count_steps(hello(), rows(*steps))
        metrics.write(now())
    paces = [sample for sample in samples_in(tmp_path) if isinstance(sample, PaceSample)]
    assert [(pace.step, pace.steps) for pace in paces] == [(51, 2), (42, 3), (43, 1)]


def test_steps_above_the_live_limit_are_all_counted(tmp_path: Path) -> None:
    """Many steps arrive at once after the aggregator was away."""
    metrics = MetricsWriter(tmp_path)
    live = RankStates(time.monotonic, metrics.count_steps)
    live.add_rank(hello())
    live.add_steps(hello(), rows(*range(10 * KEPT_STEPS)))
    metrics.write(live.snapshot())
    (pace,) = [sample for sample in samples_in(tmp_path) if isinstance(sample, PaceSample)]
    assert (pace.step, pace.steps) == (10 * KEPT_STEPS - 1, 10 * KEPT_STEPS)


def test_a_removed_run_makes_room_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_writer, "MAX_RUNS", 1)
    metrics = MetricsWriter(tmp_path)
    metrics.write(now(rank_now(0, run_id="a")))
    metrics.write(now(rank_now(0, run_id="a"), rank_now(0, run_id="b")))
    assert metrics.dropped
    dropped = metrics.dropped
    metrics.write(now(rank_now(0, run_id="b")))
    metrics.write(now(rank_now(0, run_id="b")))
    assert metrics.dropped == dropped + 2  # in the second in which the other one goes
    assert sorted(path.parent.parent.name for path in segments_in(find_folders([tmp_path]))) == ["a", "b"]


def test_old_samples_are_downsampled_for_a_moment_each_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given more than can be downsampled in no time
    seconds = [1_700_000_100.0]
    metrics = MetricsWriter(tmp_path, now_s=lambda: seconds[0])
    for second in range(60):
        at_ns = int((seconds[0] + second) * SECOND)
        metrics.add_samples(
            hello(), [ProcessSample(at_ns=at_ns, node_rank=0, rank=rank) for rank in range(50)]
        )
    state = now(rank_now(0))
    metrics.write(state)
    before = len(samples_in(tmp_path))
    monkeypatch.setattr(metrics_writer, "DOWNSAMPLE_FOR_S", 0.0)
    # when it is old, one second after the other
    seconds[0] += 2000
    metrics.write(state)
    (path,) = (path for path in segments_in(find_folders([tmp_path])) if path.stat().st_size > 100_000)
    looks = 0
    while path.stat().st_size > 100_000:
        assert (looks := looks + 1) < 100
        metrics.write(state)
    # then it took several of them, and nothing else was lost
    assert looks > 1
    downsampled = [sample for sample in samples_in(tmp_path) if isinstance(sample, ProcessSample)]
    assert before > 3000
    assert len(downsampled) == 50 * 6


def test_runs_are_separate_and_their_number_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_writer, "MAX_RUNS", 2)
    metrics = MetricsWriter(tmp_path)
    for name in ("a", "b", "c"):
        metrics.add_samples(hello(run_id=name), [ProcessSample(at_ns=1, node_rank=0, rank=0)])
    metrics.write(now())
    assert sorted(path.parent.parent.name for path in segments_in(find_folders([tmp_path]))) == ["a", "b"]
    assert metrics.dropped == 1


def test_a_run_is_sampled_after_a_hundred_that_have_ended(tmp_path: Path) -> None:
    metrics = MetricsWriter(tmp_path)
    ended = [replace(rank_now(0, f"ended-{number:02}"), has_left=True) for number in range(100)]
    metrics.write(now(*ended))
    metrics.write(now(*ended, rank_now(0, "lives")))
    assert metrics.dropped == 0
    assert segments_in([metrics_folder(tmp_path, "lives")])


def test_a_failing_disk_is_noted_and_the_aggregator_continues(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("in the way")
    metrics = MetricsWriter(tmp_path)
    metrics.add_samples(hello(), [ProcessSample(at_ns=1, node_rank=0, rank=0)])
    metrics.write(now())
    assert len(metrics.failures) == 1


def test_samples_above_the_queue_limit_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_writer, "MAX_QUEUED", 3)
    metrics = MetricsWriter(tmp_path)
    metrics.add_samples(hello(), [ProcessSample(at_ns=at_ns, node_rank=0, rank=0) for at_ns in range(5)])
    metrics.write(now())
    assert metrics.dropped == 2
    assert [sample.at_ns for sample in samples_in(tmp_path)] == [2, 3, 4]


def test_links_and_dropped_messages_are_sampled_each_second(tmp_path: Path) -> None:
    metrics = MetricsWriter(tmp_path)
    silent_rank = RankSnapshot(
        "run", RankIdentity(1, 1, 0, "host"), 4, (), np.zeros((0, 2), np.int64), 0, 7.24, False, 3, 2
    )
    gone = RankSnapshot(
        "run", RankIdentity(2, 0, 1, "far"), 4, (), np.zeros((0, 2), np.int64), 0, 0.0, True, 0, 0
    )
    faults = {"10.0.0.9": {"malformed": 2, "oversized": 1}, "10.0.0.8": {"malformed": 5}}
    state = LiveSnapshot((silent_rank, gone), faults, {"10.0.0.9": "too long", "10.0.0.8": "no map"}, 100)
    metrics.write(state)
    metrics.write(state)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        silent, left = store.newest_samples(LinkSample, "run")
        assert (silent["silent_s"], silent["lost_steps"], silent["duplicates"]) == (7.2, 3, 2)
        assert (left["has_left"], left["hostname"], left["node_rank"]) == (True, "far", 1)
        # A rank that has left gets one last sample.
        assert len(store.samples(SampleQuery(LinkSample, "run", rank=2))) == 1
        (refused,) = store.newest_samples(AggregatorSample, "run")
        assert (refused["malformed"], refused["oversized"], refused["messages"]) == (7, 1, 100)
        assert refused["last_fault"] == "10.0.0.8: no map"
        (run,) = store.live_runs()
        assert (run["run_id"], run["ranks"], run["nodes"], run["left"]) == ("run", 2, 2, 1)
        # The silent rank was sampled again after the other had left.
        (recent,) = store.live_runs(run["sampled_at"])
        assert (recent["run_id"], recent["ranks"], recent["left"]) == ("run", 1, 0)
        assert store.live_runs(run["sampled_at"] + timedelta(seconds=1)) == []
