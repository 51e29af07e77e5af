"""Device evidence: sampled CUDA events around forward and loss, never part of the prefix (accounting.md
§7.8)."""

from __future__ import annotations

import numpy as np

from sfapp.accounting.leaders import Ints
from sfapp.model import FORWARD_EVENT, DeviceEvidence, Gates, Label, Window, broad_stage
from sfapp.model.arrays import to_numpy
from sfapp.model.stages import FORWARD

_NS_PER_MS = 1e6

_MOST_MS = 1e12
"""Longest event, 31 years: one that is longer or negative counts as not ready, as other evidence does."""


def device_evidence(window: Window, makespan_N: Ints) -> DeviceEvidence | None:
    """Return the evidence of the events, or None if the packet has no event channel or no forward stage.

    Args:
        makespan_N: F[S,t], int64 ns.
    """
    channel = window.side.get(FORWARD_EVENT)
    members = [index for index, stage in enumerate(window.stages) if broad_stage(stage) == FORWARD]
    if channel is None or not members:
        return None
    value_NR, sampled_NR = to_numpy(channel.value_NR), to_numpy(channel.sampled_NR)
    ready_NR = sampled_NR & (value_NR >= 0.0) & (value_NR <= _MOST_MS)
    sampled, ready = int(sampled_NR.sum()), int(ready_NR.sum())
    if not ready:
        return DeviceEvidence(sampled, ready, None, None)
    event_NR = np.where(ready_NR, value_NR, 0.0) * _NS_PER_MS
    has_event_N = ready_NR.any(axis=1)
    exposed = float(makespan_N[has_event_N].sum())
    forward_NR = to_numpy(window.duration_SNR[members].sum(axis=0))
    spent = float(forward_NR[ready_NR].sum())
    return DeviceEvidence(
        sampled=sampled,
        ready=ready,
        device_share=float(event_NR.max(axis=1).sum()) / exposed if exposed else None,
        host_ratio=float(event_NR.sum()) / spent if spent else None,
    )


def device_labels(
    evidence: DeviceEvidence,
    gates: Gates,
    routing: tuple[str, ...],
    forward_share: float,
    top_is_after_forward: bool,
) -> list[Label]:
    """Return the labels that the events support (§7.8)."""
    if evidence.ready < gates.min_event_samples or (
        evidence.sampled and evidence.ready / evidence.sampled < gates.min_event_ready
    ):
        return [Label("forward_event_scope_limited", ("too_few_events",))]
    found: list[Label] = []
    on_device = evidence.device_share is not None and evidence.device_share >= gates.gamma_dev
    if on_device and FORWARD in routing:
        found.append(Label("forward_device_supported"))
    if on_device and top_is_after_forward:
        found.append(Label("forward_spillover_suspected"))
    on_host = evidence.host_ratio is not None and evidence.host_ratio <= gates.gamma_host
    if FORWARD in routing and forward_share >= gates.gamma_dev and on_host:
        found.append(Label("forward_host_overhead_suspected"))
    return found
