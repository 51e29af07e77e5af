"""A run's packets, and the file of its restarts, survive a killed aggregator and one beside another."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sfapp.errors import StreamError
from sfapp.model.parse import MOST_WINDOW
from sfapp.packets import packet_path
from sfapp.packets.attempts import RESTARTS_FILE
from sfapp.packets.run_lock import run_locked
from sfapp.stream import run_restarts
from sfapp.stream.messages import VERSION, Ack, StreamHello
from sfapp.stream.run_restarts import RunRestarts
from tests.stream.streams import ManualRank, aggregating, until, windows_in


def hello(incarnation: str, rank: int, attempt: str = "a") -> StreamHello:
    head: dict[str, Any] = {"v": VERSION, "rank": rank, "incarnation": incarnation}
    return StreamHello(**head, run_id="run", attempt=attempt, world_size=2)


def test_a_truncated_line_is_skipped(tmp_path: Path) -> None:
    # given a file whose last line is incomplete
    RunRestarts(tmp_path, "run").entry(hello("first", 0), None)
    path = packet_path(tmp_path, "run", 0).parent / RESTARTS_FILE
    path.write_bytes(path.read_bytes()[:-9])
    # when offsets of the attempt's ranks are chosen, and windows are written
    after, processes = RunRestarts(tmp_path, "run"), (hello("second", 1), hello("first", 0))
    assert [after.entry(process, None).offset for process in processes] == [0, 0]
    packet_path(tmp_path, "run", 7).touch()
    # then the next aggregator reads both, and moves another attempt behind those windows
    again = RunRestarts(tmp_path, "run")
    assert [again.entry(process, None).offset for process in processes] == [0, 0]
    assert again.entry(hello("third", 0, "b"), None).offset == 8


def test_the_format_of_a_line_is_unchanged(tmp_path: Path) -> None:
    RunRestarts(tmp_path, "run").entry(hello("first", 1), newest=4)
    (line,) = (packet_path(tmp_path, "run", 0).parent / ".stream.jsonl").read_text().splitlines()
    assert line == '{"attempt":"a","turn":0,"rank":1,"incarnation":"first","offset":5}'


@pytest.mark.parametrize("line", [b'{"attempt":"\xff"}', b'{"more":' + b"[" * 100_000, b"[]", b"\0"])
def test_a_damaged_line_does_not_end_the_aggregator(tmp_path: Path, line: bytes) -> None:
    RunRestarts(tmp_path, "run").entry(hello("first", 0), newest=4)
    with (packet_path(tmp_path, "run", 0).parent / RESTARTS_FILE).open("ab") as file:
        file.write(line + b"\n")
    assert RunRestarts(tmp_path, "run").entry(hello("first", 0), None).offset == 5


def test_a_rank_of_the_last_turn_begins_the_next_even_if_it_is_not_in_an_earlier_one(tmp_path: Path) -> None:
    restarts = RunRestarts(tmp_path, "run")
    processes = (hello("first", 0), hello("second", 0), hello("third", 1), hello("fourth", 1))
    assert [restarts.entry(process, None).turn for process in processes] == [0, 1, 1, 2]


def test_a_rank_that_restarts_without_end_is_refused_while_the_file_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_restarts, "MAX_BYTES", 200)
    restarts = RunRestarts(tmp_path, "run")
    for number in range(3):
        restarts.entry(hello(f"process {number}", 0), None)
    with pytest.raises(StreamError, match="was restarted too often"):
        restarts.entry(hello("another process", 0), None)


def test_a_file_with_a_huge_number_takes_no_window_numbers_from_the_run(tmp_path: Path) -> None:
    path = packet_path(tmp_path, "run", MOST_WINDOW)
    path.parent.mkdir(parents=True)
    path.touch()
    assert RunRestarts(tmp_path, "run").entry(hello("first", 0), newest=4).offset == 5


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


def test_an_attempt_has_the_offset_that_another_aggregator_gave_it(tmp_path: Path) -> None:
    packets = [tmp_path / "run" / f"{number:08d}.parquet" for number in range(2)]
    one, other = RunRestarts(tmp_path, "run"), RunRestarts(tmp_path, "run")
    packets[0].parent.mkdir()
    packets[0].touch()
    assert one.entry(hello("p0", 0), None).offset == 1
    packets[1].touch()
    assert other.entry(hello("p1", 1), None).offset == 1


def test_a_run_that_stays_locked_is_written_once_it_is_free(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        with run_locked(tmp_path / "run"):
            peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]), peer.closed(2, 1))
            until(lambda: aggregator.snapshot().faults)
            assert not windows_in(tmp_path)
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]), peer.closed(2, 1))
        assert peer.receive_type(Ack).up_to_sequence == 3
    assert len(windows_in(tmp_path)) == 1
