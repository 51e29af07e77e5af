"""Files of stacks: bounded, checked, found again; and the runs to which they belong."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from sfapp.cli import cli
from sfapp.errors import CaptureError
from sfapp.model.capture import MAX_STACK_RANKS, CaptureRequest, RankCapture
from sfapp.model.stacks import MAX_FRAMES, MAX_TEXT, MAX_THREADS, RankStacks, StackFrame, ThreadStack
from sfapp.packets.captures import (
    ask_for_capture,
    new_request,
    new_stacks_request,
    read_request,
    write_rank_capture,
)
from sfapp.packets.stack_files import (
    MAX_STACKS_BYTES,
    decode_stacks,
    dump_path,
    encode_stacks,
    newest_dumps,
    read_stacks,
    stacks_path,
    write_file,
)
from sfapp.packets.stack_requests import RunPlace, find_run
from tests.app.recorded_job import job_window, put
from tests.hostile_text import TERMINAL


def of_rank(rank: int, *threads: ThreadStack) -> RankStacks:
    return RankStacks(rank=rank, taken_at=datetime.now(UTC), source="interpreter", threads=threads)


def test_a_request_for_stacks_has_no_steps_and_more_ranks_than_one_for_a_profile(tmp_path: Path) -> None:
    request = new_stacks_request("run", range(MAX_STACK_RANKS))
    assert read_request(ask_for_capture(tmp_path, request)) == request
    with pytest.raises(CaptureError, match="1025 ranks"):
        new_stacks_request("run", range(MAX_STACK_RANKS + 1))
    with pytest.raises(CaptureError, match="not taken at a step"):
        CaptureRequest(id="a", run_id="run", ranks=(0,), steps=3, kind="stacks", asked_at=datetime.now(UTC))
    assert new_request("run", [0]).kind == "profile"


def test_the_largest_stacks_fit_into_their_file_with_the_training_thread() -> None:
    frames = tuple(StackFrame("f" * MAX_TEXT, "g" * MAX_TEXT, line) for line in range(MAX_FRAMES))
    threads = [ThreadStack("main", frames, True), *[ThreadStack("other", frames)] * (MAX_THREADS - 1)]
    content = encode_stacks(of_rank(3, *threads))
    assert len(content) <= MAX_STACKS_BYTES
    found = decode_stacks(content)
    assert found.threads[0] == threads[0]
    wide = tuple(StackFrame("\x01" * MAX_TEXT, "\x01" * MAX_TEXT, line) for line in range(MAX_FRAMES))
    (cut,) = decode_stacks(encode_stacks(of_rank(3, ThreadStack("main", wide, True)))).threads
    assert cut.frames == wide[: len(cut.frames)], "the innermost frames are kept"


def test_damaged_and_foreign_stacks_are_refused_and_hide_no_others(tmp_path: Path) -> None:
    request = new_stacks_request("run", range(6))
    good = of_rank(2, ThreadStack("main", (), True))
    write_file(tmp_path, request, "stacks", 2, encode_stacks(good))
    for rank, content in ((3, b"[]"), (3, encode_stacks(of_rank(4))), (9, encode_stacks(of_rank(9)))):
        with pytest.raises(CaptureError):
            write_file(tmp_path, request, "stacks", rank, content)
    with pytest.raises(CaptureError, match="limit"):
        write_file(tmp_path, request, "stacks", 3, b" " * (MAX_STACKS_BYTES + 1))
    stacks_path(tmp_path, request, 0).write_bytes(b"{")
    stacks_path(tmp_path, request, 1).symlink_to(stacks_path(tmp_path, request, 2))
    stacks_path(tmp_path, request, 4).write_bytes(encode_stacks(good))
    assert list(read_stacks(tmp_path, request)) == [good]
    with pytest.raises(CaptureError):
        of_rank(0, *[ThreadStack("t", ())] * (MAX_THREADS + 1))
    with pytest.raises(CaptureError):
        of_rank(0, ThreadStack("t", (StackFrame("f", "g" * (MAX_TEXT + 1), 1),)))


def test_hang_reads_the_dumps_of_the_newest_stacks(tmp_path: Path) -> None:
    assert newest_dumps(tmp_path) is None
    dumps = []
    for rank in (0, 1):
        request = new_stacks_request("run", [0, 1])
        write_file(tmp_path, request, "dump", rank, b"{}")
        dumps.append(dump_path(tmp_path, request, rank).parent)
    newest = max(dumps)
    for folder in (tmp_path, tmp_path / "run", tmp_path / "run" / "captures"):
        assert newest_dumps(folder) == newest
    answer = CliRunner().invoke(cli, ["hang", str(tmp_path)])
    assert newest.name in answer.output + str(answer.exception)


def test_a_run_is_found_by_its_newest_packet_and_its_stacks_are_printed_escaped(tmp_path: Path) -> None:
    for run_id in ("old", "a/new"):
        put(tmp_path, job_window(0, {}, run_id))
    os.utime(tmp_path / "old", (1, 1))
    assert find_run(tmp_path, "old") == RunPlace(tmp_path, "old", 8)
    assert find_run(tmp_path / "a%2Fnew") == find_run(tmp_path) == RunPlace(tmp_path, "a/new", 8)
    with pytest.raises(CaptureError, match="no run 'none'"):
        find_run(tmp_path, "none")
    assert RunPlace(tmp_path, "large", 5000).asked_ranks[:2] == (0, 5)

    request = new_stacks_request("a/new", range(8))
    ask_for_capture(tmp_path, request)
    frames = (StackFrame(TERMINAL, TERMINAL, 7),)
    write_file(tmp_path, request, "stacks", 3, encode_stacks(of_rank(3, ThreadStack("m", frames, True))))
    write_rank_capture(tmp_path, request, RankCapture(rank=3, status="done"))
    shown = CliRunner().invoke(cli, ["stacks", str(tmp_path), "--last"])
    assert shown.exit_code == 0, shown.output
    assert all(line.isprintable() for line in shown.output.split("\n"))
    assert "Ranks 0–2 and 4–7: no stacks: no answer" in shown.output
    document = json.loads(CliRunner().invoke(cli, ["stacks", str(tmp_path), "--last", "--json"]).output)
    assert document["stacks"][0]["frames"] == [{"file": TERMINAL, "function": TERMINAL, "line": 7}]
