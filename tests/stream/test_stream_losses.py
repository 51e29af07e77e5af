"""Every step is stored exactly once whichever process dies, and training never waits."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zmq

from sfapp.errors import PacketError
from sfapp.model import Window
from sfapp.packets import window_rows
from sfapp.stream import Aggregator, StreamOptions
from sfapp.stream.codec import buffer_from_part
from sfapp.stream.messages import Ack, Gap, Heartbeat, Refused, Resend, Steps
from tests.store.jobs import window as a_window
from tests.stream.streams import (
    LOOPBACK,
    ManualRank,
    aggregate,
    aggregating,
    files_in,
    free_port,
    rank_process,
    recorder,
    relay,
    replaced_by_a_file,
    train,
    until,
    windows_in,
)

WORLD, STEPS = 3, 60


def whole(windows: list[Window]) -> bool:
    """Whether every step of every rank is stored once, with the recorded values."""
    steps = [step for window in windows for step in window.step_N.tolist()]
    return (
        steps == list(range(STEPS))
        and all(window.ranks.rank == tuple(range(WORLD)) for window in windows)
        and all(not window.manifest.faults and window.manifest.gather_ok for window in windows)
        and all(
            window.side["number"].value_NR[row].tolist() == [1000.0 * rank + step for rank in range(WORLD)]
            for window in windows
            for row, step in enumerate(window.step_N.tolist())
        )
    )


def test_a_slow_disk_does_not_make_ranks_count_as_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = os.fsync

    def slowly(file: int) -> None:
        time.sleep(1.0)
        flush(file)

    monkeypatch.setattr(os, "fsync", slowly)
    with (
        aggregating(tmp_path, abandon_after=0.4) as aggregator,
        ManualRank(aggregator.endpoint, incarnation="writes") as writes,
        ManualRank(aggregator.endpoint, incarnation="speaks") as speaks,
    ):
        # given a rank in the middle of its window
        speaks.send(speaks.hello(run_id="other"), speaks.opened(0), speaks.steps(1, [0, 1]))
        until(lambda: len(aggregator.snapshot().ranks) == 1)
        # when another's window takes a second for each flush to disk, and it goes on speaking
        writes.send(writes.hello(), writes.opened(0), writes.steps(1, [0]), writes.closed(2, 1))
        deadline = time.monotonic() + 30
        while not aggregator.counts.windows and time.monotonic() < deadline:
            speaks.send(Heartbeat(**speaks.head, sent=3, sent_ns=time.time_ns()))
            time.sleep(0.1)
        # then it is not given up
        assert aggregator.counts.windows == 1
        assert aggregator.counts.parts == 0
        speaks.send(speaks.closed(3, 2))
        until(lambda: aggregator.counts.windows == 2)
    assert [len(window.step_N) for window in windows_in(tmp_path)] == [2, 1]


def rank_processes(stack: ExitStack, root: Path, port: int) -> list[object]:
    return [stack.enter_context(rank_process(root, port, rank, WORLD, STEPS, 0.05)) for rank in range(WORLD)]


@pytest.mark.torchrun
def test_a_killed_and_restarted_aggregator_loses_nothing(tmp_path: Path) -> None:
    packets, port = tmp_path / "packets", free_port()
    with ExitStack() as stack:
        aggregator = stack.enter_context(aggregate(packets, port))
        ranks = rank_processes(stack, tmp_path, port)
        until(lambda: windows_in(packets), 60)
        aggregator.kill()
        time.sleep(0.5)
        stack.enter_context(aggregate(packets, port))
        (tmp_path / "go on").touch()
        for rank in ranks:
            rank.end()
    assert whole(windows_in(packets))
    assert files_in(tmp_path) == files_in(packets)


@pytest.mark.torchrun
def test_a_killed_and_restarted_relay_loses_nothing(tmp_path: Path) -> None:
    packets, upstream, port = tmp_path / "packets", free_port(), free_port()
    with ExitStack() as stack:
        stack.enter_context(aggregate(packets, upstream))
        killed = stack.enter_context(relay(port, upstream))
        ranks = rank_processes(stack, tmp_path, port)
        until(lambda: windows_in(packets), 60)
        killed.kill()
        time.sleep(0.5)
        stack.enter_context(relay(port, upstream))
        (tmp_path / "go on").touch()
        for rank in ranks:
            rank.end()
    assert whole(windows_in(packets))


@pytest.mark.torchrun
def test_steps_that_a_killed_rank_had_sent_are_stored(tmp_path: Path) -> None:
    packets, port = tmp_path / "packets", free_port()
    with ExitStack() as stack:
        stack.enter_context(aggregate(packets, port, "--close-after", "1", "--abandon-after", "2"))
        ranks = rank_processes(stack, tmp_path, port)
        until(lambda: len(windows_in(packets)) == 3, 60)
        time.sleep(0.75)  # all stand in the middle of the fourth, and have sent what they had
        ranks.pop().kill()
        (tmp_path / "go on").touch()
        for rank in ranks:
            rank.end()
        part = until(lambda: list(packets.rglob("*.rank2.parquet")))
    windows = windows_in(packets)
    assert int(part[0].name.partition(".")[0]) in [
        window.number for window in windows if "dropped_steps" in window.manifest.faults
    ]
    assert windows[-1].manifest.missing_ranks == (2,)
    assert windows[-1].ranks.rank == (0, 1)


def test_closing_ranks_reconnect_to_a_slow_aggregator_less_and_less_often(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as deaf:
        port = deaf.bind_to_random_port("tcp://127.0.0.1")
        perf = recorder(tmp_path, f"tcp://127.0.0.1:{port}")
        train(perf, 5)
        assert deaf.poll(10_000)
        time.sleep(1.1)  # its connection is old enough to be reopened at once
        perf.close()
        connections = set()
        while deaf.poll(0):
            connections.add(deaf.recv_multipart()[0])
    assert len(connections) == 3  # the first, one at once, and one two seconds later: not one a second
    assert len(perf.written) == 1


def test_undelivered_windows_are_left_as_parts(tmp_path: Path) -> None:
    begin = time.monotonic()
    perf = recorder(tmp_path, f"tcp://127.0.0.1:{free_port()}")
    train(perf, 25)
    assert time.monotonic() - begin < 5
    assert perf.pending == 2
    perf.close()
    assert len(perf.written) == 3
    windows = windows_in(tmp_path)
    assert [len(window.step_N) for window in windows] == [10, 10, 5]
    assert all(window.ranks.rank == (0,) for window in windows)


def test_a_late_rank_is_merged_into_the_existing_packet(tmp_path: Path) -> None:
    with aggregating(tmp_path, close_after=0.1) as aggregator, ExitStack() as stack:
        early, late = (
            stack.enter_context(ManualRank(aggregator.endpoint, rank, f"p{rank}")) for rank in range(2)
        )
        early.send(early.hello(world_size=2), early.opened(0), early.steps(1, [0, 1]), early.closed(3, 2))
        (window,) = until(lambda: windows_in(tmp_path))
        assert window.manifest.missing_ranks == (1,)
        assert not window.manifest.gather_ok
        assert early.receive_type(Ack).up_to_sequence == 4

        late.send(late.hello(world_size=2), late.opened(0), late.steps(1, [0, 1]), late.closed(3, 2))
        assert late.receive_type(Ack).up_to_sequence == 4
    (window,) = windows_in(tmp_path)
    assert window.ranks.rank == (0, 1)
    assert (window.manifest.missing_ranks, window.manifest.gather_ok) == ((), True)
    assert files_in(tmp_path) == ["00000000.parquet"]


def test_rows_are_acknowledged_only_once_they_are_on_disk(tmp_path: Path) -> None:
    (blocked := tmp_path / "packets").touch()
    with aggregating(blocked) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello())  # the restart file cannot be written: a hello is requested again
        blocked.unlink()
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]))
        until(lambda: aggregator.snapshot().ranks and len(aggregator.snapshot().ranks[0].row_NC))
        failed = aggregator.counts.failed
        with replaced_by_a_file(blocked / "run"):
            peer.send(peer.closed(2, 1))
            until(lambda: aggregator.counts.failed > failed)
            assert peer.receive(0.1) is None
        assert peer.receive_type(Ack).up_to_sequence == 3
        assert len(windows_in(blocked)) == 1


def test_an_acknowledgement_follows_the_flush_of_all_that_a_power_failure_could_undo(
    tmp_path: Path, flushed: list[str]
) -> None:
    root = tmp_path / "packets"
    with aggregating(root) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]), peer.closed(2, 1))
        assert peer.receive_type(Ack).up_to_sequence == 3
        before_ack = list(flushed)
        peer.send(peer.hello())  # the offset of its attempt is known
    run = root / "run"
    folder, parent, attempt, packet, renamed = before_ack
    assert (attempt, folder, parent, renamed) == (f"{run}/.stream.jsonl", str(run), str(root), str(run))
    assert packet.startswith(f"{run}/.00000000.parquet.")
    assert flushed == before_ack


def test_duplicate_elements_count_once(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0, 1, 2]), peer.steps(1, [0, 1, 2]))
        peer.send(peer.steps(3, [2, 3, 4]), peer.opened(0), peer.closed(6, 5), peer.closed(6, 5))
        assert peer.receive_type(Ack).up_to_sequence == 7
        peer.send(peer.steps(1, [0, 1, 2]))
        until(lambda: aggregator.snapshot().ranks[0].duplicates == 7)
    (window,) = windows_in(tmp_path)
    assert window.step_N.tolist() == [0, 1, 2, 3, 4]


def test_missing_elements_are_requested(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.steps(1, [0]))
        assert peer.receive_type(Resend).hello
        peer.send(peer.hello(), peer.opened(0), peer.steps(2, [1]))
        resend = peer.receive_type(Resend)
        assert (resend.sequence, resend.hello) == (1, False)
        time.sleep(0.3)
        peer.send(peer.steps(1, [0]), Heartbeat(**peer.head, sent=5, sent_ns=0))
        assert peer.receive_type(Resend).sequence == 2


def test_a_restarted_aggregator_continues_an_unknown_stream(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello(first=40), peer.opened(40, window=3), peer.steps(41, [30], window=3))
        peer.send(peer.closed(42, 1, window=3))
        assert peer.receive_type(Ack).up_to_sequence == 43
    (window,) = windows_in(tmp_path)
    assert window.number == 3


def test_steps_that_a_full_send_queue_discards_are_counted(tmp_path: Path) -> None:
    port = free_port()
    options = StreamOptions(
        endpoint=f"tcp://127.0.0.1:{port}",
        batch_seconds=0.02,
        spool_memory_bytes=3000,  # four windows of ten steps
        spool_disk_bytes=20_000,  # two or three of their files
    )
    with recorder(tmp_path, options, evidence=False) as perf:
        train(perf, 200)
        until(lambda: any("the send queue is full" in failure for failure in perf.failures))
        held = until(lambda: len(list(tmp_path.rglob("*.rank0.parquet"))))
        assert held < 10
        with aggregating(tmp_path / "packets", endpoint=f"tcp://127.0.0.1:{port}") as aggregator:
            train(perf, 10)
            until(lambda: not perf.pending and len(windows_in(tmp_path / "packets")) > 4)
            lost = until(lambda: aggregator.snapshot().ranks[0].lost_steps)
            perf.close()
        windows = windows_in(tmp_path / "packets")
    kept = sum(len(window.step_N) for window in windows)
    assert lost + kept == 210
    assert lost == 10 * (21 - len(windows)) > 0
    assert windows[-1].step_N.tolist() == list(range(200, 210))
    assert not list(tmp_path.rglob("*.rank0.parquet"))


@pytest.mark.parametrize("content", ["of another window", "cut"])
def test_a_part_that_was_replaced_on_the_disk_is_lost_alone(tmp_path: Path, content: str) -> None:
    port = free_port()
    options = StreamOptions(endpoint=f"tcp://127.0.0.1:{port}", batch_seconds=0.02, spool_memory_bytes=3000)
    with recorder(tmp_path, options) as perf:
        train(perf, 200)
        first, second, *_ = until(
            lambda: len(found := sorted(tmp_path.rglob("*.rank0.parquet"))) > 9 and found
        )
        first.write_bytes(second.read_bytes() if content == "of another window" else first.read_bytes()[:99])
        with aggregating(tmp_path / "packets", endpoint=f"tcp://127.0.0.1:{port}") as aggregator:
            until(lambda: not perf.pending)
            until(lambda: aggregator.snapshot().ranks[0].lost_steps == 10)
            perf.close()
        assert any(text.startswith("window 0: 10 steps discarded") for text in perf.failures)
    steps = [step for window in windows_in(tmp_path / "packets") for step in window.step_N.tolist()]
    assert steps == list(range(10, 200))


@pytest.mark.parametrize("extra", [{"faults_seen": [1]}, {"side_faults": "text"}, {"nested_ns": "many"}])
def test_a_part_of_another_program_is_refused(extra: dict[str, object]) -> None:
    window = a_window(ranks=1)
    forged = replace(window, manifest=replace(window.manifest, extra=extra, faults=("dropped_steps",)))
    with pytest.raises(PacketError, match="no part of this recorder"):
        buffer_from_part(forged)


def test_a_gap_inside_a_window_keeps_earlier_steps(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0, 1]))
        peer.send(Gap(**peer.head, sequence=3, until=12, first_window=0, last_window=0, steps=8))
        assert peer.receive_type(Ack).up_to_sequence == 12
        assert aggregator.snapshot().ranks[0].lost_steps == 8
    (window,) = windows_in(tmp_path)
    assert window.step_N.tolist() == [0, 1]
    assert window.manifest.faults == ("dropped_steps",)


def test_memory_is_bounded_by_writing_early(tmp_path: Path) -> None:
    # more than one window of ten steps, less than two
    with aggregating(tmp_path, most_bytes=4000) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello(world_size=2))
        for window in range(4):
            first = 12 * window
            steps = range(10 * window, 10 * window + 10)
            peer.send(peer.opened(first, window), peer.steps(first + 1, steps, window))
            peer.send(peer.closed(first + 11, 10, window))
            if window:
                peer.receive_type(Ack)
    windows = windows_in(tmp_path)
    assert [window.manifest.missing_ranks for window in windows] == [(1,)] * 4


def test_messages_that_a_blocked_aggregator_has_not_read_stay_with_the_ranks(tmp_path: Path) -> None:
    with (
        Aggregator(tmp_path, LOOPBACK) as held_up,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as rank,
    ):
        rank.sndhwm, rank.linger, rank.sndtimeo = 1, 0, 1000
        rank.connect(held_up.endpoint)
        accepted = 0
        try:
            while accepted < 400:
                rank.send(bytes(100_000))
                accepted += 1
        except zmq.Again:  # its queue is full
            pass
    assert 0 < accepted < 400


def test_invalid_stages_are_refused_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_rows, "is_reserved", lambda name: False)  # as in earlier versions
    with aggregating(tmp_path / "packets") as aggregator:
        with recorder(tmp_path, aggregator.endpoint, stages=["wall_ns"]) as perf:
            for _ in range(3):
                with perf.step(), perf.stage("wall_ns"):
                    pass
            refusal = until(lambda: [what for what in perf.failures if "refuses this stream" in what])
        assert "has the name of a column that is no stage" in refusal[0]
        assert aggregator.snapshot().faults == {"127.0.0.1": {"malformed": 1}}


def test_rows_that_no_packet_can_hold_are_refused(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        rows = np.array([[0, 60, -10, 10, 10, 10, 10, 10]], dtype="<i8").tobytes()
        peer.send(peer.hello(), peer.opened(0), Steps(**peer.head, sequence=1, window=0, rows=rows))
        assert "between 0 and 2^62" in peer.receive_type(Refused).reason


def test_a_complete_window_is_tried_once_a_second_while_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]))
        until(lambda: aggregator.snapshot().ranks and len(aggregator.snapshot().ranks[0].row_NC))
        with replaced_by_a_file(tmp_path / "run"):
            peer.send(peer.closed(2, 1))
            until(lambda: aggregator.counts.failed)
            time.sleep(1.5)
            assert aggregator.counts.failed <= 2
        until(lambda: files_in(tmp_path) == ["00000000.parquet"])


def test_a_failed_write_is_repeated(tmp_path: Path) -> None:
    with aggregating(tmp_path, abandon_after=0.1) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]))
        until(lambda: aggregator.snapshot().ranks and len(aggregator.snapshot().ranks[0].row_NC))
        folder = tmp_path / "run"
        moved = folder.rename(tmp_path / "moved")
        folder.touch()
        until(lambda: aggregator.counts.failed)
        assert "cannot be written" in aggregator.failures[0]
        folder.unlink()
        moved.rename(folder)
        until(lambda: files_in(tmp_path) == ["00000000.rank0.parquet"])
    (window,) = windows_in(tmp_path)
    assert window.manifest.faults == ("dropped_steps",)
