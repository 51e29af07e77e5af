"""A process that says hello again stays in its start, if its entry could not be written, too."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sfapp.errors import StreamError
from sfapp.stream.run_restarts import RunRestarts
from tests.stream.test_run_restarts import entry_of, hello


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_process_stays_in_its_start_if_its_entry_could_not_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """A quota of a network file system, and a disk that does not answer, show only when it is flushed."""
    flush, calls = os.fsync, []

    def once_failing(file: int) -> None:
        calls.append(file)
        if len(calls) == failing + 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flush(file)

    restarts = RunRestarts(tmp_path, "run")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", once_failing)
        with pytest.raises(StreamError, match="Input/output error"):
            restarts.entry(hello("first", 0), None, 0.0)
    assert [entry_of(restarts, hello(name, rank)).turn for rank, name in enumerate(["first", "second"])] == [
        0,
        0,
    ]
    assert entry_of(RunRestarts(tmp_path, "run"), hello("first", 0)).turn == 0


def test_a_process_that_turns_to_another_aggregator_of_the_folder_stays_in_its_start(tmp_path: Path) -> None:
    one, other = RunRestarts(tmp_path, "run"), RunRestarts(tmp_path, "run")
    assert entry_of(one, hello("first", 0)).turn == 0
    assert [entry_of(other, hello(name, rank)).turn for rank, name in enumerate(["first", "second"])] == [
        0,
        0,
    ]
