"""Windows that wait long for their acknowledgement are on disk before the process has to end."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.simulated_stream import RUN, WINDOW_STEPS, SimulatedClock, SimulatedDisk, SimulatedRankProcess
from sfapp.packets import packet_path, read_windows
from sfapp.stream import send_queue
from sfapp.stream.messages import Gap
from sfapp.stream.send_queue import _LOOK_SECONDS, _MOST_READS


class WaitingRank:
    """A rank of which three windows wait in memory, because there is no aggregator."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.disk = folder, SimulatedClock(), SimulatedDisk()
        self.process = SimulatedRankProcess(
            0, 1, "attempt", folder, self.clock, self.disk, lambda: None, first_window=0
        )
        self.process.sender.turn()
        for step in range(3 * WINDOW_STEPS):
            self.process.train(step, 1_000_000 + step)

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.process.sender.turn()

    def on_disk(self) -> list[int]:
        """Return the numbers of the windows that readers would find if the process was killed now."""
        return [found.window.number for found in read_windows([self.folder]).windows]


@pytest.fixture
def rank(tmp_path: Path) -> WaitingRank:
    return WaitingRank(tmp_path)


def test_windows_that_wait_for_an_aggregator_are_written_as_parts(rank: WaitingRank) -> None:
    rank.wait(_LOOK_SECONDS)
    assert rank.on_disk() == []
    rank.wait(_LOOK_SECONDS)
    assert rank.on_disk() == [0, 1, 2]
    # They are sent from there, and removed once they are acknowledged.
    queue = rank.process.sender.queue
    assert queue.message(0) is not None
    queue.acknowledge(queue.end)
    assert rank.on_disk() == []
    assert rank.process.writer.lost_steps == 0


@pytest.mark.parametrize("is_earlier", [True, False])
def test_a_part_that_the_aggregator_wrote_in_the_same_folder_is_kept(
    rank: WaitingRank, *, is_earlier: bool
) -> None:
    """Of a window whose number another attempt has: what is acknowledged then is in this file."""
    part = packet_path(rank.folder, RUN, 1, 0, rank.process.writer.incarnation)
    part.parent.mkdir(parents=True)
    rank.wait(_LOOK_SECONDS)
    if is_earlier:
        part.touch()
    rank.wait(_LOOK_SECONDS)
    if not is_earlier:
        shutil.copy(part, copy := part.with_suffix(".new"))
        copy.replace(part)
    assert rank.on_disk() == [0, 1, 2]
    queue = rank.process.sender.queue
    queue.acknowledge(queue.end)
    assert rank.on_disk() == [1]


def test_windows_on_disk_are_sent_once_the_process_may_open_files_again(rank: WaitingRank) -> None:
    rank.wait(_LOOK_SECONDS)
    rank.wait(_LOOK_SECONDS)
    queue, limits = rank.process.sender.queue, resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert queue.message(0) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert queue.message(0) is not None
    assert rank.on_disk() == [0, 1, 2]
    assert rank.process.writer.lost_steps == 0


@pytest.mark.parametrize("cause", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_windows_on_disk_are_sent_once_their_folder_answers_again(
    rank: WaitingRank, cause: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank.wait(_LOOK_SECONDS)
    rank.wait(_LOOK_SECONDS)
    queue = rank.process.sender.queue
    with monkeypatch.context() as patch:
        patch.setattr(send_queue, "_part_of", Mock(side_effect=OSError(cause, os.strerror(cause))))
        for _ in range(_MOST_READS - 1):
            assert queue.message(0) is None
    assert queue.message(0) is not None
    assert rank.on_disk() == [0, 1, 2]
    assert rank.process.writer.lost_steps == 0


def test_a_window_that_can_never_be_read_does_not_keep_later_ones_waiting(
    rank: WaitingRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank.wait(_LOOK_SECONDS)
    rank.wait(_LOOK_SECONDS)
    monkeypatch.setattr(send_queue, "_part_of", Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO))))
    for _ in range(_MOST_READS):
        found = rank.process.sender.queue.message(0)
    assert found is not None
    assert isinstance(found.message, Gap)
    assert rank.process.writer.lost_steps == WINDOW_STEPS
    assert rank.process.discarded == {0}


def test_windows_that_wait_stay_in_memory_while_the_disk_is_full(rank: WaitingRank) -> None:
    rank.disk.room = 0
    rank.wait(_LOOK_SECONDS)
    rank.wait(_LOOK_SECONDS)
    assert "waits in memory" in rank.process.local.failures[-1]
    assert rank.process.writer.pending == 3
    rank.disk.room = None
    rank.wait(_LOOK_SECONDS)
    assert rank.on_disk() == [0, 1, 2]
    assert rank.process.writer.lost_steps == 0
