"""Capture requests next to the packets: written, answered, read back; faults in them are reported."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from sfapp.errors import CaptureError
from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.packets import captures as module
from sfapp.packets import find_packets
from sfapp.packets.captures import (
    MAX_BYTES,
    MOST_OPEN,
    ask_for_capture,
    captures,
    captures_folder,
    combined_state,
    new_request,
    new_stacks_request,
    open_captures,
    rank_path,
    read_request,
    request_files,
    state_of,
    write_rank_capture,
)
from sfapp.packets.stack_files import dump_path, write_file

RUN = "job/7 of ünï"


def test_what_is_asked_for_is_read_back(tmp_path: Path) -> None:
    request = new_request(RUN, [3, 0, 3], 4, first_step=17, reason="slow", asked_by="me")
    path = ask_for_capture(tmp_path, request)
    assert request.ranks == (0, 3)
    assert path.parent.parent.parent == tmp_path
    assert read_request(path, RUN) == request
    (state,) = captures(tmp_path, RUN)
    assert (state.request, state.status, state.ranks_done, state.why) == (request, "asked", (), "")
    assert find_packets([tmp_path]) == []
    with pytest.raises(CaptureError, match="already"):
        ask_for_capture(tmp_path, request)


def test_later_requests_come_later(tmp_path: Path) -> None:
    asked = [new_request("run", [rank]) for rank in range(3)]
    for request in reversed(asked):
        ask_for_capture(tmp_path, request)
    seen = [state.request for state in captures(tmp_path, "run")]
    assert sorted(seen, key=lambda request: request.id) == seen
    assert set(seen) == set(asked)
    assert captures(tmp_path, "absent") == []


def test_no_more_requests_are_written_than_are_passed_on(tmp_path: Path) -> None:
    for _ in range(MOST_OPEN):
        ask_for_capture(tmp_path, new_request("run", [0]))
    with pytest.raises(CaptureError, match="try again later"):
        ask_for_capture(tmp_path, new_request("run", [0]))
    # Those of another run, and those whose time is over, do not count
    ask_for_capture(tmp_path, new_request("other", [0]))
    for path in request_files(tmp_path, "run"):
        request = read_request(path, "run")
        path.write_bytes(
            msgspec.json.encode(replace(request, asked_at=request.asked_at - timedelta(hours=1)))
        )
    ask_for_capture(tmp_path, new_request("run", [0]))


def test_ranks_report_the_result(tmp_path: Path) -> None:
    request = new_request("run", [0, 1], 2)
    ask_for_capture(tmp_path, request)

    def now() -> tuple[str, tuple[int, ...], str]:
        (state,) = captures(tmp_path, "run")
        return state.status, state.ranks_done, state.why

    write_rank_capture(tmp_path, request, RankCapture(rank=0, status="running", first_step=5))
    assert now() == ("running", (), "")
    write_rank_capture(
        tmp_path, request, RankCapture(rank=0, status="done", first_step=5, steps=2, windows=(0, 1))
    )
    assert now() == ("running", (0,), "")
    write_rank_capture(
        tmp_path, request, RankCapture(rank=1, status="refused", why="another profiler is running")
    )
    assert now() == ("done", (0,), "rank 1: another profiler is running")
    assert captures(tmp_path, "run")[0].windows == (0, 1)


def test_an_unanswered_request_expires() -> None:
    request = new_request("run", [0, 1])
    later = datetime.now(UTC) + timedelta(hours=1)
    assert combined_state(request, [], datetime.now(UTC)).status == "asked"
    assert combined_state(request, [], later).status == "expired"
    running = RankCapture(rank=0, status="running")
    assert combined_state(request, [running], later).status == "expired", "its process was killed"
    assert combined_state(request, [replace(running, status="done")], later).status == "done"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"id": "../../etc"}, "the id must be"),
        ({"id": ""}, "the id must be"),
        ({"run_id": ""}, "the run id"),
        ({"ranks": ()}, "name 1 to 64"),
        ({"ranks": tuple(range(65))}, "65 ranks"),
        ({"ranks": (2, 1)}, "ascend"),
        ({"ranks": (-1,)}, "outside"),
        ({"steps": 0}, "0 steps"),
        ({"steps": 21}, "21 steps"),
        ({"first_step": -1}, "the first step"),
        ({"reason": "x" * 301}, "the reason"),
        ({"asked_at": datetime(2026, 1, 1)}, "time zone"),
    ],
)
def test_a_request_is_held_to_its_bounds(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(CaptureError, match=why):
        replace(new_request("run", [0]), **wrong)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 10_000,
        b'{"id": 3}',
        b'{"id":"a","run_id":"run","ranks":[0],"steps":999999,"asked_at":"2026-01-01T00:00:00Z"}',
        b" " * (MAX_BYTES + 1),
    ],
)
def test_a_file_that_is_no_request_is_refused_and_passed_over(tmp_path: Path, content: bytes) -> None:
    good = new_request("run", [0])
    path = ask_for_capture(tmp_path, good).with_name("a.json")
    path.write_bytes(content)
    with pytest.raises(CaptureError, match="is not a capture request"):
        read_request(path)
    assert [state.request for state in captures(tmp_path, "run")] == [good]


def test_no_pipe_or_link_is_followed_and_names_must_fit(tmp_path: Path) -> None:
    good = new_request("run", [0])
    folder = ask_for_capture(tmp_path, good).parent
    os.mkfifo(folder / "p.json")
    (folder / "l.json").symlink_to(folder / f"{good.id}.json")
    (folder / "n.json").write_bytes(msgspec.json.encode(good))
    for name, why in (("p", "not a regular file"), ("l", "cannot be read"), ("n", "its id is")):
        with pytest.raises(CaptureError, match=why):
            read_request(folder / f"{name}.json")
    with pytest.raises(CaptureError, match="for another run"):
        read_request(folder / f"{good.id}.json", "other")
    with pytest.raises(CaptureError, match="no longer exists"):
        read_request(folder / "gone.json")


@pytest.mark.parametrize(
    "content", [b"{}", b'{"rank":1,"status":"done"}', b'{"rank":0,"status":"done","steps":-1}', b"\x00"]
)
def test_a_rank_s_word_that_is_none_counts_as_silence(tmp_path: Path, content: bytes) -> None:
    request: CaptureRequest = new_request("run", [0])
    ask_for_capture(tmp_path, request)
    rank_path(tmp_path, "run", request.id, 0).write_bytes(content)
    assert captures(tmp_path, "run")[0].status == "asked"


def test_a_request_from_the_future_expires_too(tmp_path: Path) -> None:
    """Else it would stay open, and be read every second, for as long as the run lasts."""
    request = replace(new_request("run", [0]), asked_at=datetime(9999, 12, 31, tzinfo=UTC))
    ask_for_capture(tmp_path, request)
    assert captures(tmp_path, "run")[0].status == "expired"
    assert open_captures(tmp_path, "run") == []


def test_of_many_open_requests_the_newest_are_passed_on_and_files_that_do_not_exist_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [new_stacks_request("run", range(1024)) for _ in range(2)]
    for request in asked:
        ask_for_capture(tmp_path, request)
    monkeypatch.setattr(module, "MOST_OPEN", 1)
    newest = max(asked, key=lambda request: request.id)
    write_rank_capture(tmp_path, newest, RankCapture(rank=7, status="done"))
    (state,) = open_captures(tmp_path, "run")
    assert (state.request, state.ranks_done) == (newest, (7,))
    assert state_of(tmp_path, newest, names=[]).ranks == ()


def test_nothing_is_written_to_a_folder_that_is_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    request = new_stacks_request("run", [0])
    folder = captures_folder(tmp_path / "packets", "run")
    folder.parent.mkdir(parents=True)
    folder.symlink_to(elsewhere)
    with pytest.raises(CaptureError, match="is a link"):
        ask_for_capture(tmp_path / "packets", request)
    with pytest.raises(CaptureError, match="is a link"):
        write_rank_capture(tmp_path / "packets", request, RankCapture(rank=0, status="done"))
    with pytest.raises(CaptureError, match="is a link"):
        write_file(tmp_path / "packets", request, "dump", 0, b"{}")
    folder.unlink()
    dumps = dump_path(tmp_path / "packets", request, 0).parent
    dumps.parent.mkdir()
    dumps.symlink_to(elsewhere)
    with pytest.raises(CaptureError, match="is a link"):
        write_file(tmp_path / "packets", request, "dump", 0, b"{}")
    assert list(elsewhere.iterdir()) == []


def test_a_reason_that_is_no_unicode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="not valid Unicode"):
        ask_for_capture(tmp_path, new_request("run", [0], reason=os.fsdecode(b"caf\xe9")))
