"""Files of samples are read as they grow; invalid lines are skipped and counted."""

from __future__ import annotations

import errno
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfapp.errors import MetricsError
from sfapp.metrics import find_folders, read_segment, segments_in
from sfapp.metrics.sample_files import VERSION, SampleFileHeader, file_bytes, read_pieces, sample_lines
from sfapp.model.samples import ProcessSample

HEADER = SampleFileHeader(version=VERSION, run_id="run", every_s=1)


def process(second: int, rank: int = 0) -> ProcessSample:
    return ProcessSample(at_ns=second * 10**9, node_rank=0, rank=rank, rss_bytes=second)


def test_a_file_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(file_bytes(HEADER, [process(1)]))
    first = read_segment(path)
    assert first is not None
    assert (first.header, first.samples, first.is_last) == (HEADER, (process(1),), True)
    with path.open("ab") as file:
        file.write(sample_lines([process(2), process(3)]))
    second = read_segment(path, first.end)
    assert second is not None
    assert second.samples == (process(2), process(3))
    assert second.end == path.stat().st_size


@settings(max_examples=40)
@given(cut=st.integers(0, 400))
def test_an_incomplete_line_is_read_later(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.jsonl"
    whole = file_bytes(HEADER, [process(1), process(2), process(3)])
    path.write_bytes(whole[:cut])
    begun = read_segment(path)
    path.write_bytes(whole)
    rest = read_segment(path, 0 if begun is None else begun.end)
    assert rest is not None
    before = () if begun is None else begun.samples
    assert before + rest.samples == (process(1), process(2), process(3))
    assert rest.refused == (0 if begun is None else begun.refused) == 0


@given(invalid=st.binary(max_size=300))
def test_samples_are_found_around_invalid_lines(
    invalid: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("invalid") / "a.jsonl"
    path.write_bytes(file_bytes(HEADER, [process(1)]) + invalid + b"\n" + sample_lines([process(2)]))
    found = read_segment(path)
    assert found is not None
    assert found.samples == (process(1), process(2))


def test_invalid_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    deep = b"[" * 20_000
    path.write_bytes(
        file_bytes(HEADER, ()) + b'{"kind":"node"}\n' + deep + b"\n\xff\n" + sample_lines([process(1)])
    )
    found = read_segment(path)
    assert found is not None
    assert (found.refused, found.samples) == (3, (process(1),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"kind":"segment","version":2,"run_id":"a","every_s":1}\n', "format 2; this sfapp reads up to 1"),
        (b'{"kind":"segment","version":1,"run_id":"","every_s":1}\n', "not a sample header"),
        (b"invalid\n", "not a sample header"),
        (b"x" * 70_000, "not a sample header"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(text)
    with pytest.raises(MetricsError, match=message):
        read_segment(path)


def test_files_are_found_in_the_folders_of_runs(tmp_path: Path) -> None:
    for name in ("metrics/a.jsonl", "run/metrics/b.jsonl", "more/run/metrics/c.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "run" / "metrics" / ".b.jsonl.new").touch()
    (tmp_path / "run" / "other.jsonl").touch()
    found = segments_in(find_folders([tmp_path, tmp_path / "run", tmp_path / "gone"]))
    assert sorted(path.name for path in found) == ["a.jsonl", "b.jsonl", "c.jsonl"]


def test_a_folder_that_cannot_be_listed_hides_no_samples_of_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / name / "metrics").mkdir(parents=True)
    usual = os.scandir

    def scandir(path: Any) -> Any:
        if path == tmp_path / "a":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return usual(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert tmp_path / "b" / "metrics" in find_folders([tmp_path])


def test_a_link_that_cannot_be_followed_hides_no_samples_of_other_runs(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"link-{name}").symlink_to("x" * 300)
        (tmp_path / name / "metrics").mkdir(parents=True)
    assert find_folders([tmp_path]) == [tmp_path / name / "metrics" for name in "abc"]


def test_a_large_file_is_read_a_small_part_at_a_time(tmp_path: Path) -> None:
    # given 8 MB of samples
    path = tmp_path / "20260101T000000Z.jsonl"
    some = [ProcessSample(at_ns=at, node_rank=0, rank=7, rss_bytes=10**9) for at in range(10_000)]
    repeats = 8_000_000 // len(sample_lines(some)) + 1
    path.write_bytes(file_bytes(HEADER, ()) + sample_lines(some) * repeats)
    # when they are counted
    tracemalloc.start()
    count = sum(map(len, read_pieces(path)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # then a fraction of them was in memory
    assert count == 10_000 * repeats
    assert peak < 2e6
