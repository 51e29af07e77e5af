"""Map named ranges to stages, and do arithmetic on ranges of time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sfapp.importers.mapping import Mapping, fits
from sfapp.model.stages import (
    BACKWARD,
    CALLBACKS,
    DATA,
    DEFAULT_STAGES,
    FORWARD,
    OPTIMIZER,
    RESIDUAL,
    broad_stage,
)

SPARSE_DIST = "data.sparse_dist"
"""TorchRec's exchange of the next batch's sparse features: between forward and backward, or after the
optimizer."""

WRAPPED_FORWARD = ("DistributedDataParallel.forward", "FullyShardedDataParallel.forward")
"""Forward of the wrapped model only, without the loss."""

_RANGES = (
    ("enumerate(DataLoader)#*__next__", DATA),
    ("## load_batch ##", DATA),
    ("## wait_for_batch ##", DATA),
    ("## copy_batch_to_gpu ##", DATA),
    ("## *sparse_data_dist ##", SPARSE_DIST),
    ("## forward ##", FORWARD),
    *((name, FORWARD) for name in WRAPPED_FORWARD),
    ("## backward ##", BACKWARD),
    ("## optimizer ##", OPTIMIZER),
    ("## zero_grad ##", OPTIMIZER),
    ("Optimizer.step#*", OPTIMIZER),
    ("Optimizer.zero_grad#*", OPTIMIZER),
    ("## metrics:*", CALLBACKS),
)
"""Ranges that PyTorch's profiler and TorchRec's pipelines mark automatically."""

STEP = re.compile(r"ProfilerStep#(\d{1,18})\Z")
NODE = re.compile(r"autograd::engine::evaluate_function: ")
OLD_NODE = re.compile(r"(?!aten::)(?:torch::autograd::)?\w+(?:Backward\d*|AccumulateGrad)\Z")
"""A node of the backward pass; before the end of 2021 without an enclosing ``evaluate_function``."""

DEVICE_COLLECTIVE = re.compile(r"(?:nccl|rccl|mscclKernel)", re.IGNORECASE)
HOST_COLLECTIVE = re.compile(r"(?:gloo|mpi|ucc):")


def stage_of(name: str, mapping: Mapping) -> str | None:
    """Return the stage of a range: from the mapping, by a stage's own name, or from the ranges that tools
    mark.

    Empty if the mapping leaves it out, None if it is not a stage.
    """
    mapped = mapping.stage_of(name)
    if mapped is not None:
        return mapped
    if (broad := broad_stage(name)) in DEFAULT_STAGES and broad != RESIDUAL:
        return broad
    return next((stage for pattern, stage in _RANGES if fits(name, pattern)), None)


_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "barrier", "reduce")


def collective_kind(name: str) -> str:
    """Return the kind of collective in a kernel's or range's name: ``all_reduce``, ``all_to_all``, …"""
    text = name.split("(", 1)[0].lower().replace("_", "")
    for kind in _COLLECTIVES:
        if kind.replace("_", "") in text:
            return kind
    return "send_recv" if "sendrecv" in text else "collective"


@dataclass(frozen=True, slots=True)
class Range:
    """A range of one stage, ns."""

    start: int
    end: int
    stage: str


def outermost(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges that lie in no other, ascending; of two that overlap, the later is cut."""
    kept: list[Range] = []
    for each in sorted(ranges, key=lambda found: (found.start, -found.end)):
        if not kept or each.start >= kept[-1].end:
            kept.append(each)
        elif each.end > kept[-1].end:
            kept.append(Range(kept[-1].end, each.end, each.stage))
    return kept


def without(ranges: Sequence[Range], taken: Sequence[Range]) -> list[Range]:
    """Return the parts of ``ranges`` outside ``taken``; both ascending and disjoint."""
    left: list[Range] = []
    first = 0
    for each in ranges:
        begin = each.start
        while first < len(taken) and taken[first].end <= begin:
            first += 1
        for other in taken[first:]:
            if other.start >= each.end:
                break
            if other.start > begin:
                left.append(Range(begin, other.start, each.stage))
            begin = max(begin, other.end)
        if begin < each.end:
            left.append(Range(begin, each.end, each.stage))
    return left
