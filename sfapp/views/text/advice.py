"""Advice for each stage: where to look, and what the timing of a broad stage cannot identify."""

from __future__ import annotations

from collections.abc import Mapping

from sfapp.model import BETWEEN, RECORDED_STAGES, RESIDUAL, broad_stage, stage_category
from sfapp.model.stages import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER

STAGE_MEANING: Mapping[str, str] = {
    BETWEEN: (
        "From the end of a rank's step to the start of its next one, without waits for batches: garbage "
        "collection, validation, checkpoints, loggers outside step(). One rank that is late here makes all "
        "others wait in the next step. Run gc.collect() on all ranks at the same step (or gc.freeze() after "
        "warm-up), write checkpoints asynchronously, and let all ranks validate together."
    ),
    DATA: "The wait for the next batch: loading, decoding, copying it to the device.",
    FORWARD: "Forward pass and loss, as the host sees them.",
    BACKWARD: "Backward pass; ranks that exchange gradients wait for each other in it.",
    CALLBACKS: "Callbacks within the step: logging, metrics, checkpoints.",
    OPTIMIZER: "The optimizer's step.",
    RESIDUAL: "The rest of the step, outside all named stages.",
}

_ROTATING: Mapping[str, str] = {
    "between": (
        "A different rank is late between its steps each time, so no single rank or node is at fault: look "
        "at garbage collections, which ranks start at different steps (run gc.collect() on all ranks at the "
        "same step), and at storage or services that all ranks share (checkpoints, loggers)."
    ),
    "data": (
        "A different rank is slowest in the data loader at each step, so no single rank or node is at "
        "fault: look "
        "at what all loaders share (storage, shared workers, sample sizes)."
    ),
    "forward": (
        "A different rank is slowest in forward at each step, so no single rank or node is at fault: look "
        "at what "
        "differs from batch to batch (sequence lengths, padding, expert routing)."
    ),
    "backward": (
        "A different rank is slowest in backward at each step, so no single rank or node is at fault: look "
        "at "
        "what differs from batch to batch, and at the network that all ranks share."
    ),
    "callbacks": (
        "A different rank is slowest in the callbacks at each step, so no single rank or node is at fault: "
        "look at "
        "what all ranks share there (logging service, checkpoint storage, locks)."
    ),
    "optimizer": (
        "A different rank is slowest in the optimizer at each step, so no single rank or node is at fault: "
        "look "
        "at what ranks share there (offloaded state, host memory, gradient clipping)."
    ),
    "other": (
        "A different rank is slowest in the unnamed rest of the step, so no single rank or node is at "
        "fault: look at garbage collection and at other jobs on the hosts."
    ),
}

_ONE_RANK: Mapping[str, str] = {
    "between": (
        "look at what it runs outside step(): garbage collection, validation, a checkpoint, a logger "
        "(gc.freeze() after warm-up, or one gc.collect() on all ranks at the same step, and asynchronous "
        "checkpoints keep ranks together)"
    ),
    "data": "look at its loader workers, its part of the data, and its host's disk and CPU",
    "forward": "look at its device clocks, its batch sizes, and what else runs on its host",
    "backward": "look at its device clocks and its network link",
    "callbacks": "look at work that only this rank does there (logging, metrics, checkpoints)",
    "optimizer": "look at its share of the optimizer state and its host's memory",
    "other": "look at the code between its named stages",
}

_ALL_RANKS: Mapping[str, str] = {
    "between": "look at what every rank runs outside step(): validation, checkpoints, logging, collections",
    "data": "look at the input pipeline as a whole: storage, decoding, number of workers",
    "forward": "look at the model and batch size: a change of code or shape slows all ranks equally",
    "backward": "look at the backward pass itself and at the gradient exchange",
    "callbacks": "look at the work that every rank does there",
    "optimizer": "look at the cost of the optimizer",
    "other": "name more stages: the time lies outside the named ones",
}

_COARSE: Mapping[str, str] = {
    "between": "what ran between the steps (garbage collection, validation, checkpoint or logger)",
    "data": "the part of loading (read, decode, collate or copy)",
    "forward": "the layer",
    "backward": "the layer or collective",
    "callbacks": "the callback",
    "optimizer": "the part of the optimizer step",
    "other": "the code that runs there",
}


def why_ranks_rotate(stage: str) -> str:
    """Return why no rank is named if the slowest rank keeps changing, and where to look instead."""
    return _ROTATING[stage_category(stage)]


def look_at_one_rank(stage: str) -> str:
    """Return where to look on the named rank, as the continuation of a sentence."""
    return _ONE_RANK[stage_category(stage)]


def look_at_all_ranks(stage: str) -> str:
    """Return where to look if all ranks spend the time equally, as the continuation of a sentence."""
    return _ALL_RANKS[stage_category(stage)]


def coarse(stage: str) -> str | None:
    """Return, as a noun, what the timing of a default stage cannot identify; None for a refined stage."""
    return _COARSE[stage_category(stage)] if broad_stage(stage) in RECORDED_STAGES else None
