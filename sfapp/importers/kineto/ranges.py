"""Map named ranges to stages, and do arithmetic on ranges of time."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sfapp.importers.mapping import Mapping
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

WRAPPED_FORWARD = (
    "DistributedDataParallel.forward",
    "FullyShardedDataParallel.forward",
    "DataParallel.forward",
    "CustomFSDP.forward",
)
"""Forward of the wrapped model only, without the loss; the last name is that of Megatron FSDP."""

_RANGES = (
    # PyTorch: torch/utils/data/dataloader.py, torch/nn/parallel, torch/distributed/fsdp,
    # torch/optim/optimizer.py; megatron/core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py.
    ("enumerate(DataLoader)#*__next__", DATA),
    *((name, FORWARD) for name in WRAPPED_FORWARD),
    ("Optimizer.step#*", OPTIMIZER),
    ("Optimizer.zero_grad#*", OPTIMIZER),
    # TorchRec: torchrec/distributed/train_pipeline, torchrec/metrics/metric_module.py.
    ("## load_batch ##", DATA),
    ("## next_batch ##", DATA),
    ("## wait_for_batch ##", DATA),
    ("## copy_batch_to_gpu ##", DATA),
    ("## *sparse_data_dist ##", SPARSE_DIST),
    ("## forward ##", FORWARD),
    ("## backward ##", BACKWARD),
    ("## emb_backward ##", BACKWARD),
    ("## optimizer ##", OPTIMIZER),
    ("## zero_grad ##", OPTIMIZER),
    ("## RecMetricModule:*", CALLBACKS),
    # Meta's trainers, in traces that HolisticTraceAnalysis publishes: tests/data/trace_filter; for
    # wait_for_training_batch tests/data/cpu_only at commit b8cce2c. The sdd_ ranges enclose TorchRec's
    # exchange of sparse features.
    ("## data_load ##", DATA),
    ("## wait_for_training_batch ##", DATA),
    ("## sdd_*", SPARSE_DIST),
    ("## metrics:*", CALLBACKS),
    ("## recmetrics_update ##", CALLBACKS),
    # TorchTNT: torchtnt/framework/train.py and auto_unit.py.
    ("train.next(data_iter)", DATA),
    ("*.train.next(data_iter)", DATA),
    ("*.train.move_data_to_device", DATA),
    # fairseq2: src/fairseq2/trainer.py.
    ("step_[0-9]*_[0-9]*_forward", FORWARD),
    ("step_[0-9]*_[0-9]*_backward", BACKWARD),
    ("step_[0-9]*_optimizer", OPTIMIZER),
    # Lightning's PyTorchProfiler: in src/lightning/pytorch profilers/pytorch.py, trainer/call.py and
    # loops/training_epoch_loop.py. "[[]" stands for an opening bracket.
    ("[[]pl][[]profile][[]*TrainingEpochLoop].train_dataloader_next", DATA),
    ("[[]pl][[]profile][[]Strategy]*.batch_to_device", DATA),
    ("[[]pl][[]profile][[]Strategy]*.training_step", FORWARD),
    ("[[]pl][[]profile][[]Strategy]*.backward", BACKWARD),
    ("[[]pl][[]profile][[]Callback]*", CALLBACKS),
)
"""Ranges that frameworks mark automatically, by source. They are disjoint: a name fits one stage only."""

_STAGE_PATTERNS = tuple(
    (stage, re.compile("|".join(fnmatch.translate(pattern) for pattern, of in _RANGES if of == stage)))
    for stage in dict.fromkeys(stage for _, stage in _RANGES)
)

_NUMBERED = re.compile(r"(## \w+) (?:[0-9]+|\?) ##")
"""A range of TorchRec with the number of its batch, since 2024: ``## forward 7 ##``."""

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
    numbered = _NUMBERED.fullmatch(name)
    plain = f"{numbered[1]} ##" if numbered else name
    return next((stage for stage, pattern in _STAGE_PATTERNS if pattern.match(plain)), None)


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


def outside_closures(ranges: Sequence[Range]) -> list[Range]:
    """Return the ranges, those of the optimizer without the forward and backward that they run.

    ``optimizer.step(closure)`` runs both inside its own range: Lightning's automatic optimization, LBFGS.
    """
    run = outermost(each for each in ranges if each.stage in (FORWARD, BACKWARD))
    steps = outermost(each for each in ranges if each.stage == OPTIMIZER)
    return [*(each for each in ranges if each.stage != OPTIMIZER), *without(steps, run)]


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
