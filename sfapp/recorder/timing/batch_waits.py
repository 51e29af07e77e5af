"""Move waits for batches between steps: time on the clock, and the CPU time in it (accounting.md §9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfapp.packets.window_rows import FIRST_STAGE_COLUMN

if TYPE_CHECKING:
    from sfapp.recorder.timing.timers import StepState


def take_held(state: StepState) -> int:
    """Move the wait for the beginning step's batch into its data stage, and return it.

    Where there is no data stage it stays in the residual.
    """
    held, state.held_ns, state.moved_ns = state.held_ns, 0, 0
    cpu, state.held_cpu, state.moved_cpu = state.held_cpu, 0, 0
    if held and state.held_column is not None:
        _add(state, FIRST_STAGE_COLUMN + state.held_column, held, cpu)
    return held


def charge(state: StepState, name: str, micro: int, waited: int, cpu: int) -> None:
    """Add time that the current step waited for its own batch, ``cpu`` of it CPU time; an open stage contains
    it already."""
    if state.open_stage is None:
        stage = state.stages[min(micro, len(state.stages) - 2)].get(name)
        if stage is not None:
            _add(state, stage.index, waited, cpu)


def hold(state: StepState, waited: int, cpu: int) -> None:
    """Add time between steps that is a wait for the next step's batch."""
    state.held_ns += waited
    state.held_cpu += cpu


def move_to_next_step(state: StepState, waited: int, cpu: int) -> None:
    """Move time that the current step waited for the next step's batch out of this step."""
    hold(state, waited, cpu)
    state.moved_ns += waited
    state.moved_cpu += cpu
    if state.open_stage is not None:
        state.open_stage.begin += waited
        state.open_stage.cpu_begin += cpu


def _add(state: StepState, index: int, ns: int, cpu: int) -> None:
    """Add to a cell of the current step's row, if it has one."""
    for page, spent in ((state.page, ns), (state.cpu_page, cpu)):
        if state.base + index < len(page):
            page[state.base + index] += spent
