"""A run's packets, and the file of its restarts, survive a killed aggregator and one beside another."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET, UnsetType

import sfapp
from sfapp.errors import StreamError
from sfapp.files import lock_file
from sfapp.model.parse import MOST_WINDOW
from sfapp.packets import WindowDraft, packet_path, read_windows, run_lock
from sfapp.packets.attempts import RESTARTS_FILE, Attempts, RestartEntry
from sfapp.packets.job import NOT_AGREED
from sfapp.packets.run_lock import RunLocks
from sfapp.stream import Aggregator, StreamOptions, run_restarts, window_assembly
from sfapp.stream.messages import VERSION, Ack, Echo, Heartbeat, StreamHello
from sfapp.stream.run_restarts import RunRestarts
from sfapp.stream.window_buffer import RankRows
from tests.stream.streams import (
    ManualRank,
    aggregating,
    files_in,
    free_port,
    recorder,
    running,
    train,
    until,
    windows_in,
)

START = f"{NOT_AGREED}0.2.29500"


def hello(incarnation: str, rank: int, attempt: str = "a", age: float | UnsetType = UNSET) -> StreamHello:
    head: dict[str, Any] = {"v": VERSION, "rank": rank, "incarnation": incarnation}
    return StreamHello(**head, run_id="run", attempt=attempt, world_size=2, process_seconds=age)


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


def test_a_file_of_short_damaged_lines_is_not_read_to_its_end(tmp_path: Path) -> None:
    """Any rank may write to the folder, and the aggregator reads the file when one says hello."""
    path = packet_path(tmp_path, "run", 0).parent / RESTARTS_FILE
    path.parent.mkdir()
    entry = b'{"attempt":"a","turn":0,"rank":1,"incarnation":"first","offset":5,"first":5}\n'
    path.write_bytes(b"{}\n" * 5_000_000 + entry)
    tracemalloc.start()
    try:
        assert Attempts.read(path.parent, 2**24).largest_offset == 0
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**24
    finally:
        tracemalloc.stop()
    # The entry behind a few damaged lines is read.
    path.write_bytes(b"{}\n" * 5 + entry)
    assert Attempts.read(path.parent, 2**24).largest_offset == 5


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


@pytest.mark.parametrize(
    ("started", "turn"), [(0.5, 0), (5.5, 0), (7.0, 1)], ids=["with it", "before its end", "after its end"]
)
@pytest.mark.parametrize("waited_from", [7, 4], ids=["straight", "some messages waited"])
def test_a_process_joins_the_start_that_sent_something_after_the_process_began(
    tmp_path: Path, started: float, turn: int, waited_from: int
) -> None:
    """A rank that never connected, in a job whose ranks do not agree on a name for each start."""
    # given a start that sent something until second 6, and the first hello of its other rank, much later
    restarts = RunRestarts(tmp_path, "run")
    label = entry_of(restarts, hello("first", 0, START, age=1.0), now=1.0).label
    for second in range(1, 7):
        restarts.hear(label, "first", second, 15.0 if second >= waited_from else second)

    def late(now: float) -> RestartEntry | None:
        return restarts.entry(hello("late", 1, START, now - started), None, now)

    # when hellos are repeated while it is not known whether a process of that start is alive
    found = next(filter(None, map(late, (20.0, 20.6, 25.0))))

    assert found.turn == turn
    third = hello("third", 0, START, 2.0)
    assert restarts.entry(third, None, 26.0) is None or turn == 0
    assert entry_of(restarts, third, now=26.5).turn == 1


def test_a_start_of_which_all_messages_came_late_takes_no_process_of_the_next(
    tmp_path: Path,
) -> None:
    restarts = RunRestarts(tmp_path, "run")
    # given the messages of a start that ended long ago, which arrive with those of a rank of the next
    label = entry_of(restarts, hello("first", 0, START, age=1.0), now=100.0).label
    next_start = hello("next", 1, START, age=2.0)
    assert restarts.entry(next_start, None, 100.1) is None
    for second in (2.0, 3.0):
        restarts.hear(label, "first", second, 100.2)
    assert restarts.entry(next_start, None, 101.0) is None
    assert entry_of(restarts, next_start, now=105.2).turn == 1


def test_a_rank_that_waits_for_its_start_is_known_while_it_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a start that an aggregator before this one knew, and of which no process is left
    monkeypatch.setattr(run_restarts, "_ALIVE_SECONDS", 1.2)
    entry_of(RunRestarts(tmp_path, "run"), hello("first", 0, START))
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, 1, "late") as peer:
        # when another rank says hello again and again
        def is_known() -> bool:
            peer.send(peer.hello(attempt=START, world_size=2))
            return bool(aggregator.snapshot().ranks)

        until(is_known)
    lines = (tmp_path / "run" / RESTARTS_FILE).read_text().splitlines()
    assert ['"turn":1' in line for line in lines] == [False, True]


@pytest.mark.parametrize("restarted", [False, True], ids=["same aggregator", "another aggregator"])
@pytest.mark.parametrize("alive", [True, False], ids=["alive", "killed"])
def test_a_process_of_unknown_age_joins_a_start_of_which_one_is_alive(
    tmp_path: Path, restarted: bool, alive: bool
) -> None:
    """As recorders of older versions, and after a restart of the aggregator."""
    restarts, first, late = RunRestarts(tmp_path, "run"), hello("first", 0, START), hello("late", 1, START)
    label = entry_of(restarts, first, now=1.0).label
    if restarted:
        restarts = RunRestarts(tmp_path, "run")
    assert restarts.entry(late, None, 2.0) is None
    if alive:
        entry_of(restarts, first, now=4.0)
        restarts.hear(label, "first", UNSET, 4.0)
    else:
        assert restarts.entry(late, None, 6.9) is None
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


def test_jobs_of_one_run_in_the_aggregators_folder_lose_no_step_of_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their windows are on disk by then, under the names that the aggregator gives conflicting parts."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    stream = StreamOptions(endpoint=endpoint, spool_memory_bytes=0)

    def job(name: str, first_step: int) -> sfapp.Recorder:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
        return recorder(tmp_path, stream, output=tmp_path, first_step=first_step)

    with running(Aggregator(tmp_path, endpoint)) as aggregator:
        train(one := job("one", 0), 20)
        until(lambda: aggregator.counts.windows == 2)
        train(other := job("other", 1000), 10)
        until(lambda: aggregator.counts.windows == 3)
    train(other, 20)
    train(one, 40)
    with running(Aggregator(tmp_path, endpoint)):
        one.close()
        other.close()
    loaded = read_windows([tmp_path])
    found = [item.window for item in loaded.windows]
    found += [packet.window for conflict in loaded.conflicts for packet in conflict.set_aside]
    steps = [step for window in found for step in window.step_N.tolist()]
    assert sorted(steps) == [*range(60), *range(1000, 1030)]


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
    assert len(list(path.parent.glob("00000000.*.rank0.parquet"))) == 1


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
        with RunLocks().locked(tmp_path / "run"):
            peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]), peer.closed(2, 1))
            until(lambda: aggregator.snapshot().faults)
            assert not windows_in(tmp_path)
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]), peer.closed(2, 1))
        assert peer.receive_type(Ack).up_to_sequence == 3
    assert len(windows_in(tmp_path)) == 1


def test_a_run_that_another_process_keeps_locked_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The aggregator's only thread waits: ranks of other runs would get no answer."""
    waits: list[float] = []

    def lock(file: int, seconds: float) -> None:
        waits.append(seconds)
        lock_file(file, 0.0)

    monkeypatch.setattr(run_lock, "lock_file", lock)
    restarts = RunRestarts(tmp_path, "run")
    with RunLocks().locked(tmp_path / "run"):
        for rank in range(3):
            with pytest.raises(StreamError, match="has locked the run"):
                restarts.entry(hello(f"process {rank}", rank), None, 0.0)
    assert [seconds > 0 for seconds in waits] == [True, True, False, False]
    # Once the lock is free, it is waited for again.
    for rank in range(2):
        entry_of(restarts, hello(f"process {rank}", rank))
    assert [seconds > 0 for seconds in waits[4:]] == [False, True]


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
