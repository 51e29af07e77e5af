"""What a Kineto file costs in memory is bounded, whatever it holds."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kineto_job import Shape, write_job
from sfapp.importers import ImportOptions, ImportResult, read_traces
from sfapp.importers.kineto import event_columns
from sfapp.importers.kineto.processes import MAX_PROCESSES

MIB = 2**20
STEP = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 9}


def imported(path: Path) -> ImportResult:
    return read_traces("kineto", [path], ImportOptions())


def peak_of(path: Path) -> int:
    """The most bytes that an import holds at once."""
    tracemalloc.start()
    try:
        found = imported(path)
        assert found.windows
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def operator(name: str, ts: float = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 1}


def written(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"traceEvents": [STEP, *events]}))
    return path


def job(folder: Path, **shape: Any) -> Path:
    """One rank's file of a made-up job, unpacked so that its size is what is read."""
    (path,) = write_job(folder, Shape(ranks=1, steps=10, buckets=1, late_rank=-1, **shape), packed=False)
    return path


def test_memory_does_not_grow_with_the_text_of_the_events(tmp_path: Path) -> None:
    short, long = job(tmp_path / "short", layers=200), job(tmp_path / "long", layers=200, padding=10_000)
    assert long.stat().st_size > 8 * short.stat().st_size > 30 * MIB

    assert peak_of(long) < peak_of(short) + 4 * MIB


def test_memory_grows_by_the_numbers_of_an_event_and_no_more(tmp_path: Path) -> None:
    few, many = job(tmp_path / "few", layers=200), job(tmp_path / "many", layers=800)
    events = [len(path.read_text().splitlines()) for path in (few, many)]

    assert peak_of(many) - peak_of(few) < 200 * (events[1] - events[0])


def test_names_without_end_are_kept_in_part(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", *(operator(f"{number} " * MIB) for number in range(20)))
    assert path.stat().st_size > 40 * MIB

    assert peak_of(path) < 24 * MIB


def test_millions_of_empty_events_are_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [' + json.dumps(STEP).encode())
        for _ in range(10):
            file.write(b"," + b"{},\n" * (MIB // 4) + b"{}")
        file.write(b"]}")

    assert peak_of(path) < 96 * MIB


def test_millions_of_nested_objects_are_given_up_in_little_time(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [{"ph": "X", "args": ')
        for _ in range(12):
            file.write(b'{"a":' * MIB)
    code = (
        "import sys\nfrom pathlib import Path\nfrom sfapp.importers import *\n"
        "(refused,) = read_traces('kineto', [Path(sys.argv[1])], ImportOptions()).refused\n"
        "assert 'is not valid JSON' in refused.reason or 'cut off' in refused.reason, refused\n"
    )

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))

    subprocess.run([sys.executable, "-c", code, path], check=True, preexec_fn=limited)


def test_more_processes_than_a_file_can_have_are_refused(tmp_path: Path) -> None:
    steps = [{**STEP, "pid": pid} for pid in range(MAX_PROCESSES + 1)]
    (refused,) = imported(written(tmp_path / "a.json", *steps)).refused

    assert "steps of 1,025 processes" in refused.reason
    assert "import one file per process" in refused.reason


def test_importing_does_without_torch(tmp_path: Path) -> None:
    """It takes more memory than the events of eight ranks."""
    job(tmp_path / "job", layers=4)
    code = (
        "import sys\nfrom pathlib import Path\nfrom sfapp.importers import *\n"
        f"found = read_traces('kineto', [Path({str(tmp_path / 'job')!r})], ImportOptions())\n"
        f"write_imported(found, Path({str(tmp_path / 'packets')!r}))\n"
        "sys.exit('torch' in sys.modules)"
    )

    subprocess.run([sys.executable, "-c", code], check=True)

    assert len(list((tmp_path / "packets").rglob("*.parquet"))) == 2


def test_streams_with_the_same_name_are_one(tmp_path: Path) -> None:
    kernels = [operator("k") | {"cat": "kernel", "pid": 0, "tid": tid} for tid in ("7", "stream 7")]

    found = imported(written(tmp_path / "a.json", *kernels))

    operators = found.windows[0].operators
    assert operators is not None
    assert [lane.name for lane in operators.lanes] == ["stream 7 of device 0"]
    assert len(operators) == 2


@pytest.mark.parametrize(
    ("limit", "most", "reason", "place"),
    [
        ("MAX_EVENTS", 3, "more than 3 events: profile fewer steps", "event 5"),
        ("MAX_NAMES", 3, "more than 3 different names", None),
    ],
)
def test_more_than_can_be_held_is_refused_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, reason: str, place: str | None
) -> None:
    monkeypatch.setattr(event_columns, limit, most)
    written(tmp_path / "good.json")
    bad = written(tmp_path / "bad.json", *(operator(f"op {number}") for number in range(4)))

    found = read_traces("kineto", [tmp_path], ImportOptions())

    assert len(found.windows) == 1
    (error,) = found.refused
    assert (error.path, error.place) == (str(bad), place)
    assert reason in error.reason
