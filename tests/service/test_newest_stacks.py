"""The newest stacks of a run are found without its packets, and read again only after they have changed."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sfapp.errors import WindowNotFoundError
from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.model.stacks import RankStacks, StackFrame, ThreadStack
from sfapp.packets.captures import ask_for_capture, captures_folder, new_stacks_request, write_rank_capture
from sfapp.packets.stack_files import encode_stacks, write_file
from sfapp.service.stacks import newest_stacks_below


def answer(root: Path, request: CaptureRequest, rank: int, line: int = 1) -> None:
    thread = ThreadStack("MainThread", (StackFrame("a.py", "f", line),), is_training=True)
    stacks = RankStacks(rank=rank, taken_at=datetime.now(UTC), source="interpreter", threads=(thread,))
    write_file(root, request, "stacks", rank, encode_stacks(stacks))
    write_rank_capture(root, request, RankCapture(rank=rank, status="done"))


def test_stacks_that_have_not_changed_are_read_once(tmp_path: Path) -> None:
    request = new_stacks_request("run", range(3))
    ask_for_capture(tmp_path, request)
    answer(tmp_path, request, 0)
    os.utime(
        captures_folder(tmp_path, "run"), (1, 1)
    )  # Changes of the last second may be followed by others.
    found = newest_stacks_below([tmp_path], "run")
    assert [each.rank for each in found.stacks] == [0]
    assert newest_stacks_below([tmp_path / "run"], "run") is found
    answer(tmp_path, request, 2)
    assert [each.rank for each in newest_stacks_below([tmp_path], "run").stacks] == [0, 2]


def test_ranks_with_damaged_stacks_are_listed_with_the_reason(tmp_path: Path) -> None:
    request = new_stacks_request("run", range(3))
    ask_for_capture(tmp_path, request)
    answer(tmp_path, request, 0)
    write_rank_capture(tmp_path, request, RankCapture(rank=1, status="done"))
    found = newest_stacks_below([tmp_path], "run")
    assert found.missing == (("its stacks cannot be read", (1,)), ("no answer yet", (2,)))


def test_only_folders_that_are_shown_are_searched(tmp_path: Path) -> None:
    """A visitor may ask for any run: the folder next to the packets is not theirs to read."""
    request = new_stacks_request("secret", [0])
    ask_for_capture(tmp_path, request)
    answer(tmp_path, request, 0)
    shown = tmp_path / "packets"
    shown.mkdir()
    for run_id in ("secret", "../secret", "", ".", "packets"):
        with pytest.raises(WindowNotFoundError):
            newest_stacks_below([shown], run_id)
    assert newest_stacks_below([tmp_path], "secret").stacks
