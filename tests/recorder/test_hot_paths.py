"""The compiled hot path leaves what the one in Python leaves, whatever a trainer does."""

from __future__ import annotations

import contextlib
import shutil
import sys
import sysconfig
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfapp.compiled_modules import compiled_from
from sfapp.errors import RecorderError
from sfapp.packets import page_sizes
from sfapp.packets.window_rows import FIRST_STAGE_COLUMN
from sfapp.recorder.timing import hooks, timer_backend, timers
from sfapp.recorder.timing.batch_waits import move_to_next_step
from sfapp.recorder.timing.contexts import MicroStep
from sfapp.recorder.timing.host_counters import host_row, thread_usage
from sfapp.recorder.timing.timers import CPU_SLACK_NS
from tests.builders import DATA, FORWARD
from tests.recorder.clocked_recorder import Clock

compiled = pytest.mark.skipif(
    not timer_backend.IS_COMPILED, reason="this installation has no compiled hot path"
)

STAGES = (DATA, FORWARD)
MICRO_STEPS = 2

Action = tuple[str, int]
ACTIONS = st.tuples(
    st.sampled_from(
        (
            *("step", "stage", "leave", "tick") * 3,
            *("fail", "micro", "held", "moved", "stock", "side", "sync", "left", "kept", "use", "choose"),
            *("work", "collect"),
            *("evidence", "blocked", "gradient", "exchanged"),
        )
    ),
    st.integers(-3, 50),
)


def played(path: str, actions: Sequence[Action], strict: bool) -> list[object]:
    """What a trainer's actions leave: rows, faults and calls, in order."""
    # Long because each action is a function over the same state.
    clock, cpu, seen = Clock(), Clock(), []
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(timer_backend.COMPILED_VARIABLE, path)
        state = timer_backend.new_state(
            clock,
            lambda begin, end, completed: finish(begin, end, completed),
            lambda: turn(),
            lambda code, detail: seen.append((code, detail)),
            strict,
        )
    state.held_column = 0
    state.record_cpu(cpu)
    state.reads_host, state.gc_ns = True, 0
    state.on_host, state.host_due = (lambda end: seen.append(("host", end))), 1_100

    def use(columns: int) -> None:
        column_of = [{DATA: micro % columns, FORWARD: columns - 1} for micro in range(MICRO_STEPS)]
        state.use(column_of, columns + 1, columns if columns != 2 else None)
        turn()

    def turn() -> None:
        """As a window does: take in what there is, and begin a page of two steps."""
        seen.append(("due", state.number, list(state.page[: state.base])))
        seen.append((list(state.cpu_page), list(state.host_page)))
        state.next_page(2)
        state.due = state.number + 2

    use(3)
    waits = timer_backend.new_wait_page(state)
    waits.clear(2 * state.width)
    waits.mark_end_of_backward(lambda callback: seen.append("queued"))

    def finish(begin: int, end: int, completed: bool) -> None:
        seen.append((begin, end, completed, dict(state.side), list(state.syncs), state.spent()))
        if completed and end >= begin:
            state.add_row(end - begin)
        else:
            state.clear_row()
        state.number += 1

    step, kept = state.new_step(), state.find_stage(DATA)
    micros = [MicroStep(state, micro) for micro in range(MICRO_STEPS + 1)]
    open_: list[Any] = []

    def enter(context: Any) -> None:
        with contextlib.suppress(RecorderError):
            context.__enter__()
            open_.append(context)

    def enter_stage(name: str) -> None:
        with contextlib.suppress(RecorderError):  # strict, in a micro-step that was not declared
            enter(state.find_stage(name))

    def leave(kind: type[BaseException] | None = None) -> None:
        if open_:
            open_.pop().__exit__(kind, None, None)

    def put(name: str, value: Any) -> None:
        setattr(state, name, value)

    do: dict[str, Callable[[int], object]] = {
        "step": lambda n: enter(step),
        "stage": lambda n: enter_stage(STAGES[n % 2]),
        "leave": lambda n: leave(),
        "fail": lambda n: leave(ValueError),
        "left": lambda n: step.__exit__(None, None, None),  # though it may never have been entered
        "kept": lambda n: enter(kept),  # which may be of a schema that is gone
        "use": lambda n: not state.in_step and use(1 + abs(n) % 3),
        "choose": lambda n: state.use_timers([dict(stages) for stages in reversed(state.stages)]),
        "micro": lambda n: enter(micros[n % len(micros)]),
        "tick": lambda n: clock.tick(n * CPU_SLACK_NS // 10),
        "work": cpu.tick,
        "collect": lambda n: put("gc_ns", state.gc_ns + abs(n)),
        "held": lambda n: (put("held_ns", abs(n)), put("held_cpu", abs(n) // 2)),
        "moved": lambda n: state.in_step and move_to_next_step(state, abs(n), abs(n) // 2),
        "stock": lambda n: put("unused_batches", abs(n) % 4),
        "side": lambda n: state.in_step and state.side.update(loss=n),
        "sync": lambda n: state.in_step and state.syncs.append(n > 0),
        "evidence": lambda n: (put("evidence_steps", 1 + abs(n) % 3), put("evidence_ns", 10 * abs(n))),
        "blocked": lambda n: waits.was_blocked(n),
        "gradient": lambda n: waits.gradient_is_ready(None),
        "exchanged": lambda n: waits.backward_has_ended(),
    }
    for name, value in actions:
        do[name](value)
        if name == "fail":
            put("report_due", state.number + value)
    turn()
    left = [
        state.in_step,
        state.number,
        state.ended,
        state.nested_ns,
        state.held_ns,
        state.held_cpu,
        state.cpu_ended,
        state.times_cpu,
        state.unused_batches,
        state.has_refused,
    ]
    waited = [list(waits.blocked), list(waits.own), list(waits.exchanged)]
    return [*seen, state.spent(), host_row(state), waited, left]


def test_an_installation_is_compiled_wherever_it_can_be() -> None:
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    if not sys.platform.startswith("linux") or shutil.which("cc") is None or not header.exists():
        pytest.skip("there is no C compiler here, or Python's headers are not installed")
    assert timer_backend.IS_COMPILED
    assert compiled_from(hooks) is not None
    assert compiled_from(page_sizes) is not None


@compiled
@settings(max_examples=500)
@given(st.lists(ACTIONS, min_size=20, max_size=80), st.booleans())
def test_both_leave_the_same_whatever_is_done(actions: list[Action], strict: bool) -> None:
    assert played("on", actions, strict) == played("off", actions, strict)


@compiled
def test_it_reads_the_clock_that_python_reads() -> None:
    state = timer_backend.new_state(
        time.perf_counter_ns, lambda *step: None, lambda: None, lambda *seen: None
    )
    state.use([{DATA: 0}], 1)
    before = time.perf_counter_ns()
    with state.new_step(), state.find_stage(DATA):
        begun = time.perf_counter_ns()
        time.sleep(0.01)
        over = time.perf_counter_ns()
    after = time.perf_counter_ns()
    number, wall, data = state.page[: FIRST_STAGE_COLUMN + 1]
    assert number == 0
    assert over - begun <= data <= wall <= after - before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counters of a thread exist on Linux")
@pytest.mark.parametrize("path", ["on", "off"])
def test_both_read_the_cpu_time_and_the_counters_of_the_thread(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(timer_backend.COMPILED_VARIABLE, path)
    schedstat = tmp_path / "schedstat"
    schedstat.write_text("123 456789 7\n")
    state = timer_backend.new_state(
        time.perf_counter_ns, lambda *step: None, lambda: None, lambda *seen: None
    )
    state.record_cpu(time.thread_time_ns)
    state.reads_host = state.reads_usage = True
    state.use([{DATA: 0, FORWARD: 1}], 2)
    state.next_page(2)
    before = thread_usage()
    with schedstat.open("rb") as file:
        state.schedstat = file.fileno()
        with state.new_step():
            with state.find_stage(DATA):
                time.sleep(0.02)
            begun = time.perf_counter_ns()
            with state.find_stage(FORWARD):
                until = time.perf_counter() + 0.01
                while time.perf_counter() < until:
                    pass
            over = time.perf_counter_ns()
    after = thread_usage()
    _, wall, waited, worked = state.cpu_page[:4]
    assert waited < 0.5 * state.page[2]
    assert worked <= over - begun + CPU_SLACK_NS  # the CPU time is read right after the stage's clock
    assert waited + worked <= wall
    collected, runnable, *counted = state.host_page[:6]
    assert (collected, runnable) == (-1, 456_789)
    assert all(low <= value <= high for low, value, high in zip(before, counted, after, strict=True))
    assert counted[0] > before[0]  # It slept.


@compiled
def test_its_page_is_replaced_by_next_page_alone() -> None:
    state = timer_backend.new_state(Clock(), lambda *step: None, lambda: None, lambda *seen: None)
    for name in ("page", "cells", "cpu_page", "cpu_cells", "host_page", "host_cells"):
        with pytest.raises(AttributeError):
            setattr(state, name, array("q", bytes(8)))


def test_a_module_compiled_from_another_source_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "timers.py"
    changed.write_bytes(Path(timers.__file__).read_bytes() + b"# changed\n")
    monkeypatch.setattr(timers, "__file__", str(changed))
    assert compiled_from(timers) is None
