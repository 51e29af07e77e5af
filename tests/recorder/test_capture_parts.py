"""What bounds captures, piece by piece: the ring, the budget, the pace, the limits themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sfapp.errors import CaptureError
from sfapp.model.capture import CaptureLimits, RankCapture
from sfapp.model.manifest import Parallelism, RecorderInfo
from sfapp.packets.capture_mailbox import StepPace
from sfapp.packets.captures import new_request
from sfapp.packets.job import JobInfo, JobRank
from sfapp.recorder.capture import trace_converter
from sfapp.recorder.capture.budget import CaptureBudget
from sfapp.recorder.capture.profiler import Profiling
from sfapp.recorder.capture.trace_converter import CaptureQueue, ProfiledSteps, TraceConverter
from sfapp.recorder.identity import place_here
from sfapp.recorder.timing.timer_backend import new_state

pytestmark = pytest.mark.usefixtures("hot_path")


def captured(root: Path) -> ProfiledSteps:
    identity = place_here().identity()
    job = JobInfo(
        root=root,
        run_id="run",
        world_size=1,
        wrapper="other",
        parallelism=Parallelism(),
        prefetch="unknown",
        model_fit=False,
        recorder=RecorderInfo(),
    )
    state = new_state(lambda: 0, lambda begin, end, completed: None, lambda: None, lambda code, detail: None)
    return ProfiledSteps(new_request("run", [0]), Profiling(state), JobRank(identity, job))


def test_a_full_queue_drops_a_capture(tmp_path: Path) -> None:
    queue = CaptureQueue(2)
    one, two, three = (captured(tmp_path) for _ in range(3))
    assert [queue.put(each) for each in (one, two, three)] == [True, True, False]
    assert len(queue) == 2
    assert [queue.take(), queue.take(), queue.take()] == [one, two, None]


def test_a_recorder_holds_itself_to_cooldown_and_budget() -> None:
    limits = CaptureLimits(cooldown_seconds=10, per_hour=2, total_steps=7, total_bytes=100)
    budget = CaptureBudget(limits)
    assert budget.refusal(5, 0.0) == ""
    budget.begin(3, 0.0)
    budget.end(60, 1.0)
    assert "request again in 5 s" in budget.refusal(1, 6.0)
    assert "3 of at most 7 steps" in budget.refusal(5, 11.0)
    assert budget.refusal(4, 11.0) == ""
    budget.begin(3, 11.0)
    budget.end(50, 12.0)
    assert "2 captures per hour" in budget.refusal(1, 30.0)
    assert "110 of at most 100 bytes" in budget.refusal(1, 4000.0)


def test_a_step_is_named_that_lies_so_many_seconds_ahead() -> None:
    pace = StepPace()
    assert pace.ahead(4) is None
    pace.add(0.0, 100)
    pace.add(1.0, 150)
    assert pace.ahead(4) is None, "two looks so close say little"
    pace.add(2.0, 200)
    assert pace.ahead(4) == 200 + 4 * 50 + 2
    slow = StepPace()
    for second in range(40):
        slow.add(float(second), 7 + second // 20)
    assert slow.ahead(4) in (10, 11)


@pytest.mark.parametrize("wrong", [{"per_hour": -1}, {"longest_seconds": 0}, {"cooldown_seconds": -0.1}])
def test_limits_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(CaptureError):
        CaptureLimits(**wrong)


@pytest.mark.parametrize("wrong", [{"steps": -1}, {"windows": tuple(range(21))}, {"why": "x" * 301}])
def test_a_rank_s_word_is_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(CaptureError):
        RankCapture(rank=0, status="done", **wrong)


def test_a_trace_is_read_at_the_lowest_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'import json, os, sys; sys.stdin.read(); print(json.dumps({"niceness": os.nice(0)}))'
    monkeypatch.setattr(trace_converter, "_COMMAND", (sys.executable, "-c", script))
    answer = TraceConverter()._convert_in_child(captured(tmp_path), tmp_path, tmp_path / "trace.json")
    assert answer == {"niceness": 19}
