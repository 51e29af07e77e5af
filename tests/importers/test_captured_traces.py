"""A recorder's own trace of one rank: its steps alone, collectives numbered so that ranks' fit together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sfapp.errors import TraceError
from sfapp.importers.capture_converter import (
    COLLECTIVES_A_STEP,
    ConversionRequest,
    captured_operators,
    convert,
)
from sfapp.packets import read_operators
from sfapp.packets.paths import operators_path

US = 1000


def span(name: str, ts: float, dur: float, tid: int = 1, cat: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur}


def trace(path: Path, lacks: int | None = None) -> Path:
    """Three steps from 10 on, the last of them very short, two collectives in each."""
    events = []
    for place, (begin, length) in enumerate(((0, 1000), (1000, 1000), (2000, 10))):
        events.append(span(f"ProfilerStep#{10 + place}", begin, length))
        events.append(span("model.fwd_loss_cpu_wall", begin, 2))
        events.append(span("aten::mm", begin + 0.5, 1, cat="cpu_op"))
        for turn in range(2):
            if place != lacks or turn:
                events.append(span("gloo:all_reduce", begin + 3 + 2 * turn, 1, tid=9, cat="cpu_op"))
    events.append(span("aten::add", 5000, 1, cat="cpu_op"))  # in no step
    content = {"baseTimeNanoseconds": 10**18, "traceEvents": events}
    path.write_text(json.dumps(content))
    return path


def test_every_step_is_kept_however_short(tmp_path: Path) -> None:
    events = captured_operators(trace(tmp_path / "t.json"), 3, [10, 11, 12])
    assert events.ranks == (3,)
    assert events.steps == (10, 11, 12)
    assert "aten::add" not in {events.name(place) for place in range(len(events))}
    assert events.start_ns_E.min() == 10**18


def test_a_collective_that_one_rank_lacks_does_not_shift_those_of_later_steps(tmp_path: Path) -> None:
    whole = captured_operators(trace(tmp_path / "a.json"), 0, [10, 11, 12])
    lacking = captured_operators(trace(tmp_path / "b.json", lacks=0), 1, [10, 11, 12])
    numbers = [sorted(each.sequence_E[each.sequence_E >= 0].tolist()) for each in (whole, lacking)]
    assert numbers[0] == [step * COLLECTIVES_A_STEP + turn for step in (10, 11, 12) for turn in (0, 1)]
    assert numbers[1] == [numbers[0][0], *numbers[0][2:]]


def test_a_missing_step_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="lacks step 13"):
        captured_operators(trace(tmp_path / "t.json"), 0, [10, 13])


def test_each_window_has_a_file_of_its_own(tmp_path: Path) -> None:
    order = ConversionRequest(
        trace=str(trace(tmp_path / "t.json")),
        root=str(tmp_path),
        run_id="run",
        rank=2,
        window_of=[(10, 4), (11, 4), (12, 5)],
    )
    answer = convert(order)
    assert answer.files == ["00000004.rank2.ops.parquet", "00000005.rank2.ops.parquet"]
    found = [read_operators(operators_path(tmp_path, "run", window, 2)) for window in (4, 5)]
    assert [each.steps for each in found] == [(10, 11), (12,)]
    assert sum(len(each) for each in found) == answer.events


def test_the_process_reports_the_result(tmp_path: Path) -> None:
    order = {"trace": str(tmp_path / "none.json"), "root": str(tmp_path), "run_id": "run", "rank": 0}
    order |= {"window_of": [[1, 0]]}
    command = [sys.executable, "-m", "sfapp.importers.capture_converter"]
    done = subprocess.run(command, input=json.dumps(order).encode(), capture_output=True, timeout=60)
    assert done.returncode == 1
    assert "No such file" in json.loads(done.stdout)["why"]
