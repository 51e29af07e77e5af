"""Parts of two starts of a job are not joined, although no rank knows of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest
from msgspec import UNSET

import sfapp
from sfapp.model import Manifest, RankIdentity, RecorderInfo
from sfapp.packets import read_windows
from sfapp.packets.attempts import starts_of
from sfapp.packets.job import NOT_AGREED
from tests.builders import ddp_job, window_of

SAME = {"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}


def record(root: Path, rank: int, monkeypatch: pytest.MonkeyPatch, start: dict[str, str]) -> None:
    """Record one window of a rank in a job of two ranks without torch.distributed."""
    for name, value in (SAME | {"WORLD_SIZE": "2"} | start).items():
        monkeypatch.setenv(name, value)
    with sfapp.Recorder(root, run_id="run", identity=RankIdentity(rank, rank, 0, "node-0")) as perf:
        perf.add_step(20_000_000, [{"data.next_wait": 5_000_000}])


def test_parts_of_one_start_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        record(tmp_path, rank, monkeypatch, {})
    (found,) = read_windows([tmp_path]).windows
    assert found.window.ranks.rank == (0, 1)


@pytest.mark.parametrize(
    "other",
    [{"TORCHELASTIC_RESTART_COUNT": "1"}, {"TORCHELASTIC_RUN_ID": "job-7"}, {"SLURM_RESTART_COUNT": "1"}],
)
def test_parts_of_two_starts_are_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str]
) -> None:
    record(tmp_path, 0, monkeypatch, {})
    record(tmp_path, 1, monkeypatch, other)
    loaded = read_windows([tmp_path])
    assert [len(found.window.ranks.rank) for found in loaded.windows] == [1]
    assert ["another attempt at the run" in conflict.reason for conflict in loaded.conflicts] == [True]


def test_parts_of_two_starts_of_the_same_name_are_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a job was queued again, with a folder on each node: the first start has only rank 1's part."""
    record(tmp_path / "node-1", 1, monkeypatch, {})
    sleep(1.2)  # A process takes longer to start.
    record(tmp_path / "node-0", 0, monkeypatch, {})
    loaded = read_windows([tmp_path])
    assert [found.window.ranks.rank for found in loaded.windows] == [(0,)]
    assert ["another attempt at the run" in conflict.reason for conflict in loaded.conflicts] == [True]


def test_parts_of_ranks_that_do_not_wait_for_each_other_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorders = []
    for rank in range(2):
        for name, value in (SAME | {"WORLD_SIZE": "2"}).items():
            monkeypatch.setenv(name, value)
        identity = RankIdentity(rank, rank, 0, "node-0")
        recorders.append(sfapp.Recorder(tmp_path, run_id="run", identity=identity))
    for perf in recorders:
        with perf:
            perf.add_step(20_000_000, [{"data.next_wait": 5_000_000}])
        sleep(1.2)
    (found,) = read_windows([tmp_path]).windows
    assert found.window.ranks.rank == (0, 1)


def clock(minute: int, second: int = 0) -> str:
    return f"2026-11-28T12:{minute:02}:{second:02}Z"


def part(created_at: str | None, ended_at: str | None) -> Manifest:
    """Of a part of a start whose ranks agreed on nothing, with the time at which its recorder was created."""
    made = window_of(ddp_job(ranks=2, steps=2), attempt=f"{NOT_AGREED}0.2.29500", ended_at=ended_at)
    return replace(
        made.manifest, recorder=RecorderInfo(started_at=UNSET if created_at is None else created_at)
    )


@pytest.mark.parametrize(
    "ended_at",
    [clock(50), "2026-11-28T11:05:00Z", "9999-12-31T23:59:59.999999Z"],
    ids=["later", "after a clock was set back", "at the end of time"],
)
def test_parts_of_recorders_that_are_created_in_turn_are_of_one_start(ended_at: str) -> None:
    assert len(set(starts_of([part(clock(0, 2 * rank), ended_at) for rank in range(4)]))) == 1


def test_parts_that_do_not_name_their_recorders_time_are_of_one_start() -> None:
    assert len(set(starts_of([part(None, clock(1)), part(None, clock(9))]))) == 1


def test_a_part_without_an_end_is_of_the_start_in_which_its_recorder_was_created() -> None:
    first, second, unfinished = starts_of(
        [part(clock(0), clock(1)), part(clock(5), clock(6)), part(clock(5), None)]
    )
    assert first != second == unfinished


def test_a_process_that_outlives_its_start_does_not_join_it_with_the_next() -> None:
    parts = [part(clock(0), clock(1)), part(clock(0), clock(10)), part(clock(5), clock(11))]
    first, _, second = starts_of(parts)
    assert first != second
