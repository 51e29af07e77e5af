"""The file of run restarts survives an aggregator that is killed while writing it."""

from __future__ import annotations

from pathlib import Path

from sfapp.packets import packet_path
from sfapp.stream.messages import VERSION, StreamHello
from sfapp.stream.run_restarts import RESTARTS_FILE, RunRestarts


def hello(incarnation: str, rank: int, attempt: str = "a") -> StreamHello:
    head = {"v": VERSION, "rank": rank, "incarnation": incarnation}
    return StreamHello(**head, run_id="run", attempt=attempt, world_size=2)


def test_a_truncated_line_is_skipped(tmp_path: Path) -> None:
    # given a ledger whose last line is half there
    RunRestarts(tmp_path, "run").offset(hello("first", 0), None)
    ledger = packet_path(tmp_path, "run", 0).parent / RESTARTS_FILE
    ledger.write_bytes(ledger.read_bytes()[:-9])
    # when ranks of the attempt are decided upon, and windows are written after that
    after = RunRestarts(tmp_path, "run")
    assert [after.offset(hello("second", 1), None), after.offset(hello("first", 0), None)] == [0, 0]
    packet_path(tmp_path, "run", 7).touch()
    # then whoever comes next finds both, and puts another attempt behind those windows
    again = RunRestarts(tmp_path, "run")
    assert [again.offset(hello("second", 1), None), again.offset(hello("first", 0), None)] == [0, 0]
    assert again.offset(hello("third", 0, "b"), None) == 8
