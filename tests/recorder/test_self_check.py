"""A recorder that measures nothing says so once, with the remedy."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sfapp.packets.job import JobRank
from sfapp.packets.window_rows import WindowBuffer
from sfapp.recorder import self_check
from sfapp.recorder.self_check import SelfCheck
from sfapp.recorder.timing.timer_backend import new_state
from tests.recorder.clocked_recorder import Clock, recorder, train


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a recorder expect its first step at once, and poll fast."""
    monkeypatch.setattr(self_check, "PATIENCE_SECONDS", 0.0)


def warnings(caplog: pytest.LogCaptureFixture, seconds: float = 3.0) -> list[str]:
    """Return the warnings, of which one is awaited."""
    deadline = time.monotonic() + seconds
    while not caplog.records and time.monotonic() < deadline:
        time.sleep(0.01)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.usefixtures("impatient")
def test_a_loop_without_steps_gets_the_remedy(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with recorder(tmp_path, clock):
        (warning,) = warnings(caplog)
    assert "no step has been recorded" in warning
    assert "with perf.step():" in warning


def test_a_long_first_step_and_steps_timed_elsewhere_are_no_mistake(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def ignore(*_: object) -> None:
        pass

    for is_in_step, is_elsewhere in ((True, False), (False, True), (False, False)):
        state = new_state(clock, ignore, lambda: None, ignore)
        state.use([{"stage": 0}], 1)
        state.next_page(4)
        seconds = iter((0.0, 61.0, 122.0)).__next__
        check = SelfCheck(state, lambda: pytest.fail("it must not warn"), True, seconds)
        if is_elsewhere:
            check.expect_no_step()
        step = state.new_step()
        if is_in_step:
            step.__enter__()
        elif not is_elsewhere:
            state.number += 1
        check.look()
        check.look()
    assert caplog.records == []


def test_a_window_without_any_time_in_its_stages_is_a_mistake_once(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with recorder(tmp_path, clock) as perf:
        for _ in range(9):
            with perf.step():
                clock.tick(100)
    (warning,) = warnings(caplog)
    assert "the first window has 3 steps and no time in any stage" in warning
    assert "`with perf.stage(NAME):`" in warning
    assert "data.next_wait" in warning


@pytest.mark.parametrize(("rank", "count"), [("0", 1), ("1", 0)])
def test_a_rank_that_writes_alone_in_a_larger_job_warns_on_rank_0(
    tmp_path: Path,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    rank: str,
    count: int,
) -> None:
    for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    with recorder(tmp_path, clock) as perf:
        train(perf, clock, steps=9)
    found = warnings(caplog, 0.0)
    assert len(found) == count
    assert all("this rank of 8 writes its rows alone" in text for text in found)
    assert all("init_process_group" in text for text in found)


def test_parts_that_were_asked_for_are_no_mistake(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with recorder(tmp_path, clock, gather="local") as perf:
        train(perf, clock, steps=3)
    assert caplog.records == []


def test_the_check_never_raises(clock: Clock) -> None:
    class BrokenBuffer(WindowBuffer):
        def rows(self) -> object:  # type: ignore[override]  # a fault that no type checker would allow
            raise RuntimeError("no rows")

    def rank() -> JobRank:
        raise RuntimeError("no rank")

    perf = new_state(clock, lambda *_: None, lambda: None, lambda *_: None)
    check = SelfCheck(perf, rank, True, iter((0.0, 100.0)).__next__)
    check.look()
    broken = BrokenBuffer.__new__(BrokenBuffer)
    broken.filled = 1
    check.check_window(broken)
