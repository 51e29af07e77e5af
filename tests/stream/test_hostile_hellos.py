"""Whatever hellos say, the aggregator holds each window under its own rank, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfapp.stream import stream_receiver
from sfapp.stream.messages import Gap, Message, StreamHello, WindowClosed
from sfapp.stream.stream_receiver import MAX_HELLO_BYTES
from tests.stream.test_hostile_ranks import HostileRank, head, hello, opened, steps


@pytest.mark.parametrize("other", [{"rank": 1}, {"run_id": "other"}], ids=["rank", "run"])
def test_a_window_stays_that_of_the_rank_that_opened_it(tmp_path: Path, other: dict[str, Any]) -> None:
    # Given a process that calls itself another rank before it closes each of its windows
    rank = HostileRank(tmp_path, most_bytes=1 << 20)
    rank.send(hello())
    renamed = StreamHello(**{**head(), "run_id": "run", "attempt": "a", "world_size": 4, **other})
    sequence = 0
    for window in range(30):
        content = steps(sequence + 1, np.arange(2_000 * window, 2_000 * (window + 1)), window)
        named = head() | {name: value for name, value in other.items() if name == "rank"}
        closed = WindowClosed(**named, sequence=sequence + 2_001, window=window, steps=2_000)
        rank.send(opened(sequence, window), content, renamed, closed, hello())
        sequence += 2_002
        rank.wait(0.01)

    # When its windows are due, then they are written as those of the first rank, and their memory is free
    if "run_id" in other:
        assert "the process belongs to run 'run' already" in rank.refusal
    else:
        assert not rank.receiver.snapshot().last_fault
    rank.wait(31.0)
    assert rank.receiver.assembler.size == 0
    assert len(list(tmp_path.rglob("*.parquet"))) == 30


def test_a_process_takes_no_window_from_another_one_of_its_rank(tmp_path: Path) -> None:
    # Given a process that opens each window of another one, under its rank and in its attempt
    rank = HostileRank(tmp_path, most_bytes=1 << 20)
    other = head("b")
    rank.send(hello(), StreamHello(**other | {"rank": 1}, run_id="run", attempt="a", world_size=4))
    rank.send(StreamHello(**other, run_id="run", attempt="a", world_size=4))
    for window in range(30):
        sequence = 2_002 * window
        rank.send(opened(sequence, window), opened(0, window, "b"))
        rank.send(steps(sequence + 1, np.arange(2_000 * window, 2_000 * (window + 1)), window))
        rank.send(WindowClosed(**head(), sequence=sequence + 2_001, window=window, steps=2_000))
        rank.wait(0.01)

    # When the windows are due, then all of the first process are written, and their memory is free
    rank.wait(31.0)
    assert "begins a second time" in rank.refusal
    assert rank.receiver.assembler.size == 0
    assert len(list(tmp_path.rglob("*.parquet"))) == 30


def test_a_hello_takes_little_memory(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path)
    rank.send(hello(extra={"lists": [[]] * (MAX_HELLO_BYTES - 1_000)}))
    assert "bytes in memory" in rank.refusal
    assert not rank.receiver.snapshot().ranks


def test_hellos_of_all_ranks_take_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_receiver, "MOST_HELLO_BYTES", 1 << 20)
    rank = HostileRank(tmp_path)
    for name in map(str, range(100)):
        rank.send(hello(name, run_id=name, extra={"text": "a" * 60_000}))
    assert "has to wait: hellos take" in rank.refusal
    assert 10 < len(rank.receiver.snapshot().ranks) < 20
    rank.wait(61.0)
    assert rank.receiver._hello_bytes == 0
    rank.send(hello("later"))
    assert "later" in rank.receiver._streams


def test_a_hello_for_each_window_counts_as_memory(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path, most_bytes=1 << 20)

    def gap(window: int) -> Message:
        sequence = 2 * window + 1
        return Gap(**head(), sequence=sequence, until=sequence + 1, first_window=window, last_window=window)

    for window in range(40):
        rank.send(hello(extra={"text": "a" * (60_000 + window)}), opened(2 * window, window), gap(window))
        rank.wait(0.01)
    assert len(rank.receiver.assembler._pending) < 20
    assert rank.receiver.assembler.size <= 1 << 20
