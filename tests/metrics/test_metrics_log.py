"""A run's samples are written at once, downsampled with age, and bounded in size."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sfapp.metrics import MetricsLog, find_folders, read_segment, segments_in
from sfapp.metrics.sample_log import AGES, SEGMENT_S
from sfapp.model.samples import AnySample, ProcessSample

START = 1_700_000_100  # a multiple of five minutes
HOUR = 3600


class SecondsClock:
    """A clock that a test sets, in seconds since 1970."""

    def __init__(self) -> None:
        self.now = float(START)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> SecondsClock:
    return SecondsClock()


def process(second: float) -> ProcessSample:
    return ProcessSample(at_ns=int(second * 10**9), node_rank=0, rank=0, rss_bytes=int(second))


def run_for(log: MetricsLog, clock: SecondsClock, seconds: int) -> None:
    """Write a sample a second, and downsample once a minute."""
    for _ in range(seconds):
        log.add([process(clock.now)])
        clock.now += 1
        if clock.now % 60 == 0:
            downsample(log)


def downsample(log: MetricsLog) -> int:
    """Downsample every file that is old enough; return the number of batches."""
    return sum(1 for _ in log.downsample())


def everything(root: Path) -> Iterator[tuple[int, AnySample]]:
    """Yield every sample on disk with the seconds it stands for, in order."""
    for path in segments_in(find_folders([root])):
        chunk = read_segment(path)
        assert chunk is not None
        assert chunk.is_last
        yield from ((chunk.header.every_s, sample) for sample in chunk.samples)


def test_samples_are_written_at_once_under_the_runs_name(tmp_path: Path, clock: SecondsClock) -> None:
    log = MetricsLog(tmp_path, "a/b", now_s=clock)
    log.add([])
    assert not log.folder.exists()
    log.add([process(1), process(2)])
    (path,) = segments_in(find_folders([tmp_path]))
    assert path.parent == tmp_path / "a%2Fb" / "metrics"
    chunk = read_segment(path)
    assert chunk is not None
    assert chunk.header.run_id == "a/b"
    assert chunk.samples == (process(1), process(2))


def test_older_samples_are_coarser(tmp_path: Path, clock: SecondsClock) -> None:
    log = MetricsLog(tmp_path, "run", now_s=clock)
    run_for(log, clock, 3 * HOUR)
    found = list(everything(tmp_path))
    age = {1: 0.0, 10: 0.0, 60: 0.0}
    for every_s, sample in found:
        age[every_s] = max(age[every_s], clock.now - sample.at_ns / 1e9)
    # each file waits until all of it is old enough, and the minute of the next look
    assert 600 <= age[1] <= 600 + SEGMENT_S + 60
    assert 2 * HOUR - 10 <= age[10] <= 2 * HOUR + SEGMENT_S + 60
    assert age[60] >= 3 * HOUR - 60
    newest = [sample.at_ns // 10**9 for every_s, sample in found if every_s == 1]
    assert newest == list(range(newest[0], newest[0] + len(newest)))
    assert len(found) < 600 + SEGMENT_S + 60 + 720 + 31 + 60 + 10
    assert log.lost == 0


def test_the_oldest_files_are_removed_above_the_bound(tmp_path: Path, clock: SecondsClock) -> None:
    log = MetricsLog(tmp_path, "run", max_bytes=60_000, now_s=clock)
    run_for(log, clock, HOUR)
    paths = segments_in(find_folders([tmp_path]))
    assert sum(path.stat().st_size for path in paths[:-1]) <= 60_000
    assert max(sample.at_ns for _, sample in everything(tmp_path)) == (START + HOUR - 1) * 10**9


def test_a_truncated_line_of_a_killed_writer_is_skipped(tmp_path: Path, clock: SecondsClock) -> None:
    MetricsLog(tmp_path, "run", now_s=clock).add([process(1)])
    (path,) = segments_in(find_folders([tmp_path]))
    with path.open("ab") as file:
        file.write(b'{"kind":"process","at_')
    MetricsLog(tmp_path, "run", now_s=clock).add([process(2)])
    chunk = read_segment(path)
    assert chunk is not None
    assert (chunk.samples, chunk.refused) == ((process(1), process(2)), 1)


def test_samples_that_cannot_be_written_are_counted(tmp_path: Path, clock: SecondsClock) -> None:
    (tmp_path / "run").write_text("in the way")
    log = MetricsLog(tmp_path, "run", now_s=clock)
    log.add([process(1), process(2)])
    assert log.lost == 2
    assert "run" in log.failure


def test_other_files_in_the_folder_are_ignored(tmp_path: Path, clock: SecondsClock) -> None:
    log = MetricsLog(tmp_path, "run", max_bytes=0, now_s=clock)
    log.add([process(1)])
    for name in ("notes.jsonl", "20200101T000000Z.jsonl"):
        (log.folder / name).write_text("mine\n")
    clock.now += 24 * HOUR
    log.add([process(clock.now)])
    downsample(log)
    assert (log.folder / "notes.jsonl").read_text() == "mine\n"


def crowd(second: int, ranks: int) -> list[AnySample]:
    """Return the samples of many ranks for one second."""
    at_ns = second * 10**9
    return [ProcessSample(at_ns=at_ns, node_rank=0, rank=rank, rss_bytes=second) for rank in range(ranks)]


def write_segment(log: MetricsLog, seconds: int, ranks: int) -> Path:
    """Write this many seconds into one file, and return its path."""
    for second in range(seconds):
        log.add(crowd(START + second, ranks))
    (path,) = segments_in([log.folder])
    return path


@pytest.mark.parametrize("every_s", [10, 60])
def test_downsampling_takes_no_more_memory_for_more_rows(
    tmp_path: Path, clock: SecondsClock, every_s: int
) -> None:
    peaks = []
    for seconds in (60, 300):
        # given one minute of a hundred ranks, and five
        log = MetricsLog(tmp_path, f"{seconds}-{every_s}", now_s=clock)
        path = write_segment(log, seconds, 100)
        clock.now = START + SEGMENT_S + next(age for age, downsampled_to in AGES if downsampled_to == every_s)
        # when the file is downsampled
        tracemalloc.start()
        try:
            assert downsample(log) > 1
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        clock.now = START
        # then there is one sample a rank and stretch
        chunk = read_segment(path)
        assert chunk is not None
        assert len(chunk.samples) == 100 * seconds // every_s
    # and five times as many rows took as much memory
    few, many = peaks
    assert many < 1.25 * few  # the last file is read in whole pieces
    assert many < 2**20


def test_an_interrupted_downsampling_leaves_the_file_unchanged(tmp_path: Path, clock: SecondsClock) -> None:
    log = MetricsLog(tmp_path, "run", now_s=clock)
    path = write_segment(log, 60, 100)
    before = path.read_bytes()
    clock.now += SEGMENT_S + 600
    pieces = log.downsample()
    assert isinstance(pieces, Generator)
    next(pieces)
    pieces.close()
    assert path.read_bytes() == before
    assert list(log.folder.iterdir()) == [path]
    # and the next writer downsamples it
    downsample(MetricsLog(tmp_path, "run", now_s=clock))
    chunk = read_segment(path)
    assert chunk is not None
    assert chunk.header.every_s == 10


def test_what_is_no_file_does_not_keep_old_samples_from_being_merged(
    tmp_path: Path, clock: SecondsClock
) -> None:
    log = MetricsLog(tmp_path, "run", now_s=clock)
    run_for(log, clock, SEGMENT_S)
    first, *_ = segments_in(find_folders([tmp_path]))
    for name, make in (("pipe", os.mkfifo), ("folder", os.mkdir)):
        clock.now += SEGMENT_S
        make(
            log.folder
            / f"{datetime.fromtimestamp(START - (name == 'pipe') * 600 - 600, UTC):%Y%m%dT%H%M%SZ}.jsonl"
        )
    clock.now += HOUR
    assert downsample(log) > 0
    chunk = read_segment(first)
    assert chunk is not None
    assert chunk.header.every_s == 10
