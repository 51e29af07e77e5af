"""Options of a recorder come in groups or as keywords, to the same effect."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfapp.errors import RecorderError
from sfapp.packets import read_windows
from sfapp.recorder import GatherOptions, JobOptions, Recorder, SideChannelOptions, WindowOptions
from sfapp.recorder.options import RECORDER_OPTIONS, RecorderKeywords, RecorderOptions


def options(**given: Any) -> RecorderOptions:
    groups = {name: given.pop(name, None) for name in ("job", "windows", "side_channels")}
    return RecorderOptions.of(gather=given.pop("gather", "gloo"), keywords=given, **groups)


def test_groups_and_keywords_are_the_same() -> None:
    grouped = options(
        job=JobOptions(run_id="run", wrapper="ddp"),
        windows=WindowOptions(window_steps=7, strict=True),
        gather=GatherOptions(gather="reduce", timeout=3.0),
        side_channels=SideChannelOptions(event_fraction=0.5),
    )
    assert grouped == options(
        run_id="run",
        wrapper="ddp",
        window_steps=7,
        strict=True,
        gather="reduce",
        timeout=3.0,
        event_fraction=0.5,
    )


def test_a_keyword_takes_precedence_over_its_group() -> None:
    found = options(job=JobOptions(run_id="a", wrapper="ddp"), run_id="b", max_pending=9)
    assert (found.job.run_id, found.job.wrapper, found.gather.max_pending) == ("b", "ddp", 9)


def test_every_field_of_a_group_is_a_keyword() -> None:
    groups = (JobOptions, WindowOptions, GatherOptions, SideChannelOptions)
    names = {field.name for group in groups for field in fields(group)}
    assert names - {"gather"} == set(RecorderKeywords.__annotations__)
    assert names <= RECORDER_OPTIONS


@pytest.mark.parametrize(
    "given",
    [
        {"window_steps": 0},
        {"first_step": -1},
        {"max_pending": 0},
        {"timeout": 0.0},
        {"gather": "mpi"},
        {"event_fraction": 1.5},
        {"event_fraction": "0.5"},
        {"window_steps": 1.5},
        {"window_steps": None},
        {"first_step": float("nan")},
        {"max_pending": float("nan")},
        {"max_pending": "4"},
        {"spool_bytes": float("inf")},
        {"timeout": None},
        {"timeout": float("nan")},
    ],
)
def test_values_that_cannot_work_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(RecorderError):
        options(**given)


def test_numbers_of_numpy_are_recorded_as_those_of_python(tmp_path: Path) -> None:
    """Whole ones of a few bytes would overflow, and a manifest cannot hold fractions."""
    given: dict[str, Any] = {"window_steps": np.int8(100), "first_step": np.int8(100)}
    given |= {"event_fraction": np.float32(0.5), "timeout": np.float32(3)}
    with Recorder(tmp_path, run_id="run", gather="local", **given) as perf:
        for _ in range(300):
            with perf.step(), perf.cuda_event_sample():
                pass
    assert perf.failures == ()
    assert perf.next_step == 400
    assert [len(item.window.step_N) for item in read_windows([tmp_path]).windows] == [100, 100, 100]


def test_an_unknown_keyword_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'windows_steps'"):
        Recorder(tmp_path, windows_steps=5)


def test_a_recorder_takes_groups(tmp_path: Path) -> None:
    with Recorder(
        tmp_path, job=JobOptions(run_id="run"), windows=WindowOptions(window_steps=2, stages=("one", "two"))
    ) as perf:
        for _ in range(2):
            with perf.step(), perf.stage("two"):
                pass
    assert perf.stages == ("step.between_cpu_wall", "one", "two")
    assert [path.relative_to(tmp_path) for path in perf.written] == [Path("run/00000000.parquet")]
