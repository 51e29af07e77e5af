"""Files of stacks: bounded, checked, found again; and the runs to which they belong."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from sfapp.cli import cli
from sfapp.errors import CaptureError
from sfapp.model.capture import MAX_STACK_RANKS, CaptureRequest, RankCapture
from sfapp.model.stacks import MAX_FRAMES, MAX_TEXT, MAX_THREADS, RankStacks, StackFrame, ThreadStack
from sfapp.packets import stack_files
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
from sfapp.recorder.capture.rank_stacks import current_stacks
from sfapp.service.hang import analyze_dumps
from tests.app.recorded_job import job_window, put
from tests.hostile_text import TERMINAL
from tests.job_ranks import rank_of


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


def test_a_rank_that_was_asked_and_left_no_dump_may_hold_the_job(tmp_path: Path) -> None:
    """Gloo's dumps list no ranks, so that nothing else tells of the highest one."""
    call = {
        "process_group": ("0", "default_pg"),
        "pg_id": 0,
        "collective_seq_id": 7,
        "time_created_ns": 10**18,
    }
    call |= {"profiling_name": "gloo:all_reduce", "state": "scheduled", "retired": False}
    content = msgspec.json.encode({"version": "2.10", "pg_config": {}, "entries": [call]})
    request = new_stacks_request("run", [0, 1])
    ask_for_capture(tmp_path, request)
    write_file(tmp_path, request, "dump", 0, content)
    for place in (tmp_path, dump_path(tmp_path, request, 0).parent):
        found = analyze_dumps([place]).found
        assert (found.ranks_without_dump, [each.rank for each in found.suspects]) == ((1,), [1])


def test_a_link_that_cannot_be_followed_hides_neither_a_run_nor_its_dumps(tmp_path: Path) -> None:
    put(tmp_path, job_window(0, {}, "run"))
    request = new_stacks_request("run", [0])
    write_file(tmp_path, request, "dump", 0, b"{}")
    for name in ("a", "z"):
        (tmp_path / name).symlink_to("x" * 300)
    assert find_run(tmp_path) == RunPlace(tmp_path, "run", 8)
    assert newest_dumps(tmp_path) == dump_path(tmp_path, request, 0).parent


def test_a_run_is_found_by_its_newest_packet_and_its_stacks_are_printed_escaped(tmp_path: Path) -> None:
    for run_id in ("old", "a/new"):
        put(tmp_path, job_window(0, {}, run_id))
    os.utime(tmp_path / "old", (1, 1))
    assert find_run(tmp_path, "old") == RunPlace(tmp_path, "old", 8)
    assert find_run(tmp_path / "a%2Fnew") == find_run(tmp_path) == RunPlace(tmp_path, "a/new", 8)
    with pytest.raises(CaptureError, match="no run 'none'"):
        find_run(tmp_path, "none")
    assert RunPlace(tmp_path, "large", 5000).asked_ranks[:2] == (0, 5)

    long_ago = datetime.now(UTC) - timedelta(minutes=2)
    request = replace(new_stacks_request("a/new", range(8)), asked_at=long_ago)
    ask_for_capture(tmp_path, request)
    frames = (StackFrame(TERMINAL, TERMINAL, 7),)
    write_file(tmp_path, request, "stacks", 3, encode_stacks(of_rank(3, ThreadStack("m", frames, True))))
    write_rank_capture(tmp_path, request, RankCapture(rank=3, status="done"))
    shown = CliRunner().invoke(cli, ["stacks", str(tmp_path), "--last"])
    assert shown.exit_code == 0, shown.output
    assert all(line.isprintable() for line in shown.output.split("\n"))
    assert "Ranks 0–2 and 4–7: no stacks: no answer. Its machine is silent or its" in shown.output
    document = json.loads(CliRunner().invoke(cli, ["stacks", str(tmp_path), "--last", "--json"]).output)
    assert document["stacks"][0]["frames"] == [{"file": TERMINAL, "function": TERMINAL, "line": 7}]


def test_the_stacks_of_many_ranks_take_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = new_stacks_request("run", range(8))
    frames = tuple(StackFrame("f" * MAX_TEXT, "g", line) for line in range(MAX_FRAMES))
    for rank in range(8):
        write_file(
            tmp_path, request, "stacks", rank, encode_stacks(of_rank(rank, ThreadStack("m", frames, True)))
        )
    first, *others = read_stacks(tmp_path, request)
    assert len(others) == 7
    assert all(other.threads[0] is first.threads[0] for other in others), "equal threads share their memory"
    size = stacks_path(tmp_path, request, 0).stat().st_size
    monkeypatch.setattr(stack_files, "MOST_STACKS_BYTES", 3 * size)
    assert [each.rank for each in read_stacks(tmp_path, request)] == [0, 1, 2]
    assert [
        each.rank for each in read_stacks(tmp_path, request, names=[f"{request.id}.rank5.stacks.json"])
    ] == [5]


def test_the_dumps_of_a_request_take_bounded_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_files, "MOST_DUMPS_BYTES", 1000)
    request = new_stacks_request("run", range(8))
    write_file(tmp_path, request, "dump", 0, bytes(600))
    write_file(tmp_path, request, "dump", 0, bytes(900))
    with pytest.raises(CaptureError, match="the dumps of this request have 900 bytes"):
        write_file(tmp_path, request, "dump", 1, bytes(101))
    write_file(tmp_path, request, "dump", 1, bytes(100))


def test_a_packet_does_not_lead_requests_to_another_folder(tmp_path: Path) -> None:
    """A packet may name any run, whatever folder it is in."""
    packets = tmp_path / "packets"
    put(packets, job_window(0, {}, "victim"))
    (packets / "victim").rename(packets / "other")
    for path in (packets, packets / "other"):
        for run_id in (None, "victim"):
            with pytest.raises(CaptureError, match="no run"):
                find_run(path, run_id)


def test_a_file_name_that_is_no_utf_8_does_not_hide_a_ranks_stacks(tmp_path: Path) -> None:
    """Names of files are bytes, which Python decodes to text that JSON cannot hold."""
    name = os.fsdecode(b"caf\xe9.py")
    begun, ended = threading.Event(), threading.Event()
    code = compile("begun.set(); ended.wait(20)", name, "exec")
    thread = threading.Thread(target=exec, args=(code, {"begun": begun, "ended": ended}), name=name)
    thread.start()
    begun.wait(20)
    try:
        stacks = current_stacks(rank_of(tmp_path), threading.get_ident())
    finally:
        ended.set()
        thread.join()
    (other,) = [each for each in decode_stacks(encode_stacks(stacks)).threads if "caf" in each.name]
    assert other.name == "caf\\udce9.py"
    assert other.name in {frame.file for frame in other.frames}
