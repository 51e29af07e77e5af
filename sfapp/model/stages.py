"""Stage names, their order and its hash (accounting.md §1, packet.md; paper Appendix A, Table 10)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

BETWEEN = "step.between_cpu_wall"
DATA = "data.next_wait"
FORWARD = "model.fwd_loss_cpu_wall"
BACKWARD = "model.backward_cpu_wall"
CALLBACKS = "callbacks.cpu_wall"
OPTIMIZER = "optim.step_cpu_wall"
RESIDUAL = "step.other_cpu_wall"

DEFAULT_STAGES = (DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER, RESIDUAL)
"""The six broad stages of the paper, in order; the residual closes the step."""

RECORDED_STAGES = (BETWEEN, *DEFAULT_STAGES)
"""What the recorder records by default: the time between steps before the stages of the step."""

FORWARD_EVENT = "model.fwd_loss_cuda_event_ms"
"""Side channel of sampled CUDA events around forward and loss, in milliseconds. Never in the prefix."""

MAX_NAME_LENGTH = 256
"""Longest name (stage, host, role, run) a packet may carry, in characters."""

MAX_STAGES = 4_096
"""Most stages that a packet may have, each micro-step counted; verdicts take time for each pair of stage and
rank."""

_MICRO_STEP = re.compile(r"(?P<broad>.+)\[(?P<index>[0-9]+)\]\Z", re.DOTALL)

# A stage's category decides its colour and its short name. Matched on the name's first part, so that
# refined schemas ('data.decode') belong to the family of the broad stage that they replace.
_CATEGORY_BY_PREFIX = {
    "data": "data",
    "callbacks": "callbacks",
    "callback": "callbacks",
    "optim": "optimizer",
    "optimizer": "optimizer",
}


def stage_hash(stages: Sequence[str]) -> str:
    """Return the SHA-256, hex, of the UTF-8 stage names joined by newlines (packet.md, manifest)."""
    return hashlib.sha256("\n".join(stages).encode()).hexdigest()


def broad_stage(stage: str) -> str:
    """Return the broad stage an accumulation-indexed stage belongs to: ``'a[3]'`` gives ``'a'``."""
    match = _MICRO_STEP.match(stage)
    return match["broad"] if match else stage


def broad_stages(stages: Sequence[str]) -> tuple[str, ...]:
    """Return the broad stages of an (expanded) ordered list, each once, in order of first appearance."""
    return tuple(dict.fromkeys(broad_stage(stage) for stage in stages))


def expand_stages(stages: Sequence[str], repeated: Sequence[str], factor: int) -> tuple[str, ...]:
    """Return the accumulation-expanded schema (accounting.md §9).

    The stages of ``repeated`` (contiguous in ``stages``) are repeated per micro-step:
    ``data[0], fwd[0], bwd[0], data[1], …``; the others stay once, in place.
    """
    repeated_set = set(repeated)
    expanded: list[str] = []
    done = False
    for stage in stages:
        if stage not in repeated_set:
            expanded.append(stage)
        elif not done:
            ordered = [name for name in stages if name in repeated_set]
            expanded.extend(f"{name}[{micro}]" for micro in range(factor) for name in ordered)
            done = True
    return tuple(expanded)


def with_between(stages: Sequence[str], between: bool) -> tuple[str, ...]:
    """Return the ordered stages with ``BETWEEN`` first, or without it; empty if there are no other stages."""
    others = tuple(stage for stage in stages if stage != BETWEEN)
    return (BETWEEN, *others) if between and others else others


def is_waiting_stage(stage: str) -> bool:
    """Return whether a stage is nothing but waiting for other ranks, as in traces: ``pipeline.wait``."""
    return broad_stage(stage).rpartition(".")[2] == "wait"


def stage_category(stage: str) -> str:
    """Return one of ``between, data, forward, backward, callbacks, optimizer, other``: the stage's family."""
    name = broad_stage(stage)
    if name.startswith("step.between"):
        return "between"
    if name.startswith("model."):
        if "fwd" in name or "forward" in name:
            return "forward"
        if "backward" in name or "bwd" in name:
            return "backward"
        return "other"
    return _CATEGORY_BY_PREFIX.get(name.split(".", 1)[0], "other")
