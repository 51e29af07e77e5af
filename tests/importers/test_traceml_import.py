"""TraceML's database: a step is its step_time and the wait for data; and what a database may lack."""

from __future__ import annotations

import importlib.util
import json
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sfapp.importers import Mapping
from sfapp.model import RESIDUAL
from tests.importers.trace_files import diagnosed, imported, notes_of

DATA, FORWARD, BACKWARD = "data.next_wait", "model.fwd_loss_cpu_wall", "model.backward_cpu_wall"
INTERNAL = "_traceml_internal:"


def events(data: float, forward: float, backward: float, step: float, **more: float) -> dict[str, Any]:
    times = {"dataloader_next": data, "forward_time": forward, "backward_time": backward, "step_time": step}
    named = {INTERNAL + name: value for name, value in times.items()} | more
    return {
        name: {"cpu": {"cpu_ms": value, "duration_ms": value, "gpu_ms": None}}
        for name, value in named.items()
    }


def telemetry(
    folder: Path, rows: list[tuple[int, int, Any]], columns: str = "global_rank INTEGER, hostname TEXT"
) -> Path:
    path = folder / "telemetry"
    with sqlite3.connect(path) as file:
        file.execute(
            "CREATE TABLE step_time_samples (id INTEGER PRIMARY KEY, step INTEGER, events_json TEXT, "
            f"{columns})"
        )
        for step, rank, found in rows:
            text = found if isinstance(found, str) else json.dumps(found)
            file.execute(
                "INSERT INTO step_time_samples VALUES (NULL, ?, ?, ?, ?)", (step, text, rank, f"node-{rank}")
            )
    file.close()
    return path


def test_a_step_includes_the_wait_for_its_batch(tmp_path: Path) -> None:
    path = telemetry(tmp_path, [(1, 0, events(2, 3, 4, 10)), (1, 1, events(9, 3, 1, 5))])

    window = imported("traceml", path).windows[0].window

    assert window.stages == (DATA, FORWARD, BACKWARD, RESIDUAL)
    assert (window.duration_SNR[:, 0] // 1_000_000).tolist() == [[2, 9], [3, 3], [4, 1], [3, 1]]
    assert (window.wall_NR[0] // 1_000_000).tolist() == [12, 14]
    assert window.ranks.hostname == ("node-0", "node-1")
    assert window.run_id == tmp_path.name


def test_missing_tables_are_tolerated_and_unknown_events_noted(tmp_path: Path) -> None:
    path = telemetry(tmp_path, [(1, 0, events(2, 3, 4, 10, my_tokenizer=1.5))])

    found = imported("traceml", path)

    assert found.windows[0].window.manifest.wrapper == "other"
    notes = {note.what for note in notes_of(found)}
    assert "event 'my_tokenizer': the mapping assigns no stage to it" in notes
    assert "no event for optim.step_cpu_wall" in notes
    mapped = imported("traceml", path, Mapping(ranges={"my_*": "data.tokenize"}))
    assert mapped.windows[0].window.stages[:2] == (DATA, "data.tokenize")


def test_a_step_that_came_twice_counts_once(tmp_path: Path) -> None:
    path = telemetry(tmp_path, [(1, 0, events(1, 1, 1, 3)), (1, 0, events(2, 3, 4, 10))])

    window = imported("traceml", path).windows[0].window

    assert (window.duration_SNR[:, 0, 0] // 1_000_000).tolist() == [2, 3, 4, 3]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((1, 0, events(-2, 3, 4, 10)), "took -2 ms"),
        ((1, 0, "{"), "events_json"),
        ((1, 0, {"x": {"cpu": {"cpu_ms": "fast"}}}), "events_json"),
        ((1, 0, {}), "no step time"),
        ((1, -4, events(2, 3, 4, 10)), "not both whole numbers"),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(
    tmp_path: Path, row: tuple[int, int, Any], reason: str
) -> None:
    path = telemetry(tmp_path, [(1, 1, events(1, 1, 1, 3)), row])

    (error,) = imported("traceml", path).refused

    assert reason in error.reason
    assert (error.path, error.place) == (str(path), "table step_time_samples, id 2")


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "telemetry") as file:
        file.execute("CREATE TABLE t (a)")
    file.close()

    assert "is not a TraceML database" in imported("traceml", tmp_path).refused[0].reason


def test_missing_columns_are_named(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "telemetry") as file:
        file.execute("CREATE TABLE step_time_samples (id INTEGER, step INTEGER)")
    file.close()

    assert "no column 'events_json'" in imported("traceml", tmp_path).refused[0].reason


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@pytest.mark.torchrun
def test_a_real_job_under_traceml_shows_the_slow_reader(tmp_path: Path) -> None:
    if importlib.util.find_spec("traceml_ai") is None:
        pytest.skip("needs TraceML (sfapp[bench])")
    script = Path(__file__).with_name("traceml_job.py")
    command = [sys.executable, "-m", "traceml_ai.launcher.cli", "run", str(script), "--nproc-per-node=2"]
    command += [f"--logs-dir={tmp_path}", "--run-name=job", f"--master-port={free_port()}"]
    command += [f"--aggregator-port={free_port()}", "--finalize-timeout-sec=30"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)
    output = done.stdout[-2000:] + done.stderr[-2000:]
    if done.returncode and "aggregator" in output.lower() and not list(tmp_path.rglob("telemetry")):
        pytest.skip("TraceML's own aggregator did not start in time on this machine")
    assert done.returncode == 0, output

    found = imported("traceml", tmp_path)

    (diagnosis,) = diagnosed(found, tmp_path / "out")
    assert (diagnosis.run_id, diagnosis.ranks, diagnosis.steps) == ("job", 2, 12)
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank) == (DATA, 1)
    manifest = found.windows[0].window.manifest
    assert (manifest.wrapper, manifest.recorder.backend) == ("ddp", "gloo")
