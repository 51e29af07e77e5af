"""Describe the difference between the step-aligned and the carry-over frontier (accounting.md §7.5, §10)."""

from __future__ import annotations

from collections.abc import Mapping

from sfapp.model import Diagnosis, broad_stage
from sfapp.views import format

WORTH_A_SENTENCE = 0.05
"""Difference of shares up to which it is not mentioned, equal to the default of ηA."""

_WORTH_A_WORD = 0.02
"""Part of the mean step below which its difference is not mentioned."""


def frontier_difference(diagnosis: Diagnosis) -> str:
    """Return by how much step-aligned shares differ from carry-over ones and why, in one sentence.

    Empty if no share differs much. It depends on gates only through the suspect.
    """
    aligned, carried = _shares(diagnosis.advances_ns), _shares(diagnosis.carry_over_advances_ns)
    if diagnosis.ranks < 2 or not aligned or not carried:
        return ""
    if max(abs(aligned[stage] - carried[stage]) for stage in diagnosis.stages) <= WORTH_A_SENTENCE:
        return ""
    more = max(diagnosis.stages, key=lambda stage: aligned[stage] - carried[stage])
    less = min(diagnosis.stages, key=lambda stage: aligned[stage] - carried[stage])
    name = format.short_stage(more)
    size = f"{name} {format.percent(aligned[more])} instead of {format.percent(carried[more])}"
    return f"Step-aligned: {size}{_longer_step(diagnosis)}; {_why(diagnosis, more, less)}."


def _shares(advances_ns: Mapping[str, int] | None) -> dict[str, float]:
    total = sum((advances_ns or {}).values())
    return {stage: advance / total for stage, advance in (advances_ns or {}).items()} if total else {}


def _longer_step(diagnosis: Diagnosis) -> str:
    """Return the step-aligned mean step if it differs: a delay in only some steps counts in its own step and
    in the next one, in which other ranks wait."""
    step, mean = diagnosis.exposed_makespan_ns / diagnosis.steps, diagnosis.step_time.mean_ns
    if abs(step - mean) < _WORTH_A_WORD * mean:
        return ""
    return f", mean step {format.duration(step)} instead of {format.duration(mean)}"


def _why(diagnosis: Diagnosis, more: str, less: str) -> str:
    """Return where the carried-over delay arises, and where it appears instead."""
    aim, order = diagnosis.aim, diagnosis.stages
    wait = broad_stage(diagnosis.sync_boundary) if diagnosis.sync_boundary else None
    if wait is None or more != wait or order.index(less) <= order.index(wait):
        return "a delay in one step shows up in the next"
    late = "the rank that is late after the last sync"
    if diagnosis.needs_attention and aim is not None and aim.rank is not None and aim.stage == less:
        late = f"rank {aim.rank}, late {format.in_stage(less)} after the last sync,"
    return f"{late} shows up in the next step's {format.short_stage(wait)}"
