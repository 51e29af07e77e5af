"""A run's packets, and the file of its restarts, survive a killed aggregator and one beside another."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import sfapp
from sfapp.errors import StreamError
from sfapp.files import lock_file
from sfapp.model.parse import MOST_WINDOW
from sfapp.packets import WindowDraft, packet_path, read_windows, run_lock
from sfapp.packets.attempts import RESTARTS_FILE, RestartEntry
from sfapp.packets.job import NOT_AGREED
from sfapp.packets.run_lock import run_locked
from sfapp.stream import run_restarts, window_assembly
from sfapp.stream.messages import VERSION, Ack, Bye, Echo, Heartbeat, Resend, StreamHello
from sfapp.stream.run_restarts import RunRestarts
from sfapp.stream.window_buffer import RankRows
from tests.stream.streams import ManualRank, aggregating, files_in, until, windows_in


def hello(incarnation: str, rank: int, attempt: str = "a") -> StreamHello:
    head: dict[str, Any] = {"v": VERSION, "rank": rank, "incarnation": incarnation}
    return StreamHello(**head, run_id="run", attempt=attempt, world_size=2)


def entry_of(
    restarts: RunRestarts, hello: StreamHello, newest: int | None = None, now: float = 0.0
) -> RestartEntry:
    """Return the entry of a process that need not wait."""
    entry = restarts.entry(hello, newest, now)
    assert entry is not None
    return entry


def test_a_truncated_line_is_skipped(tmp_path: Path) -> None:
    # given a file whose last line is incomplete
    entry_of(RunRestarts(tmp_path, "run"), hello("first", 0))
    path = packet_path(tmp_path, "run", 0).parent / RESTARTS_FILE
    path.write_bytes(path.read_bytes()[:-9])
    # when offsets of the attempt's ranks are chosen, and windows are written
    after, processes = RunRestarts(tmp_path, "run"), (hello("second", 1), hello("first", 0))
    assert [entry_of(after, process).offset for process in processes] == [0, 0]
    packet_path(tmp_path, "run", 7).touch()
    # then the next aggregator reads both, and moves another attempt behind those windows
    again = RunRestarts(tmp_path, "run")
    assert [entry_of(again, process).offset for process in processes] == [0, 0]
    assert entry_of(again, hello("third", 0, "b")).offset == 8


def test_the_format_of_a_line_is_unchanged(tmp_path: Path) -> None:
    entry_of(RunRestarts(tmp_path, "run"), hello("first", 1), newest=4)
    (line,) = (packet_path(tmp_path, "run", 0).parent / ".stream.jsonl").read_text().splitlines()
    assert line == '{"attempt":"a","turn":0,"rank":1,"incarnation":"first","offset":5,"first":5}'


def test_a_line_without_the_number_of_the_first_window_is_read(tmp_path: Path) -> None:
    """As aggregators of older versions wrote it."""
    path = packet_path(tmp_path, "run", 0).parent / RESTARTS_FILE
    path.parent.mkdir(parents=True)
    path.write_text('{"attempt":"a","turn":0,"rank":1,"incarnation":"first","offset":5}\n')
    assert entry_of(RunRestarts(tmp_path, "run"), hello("other", 0)).offset == 5


@pytest.mark.parametrize("line", [b'{"attempt":"\xff"}', b'{"more":' + b"[" * 100_000, b"[]", b"\0"])
def test_a_damaged_line_does_not_end_the_aggregator(tmp_path: Path, line: bytes) -> None:
    entry_of(RunRestarts(tmp_path, "run"), hello("first", 0), newest=4)
    with (packet_path(tmp_path, "run", 0).parent / RESTARTS_FILE).open("ab") as file:
        file.write(line + b"\n")
    assert entry_of(RunRestarts(tmp_path, "run"), hello("first", 0)).offset == 5


def test_a_rank_of_the_last_turn_begins_the_next_even_if_it_is_not_in_an_earlier_one(tmp_path: Path) -> None:
    restarts = RunRestarts(tmp_path, "run")
    processes = (hello("first", 0), hello("second", 0), hello("third", 1), hello("fourth", 1))
    assert [entry_of(restarts, process).turn for process in processes] == [0, 1, 1, 2]


def test_a_rank_that_never_connected_begins_the_next_start_once_the_others_have_left(tmp_path: Path) -> None:
    """As when a rank dies at start-up, and ranks do not agree on a name for the start."""
    attempt = f"{NOT_AGREED}0.2.29500"
    with ExitStack() as stack:
        aggregator = stack.enter_context(aggregating(tmp_path, close_after=0.1))

        def connected(rank: int, process: str) -> ManualRank:
            peer = stack.enter_context(ManualRank(aggregator.endpoint, rank, process))
            peer.send(peer.hello(attempt=attempt, world_size=2))
            return peer

        def deliver(peer: ManualRank) -> None:
            peer.send(peer.opened(0), peer.steps(1, [0, 1]), peer.closed(3, 2))
            while peer.receive_type(Ack).up_to_sequence < 4:
                pass

        alone = connected(0, "first")
        deliver(alone)
        alone.send(Bye(**alone.head, sequence=4))
        until(lambda: all(rank.has_left for rank in aggregator.snapshot().ranks))
        second = connected(1, "second")
        deliver(second)
        # The other rank of that start says hello again once the first is known to be alive.
        third = connected(0, "third")
        third.send(third.opened(0))
        assert third.receive_type(Resend).hello
        second.send(Heartbeat(**second.head, sent=4, sent_ns=0))
        second.receive_type(Echo)
        third.send(third.hello(attempt=attempt, world_size=2))
        deliver(third)
    found = [(window.number, window.ranks.rank, window.manifest.attempt) for window in windows_in(tmp_path)]
    assert found == [(0, (0,), attempt), (1, (0, 1), f"{attempt}/1")]


@pytest.mark.parametrize("restarted", [False, True], ids=["same aggregator", "another aggregator"])
@pytest.mark.parametrize("alive", [True, False], ids=["alive", "killed"])
def test_a_rank_that_never_connected_joins_a_start_only_if_a_process_of_it_is_alive(
    tmp_path: Path, restarted: bool, alive: bool
) -> None:
    attempt = f"{NOT_AGREED}0.2.29500"
    first, late = hello("first", 0, attempt), hello("late", 1, attempt)
    # given a start of which one process has said hello, and is not known to have ended
    restarts = RunRestarts(tmp_path, "run")
    label = entry_of(restarts, first).label
    restarts.hear(label, 1.0)
    if restarted:
        restarts = RunRestarts(tmp_path, "run")
    # when the other rank says hello for the first time
    assert restarts.entry(late, None, 2.0) is None
    if alive:
        entry_of(restarts, first, now=4.0)
        restarts.hear(label, 4.0)
    else:
        assert restarts.entry(late, None, 6.9) is None
    # then it belongs to that start, or begins the next one
    assert entry_of(restarts, late, now=7.0).turn == (0 if alive else 1)


def test_a_rank_that_restarts_without_end_is_refused_while_the_file_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_restarts, "MAX_BYTES", 200)
    restarts = RunRestarts(tmp_path, "run")
    for number in range(3):
        entry_of(restarts, hello(f"process {number}", 0))
    with pytest.raises(StreamError, match="was restarted too often"):
        entry_of(restarts, hello("another process", 0))


def test_a_file_with_a_huge_number_takes_no_window_numbers_from_the_run(tmp_path: Path) -> None:
    path = packet_path(tmp_path, "run", MOST_WINDOW)
    path.parent.mkdir(parents=True)
    path.touch()
    assert entry_of(RunRestarts(tmp_path, "run"), hello("first", 0), newest=4).offset == 5


def test_two_aggregators_of_a_folder_lose_no_rank_of_a_window(tmp_path: Path) -> None:
    """As while one is started before another of the same job has ended."""
    windows = 40
    with ExitStack() as stack:
        aggregators = [stack.enter_context(aggregating(tmp_path, close_after=0.0)) for _ in range(2)]
        peers = [
            stack.enter_context(ManualRank(each.endpoint, rank, f"p{rank}"))
            for rank, each in enumerate(aggregators)
        ]
        for peer in peers:
            peer.send(peer.hello(world_size=2))
        for number in range(windows):
            for peer in peers:
                first, step = 4 * number, 2 * number
                peer.send(
                    peer.opened(first, number),
                    peer.steps(first + 1, [step, step + 1], number),
                    peer.closed(first + 3, 2, number),
                )
        for peer in peers:
            while peer.receive_type(Ack).up_to_sequence < 4 * windows:
                pass
    found = windows_in(tmp_path)
    assert [window.ranks.rank for window in found] == [(0, 1)] * windows
    assert not any(window.manifest.missing_ranks for window in found)


@pytest.mark.parametrize("process", ["0b", "../../../outside"])
def test_jobs_of_one_run_at_the_same_time_lose_no_step(tmp_path: Path, process: str) -> None:
    """As two jobs of one name, or processes that outlive the next attempt."""
    root = tmp_path / "folder" / "packets"
    with ExitStack() as stack:
        aggregator = stack.enter_context(aggregating(root, close_after=0.0))
        names = ["0a", process]
        jobs = [stack.enter_context(ManualRank(aggregator.endpoint, 0, name)) for name in names]
        for window in range(8):
            for job, ahead in zip(jobs, [0, 3], strict=True):
                number = window - ahead
                if number < 0:
                    continue
                if number == 0:
                    job.send(job.hello())
                first, step = 3 * number, 100 * ahead + number
                job.send(job.opened(first, number), job.steps(first + 1, [step], number))
                job.send(job.closed(first + 2, 1, number))
                while job.receive_type(Ack).up_to_sequence < first + 3:
                    job.send(Heartbeat(**job.head, sent=first + 3, sent_ns=0))
        assert "another attempt at the run has a window of this number" in aggregator.failures[0]
    loaded = read_windows([root])
    found = [item.window.step_N.tolist() for item in loaded.windows]
    found += [packet.window.step_N.tolist() for conflict in loaded.conflicts for packet in conflict.set_aside]
    assert sorted(found) == [[step] for step in (*range(8), *range(300, 305))]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_packet_that_a_job_without_an_aggregator_writes_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sfapp.Recorder(tmp_path / "elsewhere", run_id="run", window_steps=1) as perf, perf.step():
        pass
    (other,), merged_draft, path = (
        perf.written,
        window_assembly._merged_draft,
        packet_path(tmp_path, "run", 0),
    )

    def write_meanwhile(ranks: Sequence[RankRows]) -> WindowDraft:
        if not path.exists():
            os.link(other, path)
        return merged_draft(ranks)

    monkeypatch.setattr(window_assembly, "_merged_draft", write_meanwhile)
    with aggregating(tmp_path, close_after=0.0) as aggregator:
        with ManualRank(aggregator.endpoint, 0, "0a") as job:
            job.send(job.hello(), job.opened(0, 0), job.steps(1, [5], 0), job.closed(2, 1, 0))
            while job.receive_type(Ack).up_to_sequence < 3:
                pass
        assert "written as a part: another attempt at the run" in aggregator.failures[0]
    assert path.samefile(other)
    assert (path.parent / "00000000.0a.rank0.parquet").exists()


def test_a_part_of_another_attempt_is_kept(tmp_path: Path) -> None:
    # Given two jobs of one run, the first of which falls silent in a window that the second has, too
    with aggregating(tmp_path, close_after=0.0, abandon_after=0.2) as aggregator, ExitStack() as stack:
        jobs = [stack.enter_context(ManualRank(aggregator.endpoint, 0, name)) for name in ("0a", "0b")]
        for job in jobs:
            job.send(job.hello(), Heartbeat(**job.head, sent=0, sent_ns=0))
            job.receive_type(Echo)
        jobs[0].send(jobs[0].opened(0), jobs[0].steps(1, [7]))
        until(lambda: files_in(tmp_path))
        # When the second one's window is written, then the first one's part is still there
        second = jobs[1]
        second.send(second.hello(), second.opened(0), second.steps(1, [1]), second.closed(2, 1))
        while second.receive_type(Ack).up_to_sequence < 3:
            pass
    assert len(files_in(tmp_path)) == 2


def test_an_attempt_has_the_offset_that_another_aggregator_gave_it(tmp_path: Path) -> None:
    packets = [tmp_path / "run" / f"{number:08d}.parquet" for number in range(2)]
    one, other = RunRestarts(tmp_path, "run"), RunRestarts(tmp_path, "run")
    packets[0].parent.mkdir()
    packets[0].touch()
    assert entry_of(one, hello("p0", 0)).offset == 1
    packets[1].touch()
    assert entry_of(other, hello("p1", 1)).offset == 1


def test_a_run_that_stays_locked_is_written_once_it_is_free(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        with run_locked(tmp_path / "run"):
            peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]), peer.closed(2, 1))
            until(lambda: aggregator.snapshot().faults)
            assert not windows_in(tmp_path)
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]), peer.closed(2, 1))
        assert peer.receive_type(Ack).up_to_sequence == 3
    assert len(windows_in(tmp_path)) == 1


def test_a_lock_that_another_user_made_for_all_keeps_no_run_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a run's lock that another user has made, and holds
    lock = tmp_path / "run" / run_lock.NAME
    lock.parent.mkdir()
    lock.touch()
    lock.chmod(0o666)
    with lock.open("ab") as held:
        lock_file(held.fileno(), 1.0)
        monkeypatch.setattr(os, "geteuid", lambda: lock.stat().st_uid + 1)
        # When the run is streamed, then it is written
        with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
            peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]), peer.closed(2, 1))
            assert peer.receive_type(Ack).up_to_sequence == 3
    assert len(windows_in(tmp_path)) == 1
