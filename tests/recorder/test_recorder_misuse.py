"""Misuse of one recorder: a fault in the packet, a warning in the log, an error only where strict."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfapp.errors import RecorderError
from sfapp.model import Accumulation
from sfapp.packets import read_windows
from sfapp.recorder import Recorder
from tests.builders import DATA, FORWARD, OTHER
from tests.recorder.clocked_recorder import Clock, only_window, recorder

pytestmark = pytest.mark.usefixtures("hot_path")


def nest_stages(perf: Recorder, clock: Clock) -> None:
    with perf.step(), perf.stage(FORWARD):
        with perf.stage(DATA):
            clock.tick(50)
        with perf.stage(FORWARD):  # inside itself
            clock.tick(30)
        clock.tick(20)


def nest_steps(perf: Recorder, clock: Clock) -> None:
    with perf.step():
        clock.tick(70)
        with perf.step(), perf.stage(FORWARD):
            clock.tick(100)


def open_an_unknown_stage(perf: Recorder, clock: Clock) -> None:
    with perf.step():
        with perf.stage("no.such"):
            clock.tick(50)
        with perf.stage(FORWARD):
            clock.tick(100)


def open_a_stage_named_by_a_list(perf: Recorder, clock: Clock) -> None:
    stage: Any = perf.stage
    with perf.step():
        with stage([DATA]):
            clock.tick(50)
        with perf.stage(FORWARD):
            clock.tick(100)


def open_a_stage_with_half_a_character(perf: Recorder, clock: Clock) -> None:
    with perf.step():
        with perf.stage("half \ud83d"):
            clock.tick(50)
        with perf.stage(FORWARD):
            clock.tick(100)


def begin_a_micro_step_without_a_number(perf: Recorder, clock: Clock) -> None:
    micro_step: Any = perf.micro_step
    with perf.step():
        for index in ("x", None, [0], 0.5):
            with micro_step(index), perf.stage(FORWARD):
                clock.tick(1)
        with perf.stage(FORWARD):
            clock.tick(100)


def reconfigure_with_something_else(perf: Recorder, clock: Clock) -> None:
    reconfigure: Any = perf.reconfigure
    reconfigure(stages=7)
    with perf.step(), perf.stage(FORWARD):
        clock.tick(100)


def reconfigure_with_half_a_character(perf: Recorder, clock: Clock) -> None:
    perf.reconfigure(stages=(DATA, "half \ud83d"))
    with perf.step(), perf.stage(FORWARD):
        clock.tick(100)


def reconfigure_with_a_role_of_half_a_character(perf: Recorder, clock: Clock) -> None:
    perf.reconfigure(role="half \ud83d")
    with perf.step(), perf.stage(FORWARD):
        clock.tick(100)


def open_a_stage_outside(perf: Recorder, clock: Clock) -> None:
    with perf.stage(DATA):
        clock.tick(5)
    with perf.step(), perf.stage(FORWARD):
        clock.tick(100)


def wrap_a_step_in_a_stage(perf: Recorder, clock: Clock) -> None:
    with perf.stage(DATA), perf.step(), perf.stage(FORWARD):
        clock.tick(100)


def turn_the_clock_back(perf: Recorder, clock: Clock) -> None:
    with perf.step():
        with perf.stage(DATA):
            clock.tick(-50)
        with perf.stage(FORWARD):
            clock.tick(100)


def reconfigure_with_the_residual(perf: Recorder, clock: Clock) -> None:
    perf.reconfigure(stages=(DATA, OTHER))
    with perf.step(), perf.stage(FORWARD):
        clock.tick(100)


def declare_a_wrapper_that_packets_do_not_have(perf: Recorder, clock: Clock) -> None:
    wrapper: Any = "deepspeed"
    perf.declare(wrapper=wrapper)
    with perf.step(), perf.stage(FORWARD):
        clock.tick(100)


def reconfigure_inside_a_step(perf: Recorder, clock: Clock) -> None:
    with perf.step(), perf.stage(FORWARD):
        perf.reconfigure(stages=(DATA,))
        clock.tick(100)


@pytest.mark.parametrize(
    ("misuse", "fault", "seen"),
    [
        (nest_stages, "nested_stages", DATA),
        (nest_steps, "nested_steps", ""),
        (open_an_unknown_stage, "unknown_stage", "no.such"),
        (open_a_stage_named_by_a_list, "unknown_stage", "list"),
        (open_a_stage_with_half_a_character, "unknown_stage", r"half \ud83d"),
        (begin_a_micro_step_without_a_number, "unknown_stage", f"{FORWARD}, in an undeclared"),
        (open_a_stage_outside, "stage_outside_step", DATA),
        (wrap_a_step_in_a_stage, "stage_outside_step", DATA),
        (turn_the_clock_back, "nonmonotonic_clock", DATA),
        (reconfigure_with_the_residual, "reconfigure_refused", "stages must be different names"),
        (declare_a_wrapper_that_packets_do_not_have, "reconfigure_refused", "wrapper must be one of"),
        (reconfigure_inside_a_step, "reconfigure_refused", "inside a step"),
        (reconfigure_with_something_else, "reconfigure_refused", "'int' object is not iterable"),
        (reconfigure_with_half_a_character, "reconfigure_refused", "a stage's name must be valid Unicode"),
        (
            reconfigure_with_a_role_of_half_a_character,
            "reconfigure_refused",
            "the role must be valid Unicode",
        ),
    ],
)
def test_misuse_is_a_fault_in_the_packet_and_never_an_error(
    tmp_path: Path, clock: Clock, misuse: Callable[[Recorder, Clock], None], fault: str, seen: str
) -> None:
    with recorder(tmp_path, clock) as perf:
        misuse(perf, clock)
    window = only_window(tmp_path)
    assert window.manifest.faults == (fault,)
    assert window.manifest.extra.get("faults_seen", {}).get(fault, "").startswith(seen)
    # what was recorded beside it is right: 100 ns of forward, and every row adds up
    assert window.duration_SNR[2, 0, 0] == 100
    assert int(window.duration_SNR.min()) >= 0
    if fault != "nonmonotonic_clock":
        assert window.duration_SNR.sum(axis=0).tolist() == window.wall_NR.tolist()


def test_a_strict_recorder_raises_where_a_stage_is_mistyped(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, strict=True) as perf:
        with (
            pytest.raises(RecorderError, match=rf"no stage is called 'model.bakward'.*{FORWARD}"),
            perf.step(),
        ):
            perf.stage("model.bakward")
        with perf.step(), perf.stage(OTHER):  # the residual may be named
            clock.tick(9)
    assert perf.failures == ()


def test_an_exchange_that_is_neither_true_nor_false_is_not_known(tmp_path: Path, clock: Clock) -> None:
    """As a comparison of tensors is that has several values."""
    neither: Any = np.array([True, False])
    with recorder(tmp_path, clock, accumulation=Accumulation(factor=2, sync="last")) as perf:
        for _ in range(2):
            with perf.step():
                for micro, sync in enumerate((False, neither)):
                    with perf.micro_step(micro, sync=sync), perf.stage(FORWARD):
                        clock.tick(100)
    window = only_window(tmp_path)
    assert len(window.step_N) == 2
    assert window.manifest.faults == ("accumulation_mixed",)
    assert perf.failures == ()


def test_a_log_that_fails_costs_the_training_nothing(tmp_path: Path, clock: Clock) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("no disk")

    log, broken = logging.getLogger("sfapp"), Broken()
    log.addFilter(broken)
    try:
        with recorder(tmp_path, clock) as perf, perf.step(), perf.stage("model.bakward"):
            clock.tick(1)
    finally:
        log.removeFilter(broken)
    assert only_window(tmp_path).manifest.faults == ("unknown_stage",)


def test_a_strict_recorder_raises_in_a_micro_step_that_was_not_declared(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, strict=True) as perf:
        with (
            pytest.raises(RecorderError, match=rf"{DATA!r} was entered in a micro-step that .*accumulation="),
            perf.step(),
            perf.micro_step(1),
        ):
            perf.stage(DATA)
        with perf.step(), perf.micro_step(0), perf.stage(DATA):
            clock.tick(9)
    assert perf.failures == ()


def test_a_mistake_in_the_loop_is_reported_in_the_log_once_and_in_every_packet(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with recorder(tmp_path, clock, window_steps=3) as perf:
        for _ in range(6):
            with perf.step(), perf.stage("model.bakward"):
                clock.tick(1)
    (warning,) = caplog.records
    assert (warning.name, warning.levelname) == ("sfapp", "WARNING")
    assert "that the recorder does not know" in warning.getMessage()
    assert "unknown_stage: model.bakward" in warning.getMessage()
    assert perf.failures == ()  # nothing is lost
    windows = [item.window for item in read_windows([tmp_path]).windows]
    assert [window.manifest.faults for window in windows] == [("unknown_stage",)] * 2
