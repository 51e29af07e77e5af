"""Parts of a restarted streamed job are copied beside the packets: no window mixes two attempts."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from benchmarks.simulated_stream import (
    RUN,
    WINDOW_STEPS,
    SimulatedAggregator,
    SimulatedClock,
    SimulatedDisk,
    SimulatedRankProcess,
)
from sfapp.model import Window
from sfapp.packets import Loaded, load_packet, packet_path, read_windows
from sfapp.packets.attempts import RESTARTS_FILE
from sfapp.packets.job import NOT_AGREED
from sfapp.packets.read import Packet
from sfapp.storage.local_storage import LocalStorage
from sfapp.store import Store, ingest_to_dataset

WORLD = 2


class RestartedJob:
    """A job of two ranks on two nodes, whose first attempt delivered two windows."""

    def __init__(self, folder: Path, world: int = WORLD) -> None:
        self.folder, self.root, self.world = folder, folder / "packets", world
        self.clock, self.disk = SimulatedClock(), SimulatedDisk()
        self.aggregator = SimulatedAggregator(self.root, self.clock, self.disk)
        self.ranks: list[SimulatedRankProcess] = []
        self.start("first")
        self.train(range(2 * WINDOW_STEPS))
        self.exchange()
        assert [window.number for window in self.windows()] == [0, 1]

    def start(self, attempt: str, first_windows: tuple[int, ...] = (0, 0)) -> None:
        self.ranks = [
            SimulatedRankProcess(
                rank,
                self.world,
                attempt,
                self.folder / f"node-{rank}",
                self.clock,
                self.disk,
                lambda: None,
                first_windows[rank],
            )
            for rank in range(self.world)
        ]

    def train(self, steps: range) -> None:
        for step in steps:
            for process in self.ranks:
                process.train(step, 1_000_000 + 10 * step + process.rank)

    def exchange(self) -> None:
        for process in self.ranks:
            process.sender.turn()
            for frame in process.link.up:
                self.aggregator.receive(process.link, frame)
            process.link.up.clear()
            for frame in process.link.down:
                process.sender.receive(frame)
            process.link.down.clear()
        self.aggregator.turn(is_idle=True)
        self.clock.now += 1.0

    def end_without_aggregator(self) -> None:
        for process in self.ranks:
            process.close(0.0)

    def copy_parts(self) -> None:
        for part in sorted(self.folder.glob("node-*/*/*.parquet")):
            target = packet_path(self.root, RUN, 0).parent / part.name
            assert not target.exists()
            shutil.copy2(part, target)

    def load(self) -> Loaded:
        loaded = read_windows([self.root])
        assert not loaded.quarantined
        return loaded

    def windows(self) -> list[Window]:
        return [item.window for item in self.load().windows]


def test_an_aggregator_that_cannot_read_the_attempts_for_a_moment_moves_no_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    job = RestartedJob(tmp_path)
    job.aggregator = SimulatedAggregator(job.root, job.clock, job.disk)  # Restarted
    job.train(range(2 * WINDOW_STEPS, 3 * WINDOW_STEPS))
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "read_small", refuse)
        for _ in range(3):
            job.exchange()
    for _ in range(5):
        job.exchange()
    assert [window.number for window in job.windows()] == [0, 1, 2]


def test_an_attempt_takes_no_number_while_the_windows_of_its_run_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = RestartedJob(tmp_path)
    job.start("second")
    job.train(range(WINDOW_STEPS))
    with monkeypatch.context() as patch:
        for call in ("listdir", "scandir"):
            patch.setattr(os, call, Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
        job.exchange()
    for _ in range(5):
        job.exchange()
    assert [window.number for window in job.windows()] == [0, 1, 2]
    assert not job.load().conflicts


def job_with_a_second_attempt(tmp_path: Path) -> RestartedJob:
    """Return a job whose second attempt the aggregator knows, but whose windows it does not receive."""
    job = RestartedJob(tmp_path)
    job.start("second")
    job.train(range(1))
    job.exchange()
    job.train(range(1, 2 * WINDOW_STEPS))
    job.end_without_aggregator()
    return job


def test_parts_of_a_later_attempt_follow_the_windows_of_the_earlier_one(tmp_path: Path) -> None:
    job = job_with_a_second_attempt(tmp_path)
    before = job.windows()

    job.copy_parts()

    loaded, after = job.load(), job.windows()
    assert [window.number for window in after] == [0, 1, 2, 3]
    assert all(window.ranks.rank == (0, 1) for window in after)
    assert not loaded.conflicts
    assert [window.wall_NR.tolist() for window in after[:2]] == [window.wall_NR.tolist() for window in before]
    assert [window.manifest.attempt for window in after] == ["first", "first", "second", "second"]
    with Store.open([job.root], db=tmp_path / "store.duckdb") as store:
        store.ingest()
        assert sorted(store.window_numbers([RUN])[RUN]) == [0, 1, 2, 3]


@pytest.mark.parametrize("are_parts_first", [True, False])
def test_a_store_numbers_parts_anew_once_the_attempts_of_their_run_are_copied(
    tmp_path: Path, are_parts_first: bool
) -> None:
    job = job_with_a_second_attempt(tmp_path)
    # given the parts in a folder that is served and described by a dataset, with or without the packets
    source, copies, target = packet_path(job.root, RUN, 0).parent, tmp_path / "copies", tmp_path / "verdicts"
    copies.mkdir()
    parts = list(job.folder.glob("node-*/*/*.parquet"))
    for path in parts if are_parts_first else [*parts, *source.glob("*.parquet")]:
        shutil.copy2(path, copies)
    with Store.open([copies], db=tmp_path / "store.duckdb") as store:
        store.ingest()
        ingest_to_dataset([copies], target)
        # when the file with the attempts is copied too
        for path in [*source.glob("*.parquet"), source / RESTARTS_FILE]:
            shutil.copy2(path, copies)
        store.ingest()
        ingest_to_dataset([copies], target)
        # then both have the windows that readers of the packets find
        assert [item.window.number for item in read_windows([copies]).windows] == [0, 1, 2, 3]
        assert sorted(store.window_numbers([RUN])[RUN]) == [0, 1, 2, 3]
        assert not store.conflicts()
        assert store.ingest().added == 0
    with Store.open([target], memory=True) as store:
        store.ingest()
        assert sorted(store.window_numbers([RUN])[RUN]) == [0, 1, 2, 3]


def test_a_store_numbers_parts_once_the_attempts_that_cannot_be_read_for_a_moment_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_with_a_second_attempt(tmp_path)
    job.copy_parts()
    with Store.open([job.root], db=tmp_path / "store.duckdb") as store:
        with monkeypatch.context() as patch:
            patch.setattr(LocalStorage, "read_small", Mock(side_effect=OSError(errno.EIO, "I/O error")))
            store.ingest()
        assert sorted(store.window_numbers([RUN])[RUN]) == [0, 1]
        assert {file.reason for file in store.quarantine()} == {
            ".stream.jsonl numbers it and cannot be read: I/O error"
        }
        store.ingest()
        assert sorted(store.window_numbers([RUN])[RUN]) == [0, 1, 2, 3]
        assert not store.conflicts()
        assert not store.quarantine()


def test_a_part_of_a_far_time_leaves_a_dataset_that_can_be_read(tmp_path: Path) -> None:
    job = RestartedJob(tmp_path)
    job.start("second")
    job.train(range(WINDOW_STEPS))
    job.end_without_aggregator()
    job.copy_parts()
    for path in job.root.rglob("*.rank*.parquet"):
        os.utime(path, (7.3e9, 7.3e9))  # in 2201
    for _ in range(2):
        _, dataset = ingest_to_dataset([job.root], tmp_path / "verdicts")
    assert (dataset.written, dataset.windows) == (0, 2)


def test_an_attempt_takes_no_number_of_windows_that_an_earlier_one_left_as_parts(tmp_path: Path) -> None:
    job = RestartedJob(tmp_path)
    # given a second attempt, whose first window was delivered, and whose others are parts on its disks
    job.start("second")
    job.train(range(WINDOW_STEPS))
    for _ in range(3):
        job.exchange()
    job.train(range(WINDOW_STEPS, 4 * WINDOW_STEPS))
    job.end_without_aggregator()
    # when a third attempt, which counts from its own disks, is delivered
    job.start("third", (4, 4))
    job.train(range(2 * WINDOW_STEPS))
    for _ in range(3):
        job.exchange()

    job.copy_parts()

    loaded, windows = job.load(), job.windows()
    assert not loaded.conflicts
    assert [window.number for window in windows] == list(range(8))
    attempts = [window.manifest.attempt for window in windows]
    assert attempts == ["first"] * 2 + ["second"] * 4 + ["third"] * 2


@pytest.mark.parametrize("first_windows", [(0, 8), (8, 0), (1, 12)])
def test_ranks_that_count_from_different_numbers_are_in_the_same_windows(
    tmp_path: Path, first_windows: tuple[int, int]
) -> None:
    """As after an attempt of which one node kept more windows on its disk than another."""
    job = RestartedJob(tmp_path)
    job.start(f"{NOT_AGREED}1.2.29500", first_windows)
    job.train(range(2 * WINDOW_STEPS))
    for _ in range(4):
        job.exchange()
    # The aggregator is gone from here on.
    job.train(range(2 * WINDOW_STEPS, 3 * WINDOW_STEPS))
    job.end_without_aggregator()
    assert len(job.windows()) == 4

    job.copy_parts()

    loaded, windows = job.load(), job.windows()
    numbers = [window.number for window in windows]
    assert numbers[:2] == [0, 1]
    assert numbers[2:] == list(range(numbers[2], numbers[2] + 3))
    assert all(window.ranks.rank == (0, 1) for window in windows)
    assert [window.step_N.tolist()[0] for window in windows[2:]] == [0, WINDOW_STEPS, 2 * WINDOW_STEPS]
    assert not loaded.conflicts


@pytest.mark.parametrize("world", [1, 2])
def test_parts_of_an_unknown_attempt_are_a_conflict_and_replace_nothing(tmp_path: Path, world: int) -> None:
    job = RestartedJob(tmp_path, world)
    before = job.windows()
    # given a second attempt of which no message reached the aggregator
    job.start("second")
    job.train(range(100, 100 + 3 * WINDOW_STEPS))
    job.end_without_aggregator()

    job.copy_parts()

    loaded, after = job.load(), job.windows()
    assert [window.wall_NR.tolist() for window in after[:2]] == [window.wall_NR.tolist() for window in before]
    assert [(window.number, window.manifest.attempt) for window in after[2:]] == [(2, "second")]
    assert [conflict.window for conflict in loaded.conflicts] == [0, 1]
    assert all("another attempt at the run" in conflict.reason for conflict in loaded.conflicts)


def test_a_second_attempt_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    job = RestartedJob(tmp_path)
    job.start("first")
    job.train(range(100, 100 + WINDOW_STEPS))
    job.end_without_aggregator()

    job.copy_parts()

    loaded = job.load()
    assert [conflict.window for conflict in loaded.conflicts] == [0]
    assert {window.manifest.attempt for window in job.windows()} == {"first"}


@pytest.mark.parametrize(
    "entry",
    [
        {"turn": 0, "offset": 2**62},
        {"turn": 0, "offset": 2**80},
        {"turn": 0, "offset": -2},
        {"turn": 0, "offset": -(2**80)},
        {"turn": 10**12, "offset": 5},
    ],
)
def test_a_hostile_file_of_restarts_costs_no_memory_and_no_window(
    tmp_path: Path, entry: dict[str, int]
) -> None:
    process = SimulatedRankProcess(
        0, WORLD, "a", tmp_path, SimulatedClock(), SimulatedDisk(), lambda: None, first_window=1
    )
    process.train(0, 1_000_000)
    process.close(0.0)
    (path,) = tmp_path.rglob("*.parquet")
    line = {"attempt": "a", "rank": 0, "incarnation": process.writer.incarnation} | entry
    path.with_name(RESTARTS_FILE).write_bytes(msgspec.json.encode(line) + b"\n")

    loaded = load_packet(path)

    assert isinstance(loaded, Packet)
    assert loaded.window.number in (1, 6)
