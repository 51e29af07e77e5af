"""What an operator can do about a stage: where to look, and what a broad stage cannot tell."""

from __future__ import annotations

from collections.abc import Mapping

from sfapp.model import DEFAULT_STAGES, broad_stage, stage_category

_ROTATING: Mapping[str, str] = {
    "data": (
        "Each step another rank is last out of the data loader, so no single rank or node is at fault: look "
        "at what all loaders share (storage, shared workers, sample sizes)."
    ),
    "forward": (
        "Each step another rank is last through forward, so no single rank or node is at fault: look at what "
        "differs from batch to batch (sequence lengths, padding, expert routing)."
    ),
    "backward": (
        "Each step another rank is last through backward, so no single rank or node is at fault: look at "
        "what differs from batch to batch, and at the network that all ranks share."
    ),
    "callbacks": (
        "Each step another rank is last out of the callbacks, so no single rank or node is at fault: look at "
        "what they all touch (logging service, checkpoint storage, locks)."
    ),
    "optimizer": (
        "Each step another rank is last through the optimizer, so no single rank or node is at fault: look "
        "at what ranks share there (offloaded state, host memory, gradient clipping)."
    ),
    "other": (
        "Each step another rank is last in the unnamed rest of the step, so no single rank or node is at "
        "fault: look at garbage collection and at other jobs on the hosts."
    ),
}

_ONE_RANK: Mapping[str, str] = {
    "data": "look at its loader workers, its part of the data, and its host's disk and CPU",
    "forward": "look at its device clocks, its batch sizes, and what else runs on its host",
    "backward": "look at its device clocks and its network link",
    "callbacks": "look at what it alone does there (logging, metrics, checkpoints)",
    "optimizer": "look at its share of the optimizer state and its host's memory",
    "other": "look at what runs between its named stages",
}

_ALL_RANKS: Mapping[str, str] = {
    "data": "look at the input pipeline as a whole: storage, decoding, number of workers",
    "forward": "look at the model and batch size: a change of code or shape slows every rank alike",
    "backward": "look at the backward pass itself and at the gradient exchange",
    "callbacks": "look at what every rank does there",
    "optimizer": "look at the optimizer's own cost",
    "other": "name more stages: the time lies outside the ones there are",
}

_COARSE: Mapping[str, str] = {
    "data": "which part of loading (read, decode, collate, copy)",
    "forward": "which layer",
    "backward": "which layer or collective",
    "callbacks": "which callback",
    "optimizer": "which part of the optimizer step",
    "other": "what runs there",
}


def why_ranks_rotate(stage: str) -> str:
    """Why no rank is named where the leader keeps changing, and where to look instead."""
    return _ROTATING[stage_category(stage)]


def look_at_one_rank(stage: str) -> str:
    """Where to look on the one rank that is named; continues a sentence."""
    return _ONE_RANK[stage_category(stage)]


def look_at_all_ranks(stage: str) -> str:
    """Where to look when every rank spends the time alike; continues a sentence."""
    return _ALL_RANKS[stage_category(stage)]


def coarse(stage: str) -> str | None:
    """What a default stage is too broad to tell; None for a refined stage."""
    return _COARSE[stage_category(stage)] if broad_stage(stage) in DEFAULT_STAGES else None
