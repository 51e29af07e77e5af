"""Which hot path times steps: the compiled one where the package has it, else that in Python."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from sfapp.recorder.timing.timers import Clock, InPython, StepState

try:
    from sfapp.recorder.timing import _timers
except ImportError:  # built without a compiler, for another Python, or for what was here before
    _timers = None

IS_COMPILED = _timers is not None

COMPILED_VARIABLE = "SFAPP_COMPILED"
"""``off`` in the environment: time steps in Python though the compiled hot path is there."""


def times_in_c() -> bool:
    """Whether recorders that are made now time steps in C."""
    return IS_COMPILED and os.environ.get(COMPILED_VARIABLE, "").lower() != "off"


def new_state(
    clock: Clock,
    on_step: Callable[[int, int, bool], None],
    on_due: Callable[[], None],
    on_fault: Callable[[str, str], None],
    strict: bool = False,
) -> StepState:
    """The state of a recorder's steps; its arguments are those of ``StepState``."""
    kept_in = _timers.InC if times_in_c() else InPython
    return kept_in(clock, on_step, on_due, on_fault, strict)


def measure_costs(rounds: int = 200) -> tuple[int, int]:
    """What a step without stages costs on this machine now, and each stage in it, in ns: the overhead that no
    clock sees. In a loop, that is: between a model's kernels it is several times that."""
    state = new_state(
        time.perf_counter_ns, lambda begin, end, completed: None, lambda: None, lambda code, detail: None
    )
    state.use([{"stage": 0}], 1)
    state.next_page(rounds)
    step, stage = state.new_step(), state.by_name["stage"]
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
