"""Streamed rows become the same packets as gathered rows, and are live before."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec
import numpy as np
import pytest

import sfapp
from sfapp.errors import StreamError
from sfapp.model import Accumulation, Window
from sfapp.model.host_evidence import EVIDENCE_PREFIX
from sfapp.model.samples import ProcessSample
from sfapp.packets import read_windows
from sfapp.stream import Relay, StreamOptions
from sfapp.stream.messages import Ack, Bye, Echo, Refused, StreamHello
from tests.stream.streams import (
    LOOPBACK,
    ManualRank,
    aggregating,
    files_in,
    recorder,
    running,
    train,
    until,
    windows_in,
)


def job(root: Path, endpoints: Sequence[str], steps: Sequence[int], **options: object) -> None:
    """Run a job of several ranks in this process, which train in turn and close together."""
    ranks = [recorder(root, endpoint, rank, **options) for rank, endpoint in enumerate(endpoints)]
    for perf, count in zip(ranks, steps, strict=True):
        train(perf, count)
    with ThreadPoolExecutor(len(ranks)) as pool:
        list(pool.map(sfapp.Recorder.close, ranks))


def world_of(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(size))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(size))


def test_a_streamed_window_equals_a_gathered_one(tmp_path: Path) -> None:
    ticks = {name: iter(range(0, 10**9, 1000)) for name in ("written", "streamed")}

    def run(name: str, **options: object) -> None:
        with sfapp.Recorder(
            tmp_path / name,
            run_id="run",
            window_steps=4,
            accumulation=Accumulation(factor=2),
            roles="dp",
            layout={"dp": 3, "cp": 1},
            clock=ticks[name].__next__,
            **options,
        ) as perf:
            for step in range(6):
                with perf.step():
                    for micro in range(2):
                        with perf.micro_step(micro), perf.stage("model.backward_cpu_wall"):
                            pass
                    if step % 2:
                        perf.observe("loss", 0.1 * step)
                    if step == 1:
                        with perf.stage("not a stage"):
                            pass

    run("written")
    with aggregating(tmp_path / "streamed") as aggregator:
        run("streamed", stream=aggregator.endpoint)

    for written, streamed in zip(
        windows_in(tmp_path / "written"), windows_in(tmp_path / "streamed"), strict=True
    ):
        assert same_rows(written, streamed)
        assert written.ranks == streamed.ranks
        assert streamed.layout == {"dp": (3,), "cp": (1,)}
        differing = {"started_at", "ended_at", "overhead", "extra", "recorder", "attempt"}
        for field in written.manifest.__dataclass_fields__.keys() - differing:
            assert getattr(written.manifest, field) == getattr(streamed.manifest, field), field
        assert streamed.manifest.overhead.train_ns == written.manifest.overhead.train_ns


def same_rows(one: Window, other: Window) -> bool:
    same_side = one.side.keys() == other.side.keys() and all(
        np.array_equal(one.side[name].value_NR, other.side[name].value_NR, equal_nan=True)
        and np.array_equal(one.side[name].sampled_NR, other.side[name].sampled_NR)
        for name in one.side
        if not name.startswith(EVIDENCE_PREFIX)  # Two recordings have different values.
    )
    return (
        same_side
        and one.ranks == other.ranks
        and one.step_N.tolist() == other.step_N.tolist()
        and one.wall_NR.tolist() == other.wall_NR.tolist()
        and one.duration_SNR.tolist() == other.duration_SNR.tolist()
    )


def test_ranks_of_several_nodes_are_assembled_through_relays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world_of(monkeypatch, 4)
    with ExitStack() as stack:
        aggregator = stack.enter_context(aggregating(tmp_path / "packets"))
        first, second = (
            stack.enter_context(running(Relay(LOOPBACK, aggregator.endpoint))).endpoint for _ in range(2)
        )
        job(tmp_path, [first, first, second, second], [25] * 4)
    assert [window.ranks.rank for window in windows_in(tmp_path / "packets")] == [(0, 1, 2, 3)] * 3
    assert files_in(tmp_path) == ["00000000.parquet", "00000001.parquet", "00000002.parquet"]


def test_rows_are_live_while_their_window_is_open(tmp_path: Path) -> None:
    with aggregating(tmp_path / "packets") as aggregator:
        with recorder(tmp_path, aggregator.endpoint, window_steps=1000) as perf:
            train(perf, 30)
            (rank,) = until(lambda: [rank for rank in aggregator.snapshot().ranks if len(rank.row_NC) == 30])
            assert rank.row_NC[:, 0].tolist() == list(range(30))
            assert rank.stages[-1] == "step.other_cpu_wall"
            assert (rank.run_id, rank.identity.rank, rank.has_left) == ("run", 0, False)
            assert rank.silent_seconds < 5
        until(lambda: aggregator.snapshot().ranks[0].has_left)


def test_the_silence_of_a_rank_is_measured(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]))
        until(lambda: aggregator.snapshot().ranks)
        before = aggregator.snapshot().ranks[0].silent_seconds
        time.sleep(0.05)
        assert aggregator.snapshot().ranks[0].silent_seconds >= before + 0.05


def test_a_change_of_stages_or_role_opens_a_new_window(tmp_path: Path) -> None:
    with aggregating(tmp_path / "packets") as aggregator, recorder(tmp_path, aggregator.endpoint) as perf:
        train(perf, 3)
        perf.reconfigure(role="expert")
        perf.reconfigure(stages=["data.next_wait", "rest"])
        train(perf, 2)
    first, second = windows_in(tmp_path / "packets")
    assert (len(first.step_N), first.manifest.closed_by, first.ranks.role) == (3, "role_change", (None,))
    assert (second.broad_stages[2], second.ranks.role) == ("rest", ("expert",))


def test_ranks_with_other_steps_than_most_become_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world_of(monkeypatch, 3)
    with aggregating(tmp_path / "packets") as aggregator:
        job(tmp_path, [aggregator.endpoint] * 3, [10, 10, 9])
    assert files_in(tmp_path / "packets") == ["00000000.parquet", "00000000.rank2.parquet"]
    (window,) = windows_in(tmp_path / "packets")
    assert window.ranks.rank == (0, 1, 2)
    assert len(window.step_N) == 9
    assert "step_misaligned" in window.manifest.faults


def test_a_restarted_job_continues_after_its_earlier_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world_of(monkeypatch, 2)
    for attempt in range(3):  # the last under an aggregator that knows of the others by its ledger alone
        with aggregating(tmp_path / "packets") as aggregator:
            job(tmp_path, [aggregator.endpoint] * 2, [15, 15], first_step=15 * attempt)
            if attempt == 0:
                job(tmp_path, [aggregator.endpoint] * 2, [15, 15], first_step=100)
    windows = windows_in(tmp_path / "packets")
    assert [window.number for window in windows] == list(range(8))
    assert [int(window.step_N[0]) for window in windows] == [0, 10, 100, 110, 15, 25, 30, 40]
    assert {window.ranks.rank for window in windows} == {(0, 1)}


def test_samples_are_delivered_with_the_steps(tmp_path: Path) -> None:
    taken: list[tuple[StreamHello, object]] = []
    echoes: list[Echo] = []
    sample = ProcessSample(at_ns=1, node_rank=0, rank=0, threads=4)
    with aggregating(
        tmp_path / "packets", on_samples=lambda hello, samples: taken.append((hello, *samples))
    ) as aggregator:
        options = StreamOptions(
            endpoint=aggregator.endpoint,
            sources=(lambda: [sample], lambda: [1 / 0]),
            on_echo=lambda echo, came_ns: echoes.append(echo),
        )
        with recorder(tmp_path, options) as perf:
            until(lambda: taken and echoes)
    assert (taken[0][0].run_id, taken[0][1]) == ("run", sample)
    assert echoes[0].sent_ns <= echoes[0].received_ns <= echoes[0].replied_ns
    assert any("ZeroDivisionError" in failure for failure in perf.failures)


def test_the_environment_can_set_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with aggregating(tmp_path / "packets") as aggregator:
        monkeypatch.setenv("SFAPP_STREAM", aggregator.endpoint)
        with sfapp.Recorder(tmp_path / "left", run_id="run") as perf:
            train(perf, 3)
    assert len(windows_in(tmp_path / "packets")) == 1


def test_a_closed_recorder_leaves_no_thread_or_socket(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with aggregating(tmp_path / "packets") as aggregator, recorder(tmp_path, aggregator.endpoint) as perf:
        train(perf, 3)
    assert set(threading.enumerate()) == before


def test_a_forked_child_neither_sends_nor_hangs(tmp_path: Path) -> None:
    with aggregating(tmp_path / "packets") as aggregator, recorder(tmp_path, aggregator.endpoint) as perf:
        train(perf, 5)
        child = os.fork()
        if child == 0:
            train(perf, 25)
            perf.close()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0
        train(perf, 5)
    (window,) = windows_in(tmp_path / "packets")
    assert window.step_N.tolist() == list(range(10))


# ---- versions -----------------------------------------------------------------------------------


def test_a_sender_of_a_newer_version_is_refused_and_counted(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(msgspec.msgpack.encode({**peer.head, "v": 3, "type": "hello", "colour": "red"}))
        refused = peer.receive_type(Refused)
        assert "newer than version 2" in refused.reason
        assert aggregator.snapshot().faults == {"127.0.0.1": {"newer_version": 1}}


def test_an_invalid_address_is_refused_by_the_recorder(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match="tcp://HOST:PORT"):
        recorder(tmp_path, "aggregator.example:29765")


def test_bye_writes_the_ranks_windows_soon(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello(world_size=2), peer.opened(0), peer.steps(1, [0, 1]), peer.closed(3, 2))
        peer.send(Bye(**peer.head, sequence=4))
        (window,) = until(lambda: windows_in(tmp_path))
    assert window.manifest.missing_ranks == (1,)
    assert not read_windows([tmp_path]).quarantined


def test_many_ranks_at_full_speed_yield_complete_windows(tmp_path: Path) -> None:
    world, windows, steps = 8, 20, 50
    with aggregating(tmp_path) as aggregator, ExitStack() as stack:
        peers = [
            stack.enter_context(ManualRank(aggregator.endpoint, rank, f"rank-{rank}"))
            for rank in range(world)
        ]
        for peer in peers:
            peer.send(peer.hello(world_size=world))
            for window in range(windows):
                first, step = window * (steps + 2), window * steps
                peer.send(peer.opened(first, window))
                for at in range(0, steps, 10):
                    peer.send(peer.steps(first + 1 + at, range(step + at, step + at + 10), window))
                peer.send(peer.closed(first + 1 + steps, steps, window))
        until(lambda: aggregator.counts.windows == windows, 60)
        assert aggregator.snapshot().faults == {}
        assert {rank.duplicates for rank in aggregator.snapshot().ranks} == {0}
    loaded = windows_in(tmp_path)
    assert [step for window in loaded for step in window.step_N.tolist()] == list(range(windows * steps))
    assert {window.ranks.rank for window in loaded} == {tuple(range(world))}


def test_a_window_is_acknowledged_while_the_next_one_is_being_filled(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        first = peer.opened(0), peer.steps(1, [0, 1]), peer.closed(3, 2)
        peer.send(peer.hello(), *first, peer.opened(4, 1), peer.steps(5, [2], 1))
        assert peer.receive_type(Ack).up_to_sequence == 4
