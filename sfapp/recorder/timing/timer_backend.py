"""Choose between the compiled hot path and the same source in Python, and measure its cost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import ModuleType

from sfapp.compiled_modules import compiled_from
from sfapp.recorder.timing import hooks, timers
from sfapp.recorder.timing.hooks import CollectionTimer, WaitPage
from sfapp.recorder.timing.timers import Clock, StepState

COMPILED_VARIABLE = "SFAPP_COMPILED"
"""Environment variable; ``off`` selects Python even if the compiled hot path is available."""


_COMPILED, _COMPILED_HOOKS = compiled_from(timers), compiled_from(hooks)

IS_COMPILED = _COMPILED is not None


def times_in_c() -> bool:
    """Return whether new recorders use the compiled hot path."""
    return IS_COMPILED and os.environ.get(COMPILED_VARIABLE, "").lower() != "off"


def new_state(
    clock: Clock,
    on_step: Callable[[int, int, bool], None],
    on_due: Callable[[], None],
    on_fault: Callable[[str, str], None],
    strict: bool = False,
) -> StepState:
    """Return the state of a recorder's steps; arguments are those of ``StepState``."""
    module = _COMPILED if _COMPILED is not None and times_in_c() else timers
    state: StepState = module.StepState(clock, on_step, on_due, on_fault, strict)
    return state


def new_wait_page(state: StepState) -> WaitPage:
    """Return an empty page for the waits in the steps of a state from ``new_state``."""
    page: WaitPage = _hooks_for(state).WaitPage(state, 0)
    return page


def new_collection_timer(state: StepState) -> CollectionTimer:
    """Return a timer of garbage collections for a state from ``new_state``."""
    timer: CollectionTimer = _hooks_for(state).CollectionTimer(state)
    return timer


def _hooks_for(state: StepState) -> ModuleType:
    return hooks if _COMPILED_HOOKS is None or isinstance(state, timers.StepState) else _COMPILED_HOOKS


def measure_costs(rounds: int = 200) -> tuple[int, int]:
    """Measure the cost of a step without stages, and of each stage in it, on this machine, in ns.

    This is the overhead in a tight loop, which no recorded time includes; between a model's kernels it is
    several times larger.
    """
    state = new_state(
        time.perf_counter_ns, lambda begin, end, completed: None, lambda: None, lambda code, detail: None
    )
    state.use([{"stage": 0}], 1)
    state.next_page(rounds)
    step, stage = state.new_step(), state.find_stage("stage")
    begin = time.perf_counter_ns()
    for _ in range(rounds):
        with step:
            pass
    middle = time.perf_counter_ns()
    state.next_page(1)
    with step:
        for _ in range(rounds):
            with stage:
                pass
        end = time.perf_counter_ns()
    return (middle - begin) // rounds, (end - middle) // rounds
