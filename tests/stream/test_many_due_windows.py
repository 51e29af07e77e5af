"""However many windows are due at once, the aggregator goes on to take messages between them."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from sfapp.errors import PacketError
from sfapp.packets import create_packet
from sfapp.packets.window_draft import WindowDraft
from sfapp.stream import window_assembly
from sfapp.stream.messages import Echo, Heartbeat, Refused, WindowClosed
from tests.stream.streams import ManualRank, aggregating, replaced_by_a_file, until, windows_in
from tests.stream.test_hostile_ranks import HostileRank, head, hello, opened, steps


def test_ranks_are_answered_while_many_windows_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given thirty windows that lack a rank, and a disk that takes 0.4 s for each
    rank = HostileRank(tmp_path)

    def write_slowly(draft: WindowDraft, path: Path) -> bool:
        rank.now += 0.4
        return create_packet(draft, path)

    monkeypatch.setattr(window_assembly, "create_packet", write_slowly)
    rank.send(hello())
    for window in range(30):
        closed = WindowClosed(**head(), sequence=5 * window + 4, window=window, steps=3)
        numbers = np.arange(3 * window, 3 * window + 3)
        rank.send(opened(5 * window, window), steps(5 * window + 1, numbers, window), closed)

    # When they are due, then a heartbeat is answered within two seconds, and all are written in order
    rank.now += 31.0
    written: list[int] = []
    while len(written) < 30:
        began = rank.now
        rank.receiver.run_due_work()
        assert rank.now - began < 2.0
        rank.send(Heartbeat(**head(), sent=150, sent_ns=1))
        assert any(isinstance(answer, Echo) for answer in rank.answers[-2:])
        written = sorted(int(path.stem) for path in tmp_path.rglob("*.parquet"))
        assert written == list(range(len(written)))


def test_a_run_that_cannot_be_written_is_tried_once_in_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its windows is composed before the disk refuses it: other ranks wait meanwhile."""
    # Given a hundred windows in a folder that refuses them
    rank = HostileRank(tmp_path)
    tried: list[int] = []

    def refuse(draft: WindowDraft, path: Path) -> bool:
        tried.append(draft.manifest.window)
        raise PacketError("cannot be written", path=str(path)) from OSError(errno.EDQUOT, "quota")

    monkeypatch.setattr(window_assembly, "create_packet", refuse)
    rank.send(hello(world_size=1))
    for window in range(100):
        closed = WindowClosed(**head(), sequence=3 * window + 2, window=window, steps=1)
        rank.send(opened(3 * window, window), steps(3 * window + 1, np.array([window]), window), closed)

    # When rounds follow each other, then each tries one window, and each window gets its turn
    for _ in range(100):
        before = len(tried)
        rank.now += 0.1
        rank.receiver.run_due_work()
        assert len(tried) <= before + 1
    assert sorted(tried) == list(range(100))

    # When there is room again, then all are written
    monkeypatch.undo()
    rank.now += 1.0
    rank.receiver.run_due_work()
    assert len(list(tmp_path.rglob("*.parquet"))) == 100


def test_a_first_failed_write_refuses_no_rank_of_another_run(tmp_path: Path) -> None:
    """Beside a run that cannot be written, others have twice the bound, as soon as that is known."""
    # Given an open window of one run, and so many closed ones of another that the bound is exceeded
    rank = HostileRank(tmp_path, most_bytes=50_000)
    rank.send(hello("works", run_id="works"), opened(0, 0, "works"))
    rank.send(hello(run_id="blocked"))
    for window in range(30):
        closed = WindowClosed(**head(), sequence=3 * window + 2, window=window, steps=1)
        rank.send(opened(3 * window, window), steps(3 * window + 1, np.array([window]), window), closed)
    assert 50_000 < rank.receiver.assembler.size < 100_000

    # When the first of them cannot be written
    with replaced_by_a_file(tmp_path / "blocked"):
        rank.receiver.run_due_work()
    assert rank.receiver.assembler.failing == {"blocked"}

    # Then the other run goes on
    assert not any(isinstance(answer, Refused) for answer in rank.answers)


def test_windows_of_a_rank_alone_in_a_huge_world_take_little_room(tmp_path: Path) -> None:
    world, count = 2**20, 20
    with (
        aggregating(tmp_path, close_after=0.0) as aggregator,
        ManualRank(aggregator.endpoint) as rank,
    ):
        rank.send(rank.hello(world_size=world))
        for window in range(count):
            first = 3 * window
            rank.send(rank.opened(first, window), rank.steps(first + 1, [window], window))
            rank.send(rank.closed(first + 2, 1, window))
        until(lambda: aggregator.counts.parts == count, 5.0)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.parquet")) < count * 50_000
    windows = windows_in(tmp_path)
    assert [window.step_N.tolist() for window in windows] == [[window] for window in range(count)]
    assert {len(window.missing_ranks) for window in windows} == {world - 1}
