"""Assemble the files of one window into one matrix (packet.md, Rules).

After a failed gather every surviving rank writes its own part. Parts are merged without approximation: the
ranks only have to agree on step numbers and stage order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from sfapp.errors import PacketError
from sfapp.model import Manifest, RankTable, SideChannel, Window
from sfapp.model.arrays import to_numpy
from sfapp.model.manifest import Prefetch
from sfapp.model.window import NOT_MEASURED
from sfapp.packets.arrow_columns import IntArray
from sfapp.packets.read import Packet


@dataclass(frozen=True, slots=True)
class AssembledWindow:
    """Window merged from several files.

    Attributes:
        window: the merged window; its manifest lists missing ranks and files that did not fit.
        used: the packets it is built from, ascending by rank.
        odd_schema: packets left out because stages, world size or accumulation differ.
        odd_steps: packets left out because they share no step with the others.
    """

    window: Window
    used: tuple[Packet, ...]
    odd_schema: tuple[Packet, ...] = ()
    odd_steps: tuple[Packet, ...] = ()


def assemble(parts: Sequence[Packet]) -> Window:
    """Return the window of these parts; see ``merge`` for the rules.

    Raises:
        PacketError: no parts, parts of different windows, or two parts with the same rank.
    """
    return merge(parts).window


def merge(parts: Sequence[Packet]) -> AssembledWindow:
    """Merge files of one window that hold different ranks.

    - Files that differ in stages, world size or accumulation are not merged: those with most ranks are kept
      (ties: the lowest rank), the others are left out and the window has the fault ``schema_mismatch``.
    - If step numbers differ, the window is cut to the common steps and has the fault ``step_misaligned``.
      Files that leave no step in common are left out by the same rule.
    - ``missing_ranks`` is computed again from ``world_size``. The gather counts as completed once no rank is
      missing; its error stays in ``gather_error``.
    - Other fields come from the manifest of a whole window, or else of the lowest rank. Faults are added up,
      and prefetching is only as aligned as that of the worst rank. Conclusions of recorders on their own part
      are dropped.

    Raises:
        PacketError: no parts, parts of different windows, or two parts with the same rank.
    """
    _check_mergeable(parts)
    parts = sorted(parts, key=_first_rank)
    kept, odd_schema = _majority(parts, _schema)
    common = _common_steps(kept)
    odd_steps: list[Packet] = []
    if not len(common):
        kept, odd_steps = _majority(kept, lambda packet: tuple(packet.window.step_N.tolist()))
        common = _common_steps(kept)
    faults = []
    if odd_schema:
        faults.append("schema_mismatch")
    if odd_steps or any(len(packet.window.step_N) != len(common) for packet in kept):
        faults.append("step_misaligned")
    window = _merge_matrices([packet.window for packet in kept], common)
    base = next((packet for packet in kept if packet.part_rank is None), kept[0]).window.manifest
    manifest = _merge_manifests(base, [packet.window.manifest for packet in kept], window.ranks, faults)
    return AssembledWindow(
        replace(window, manifest=manifest), tuple(kept), tuple(odd_schema), tuple(odd_steps)
    )


def _check_mergeable(parts: Sequence[Packet]) -> None:
    if len({(packet.window.run_id, packet.window.number) for packet in parts}) != 1:
        raise PacketError("only the parts of one window of one run can be assembled")
    ranks = [rank for packet in parts for rank in packet.window.ranks.rank]
    if len(set(ranks)) != len(ranks):
        raise PacketError("two parts hold the same rank")


def _first_rank(packet: Packet) -> int:
    return packet.window.ranks.rank[0]


def _schema(packet: Packet) -> Hashable:
    """Return what must be equal in rows that are merged (accounting.md §9)."""
    manifest = packet.window.manifest
    return manifest.stages, manifest.world_size, manifest.accumulation


def _majority(
    parts: Sequence[Packet], key: Callable[[Packet], Hashable]
) -> tuple[list[Packet], list[Packet]]:
    """Return the parts whose key most ranks share (ties: the lowest rank's), and the others."""
    sharing: defaultdict[Hashable, list[Packet]] = defaultdict(list)
    for packet in parts:  # Ascending by rank, so that the first of several has the lowest rank.
        sharing[key(packet)].append(packet)
    chosen = max(sharing, key=lambda value: sum(len(packet.window.ranks) for packet in sharing[value]))
    return sharing[chosen], [packet for packet in parts if key(packet) != chosen]


def _common_steps(parts: Sequence[Packet]) -> IntArray:
    return reduce(np.intersect1d, (packet.window.step_N for packet in parts))


def _merge_matrices(windows: Sequence[Window], common: IntArray) -> Window:
    """Return one window of all these ranks on their common steps, ascending by rank, with the first one's
    manifest.
    """
    cut = [_on_steps(window, common) for window in windows]
    ranks = [window.ranks.identity(index) for window in cut for index in range(len(window.ranks))]
    order = np.argsort([identity.rank for identity in ranks], kind="stable")
    names = dict.fromkeys(name for window in cut for name in window.side)
    waited = dict.fromkeys(stage for window in cut for stage in window.waits)
    return replace(
        cut[0],
        duration_SNR=np.concatenate([window.duration_SNR for window in cut], axis=2)[:, :, order],
        wall_NR=np.concatenate([window.wall_NR for window in cut], axis=1)[:, order],
        ranks=RankTable.of(ranks),
        side={name: _merge_side([_side_of(window, name) for window in cut], order) for name in names},
        waits={
            stage: np.concatenate([_waits_of(window, stage) for window in cut], axis=1)[:, order]
            for stage in waited
        },
    )


def _on_steps(window: Window, steps: IntArray) -> Window:
    """Return the window cut to some of its steps."""
    if len(window.step_N) == len(steps):
        return window
    index = np.searchsorted(window.step_N, steps)
    return replace(
        window,
        duration_SNR=window.duration_SNR[:, index],
        wall_NR=window.wall_NR[index],
        step_N=steps,
        side={
            name: SideChannel(channel.value_NR[index], channel.sampled_NR[index])
            for name, channel in window.side.items()
        },
        waits={stage: wait_NR[index] for stage, wait_NR in window.waits.items()},
    )


def _waits_of(window: Window, stage: str) -> IntArray:
    found = window.waits.get(stage)
    return np.full(window.wall_NR.shape, NOT_MEASURED, dtype=np.int64) if found is None else to_numpy(found)


def _side_of(window: Window, name: str) -> SideChannel:
    """Return a window's side channel; one that the window lacks was never sampled."""
    channel = window.side.get(name)
    if channel is not None:
        return channel
    shape = window.wall_NR.shape
    return SideChannel(
        value_NR=np.full(shape, np.nan),
        sampled_NR=np.zeros(shape, dtype=np.bool_),
    )


def _merge_side(channels: Sequence[SideChannel], order: npt.NDArray[np.intp]) -> SideChannel:
    return SideChannel(
        value_NR=np.concatenate([channel.value_NR for channel in channels], axis=1)[:, order],
        sampled_NR=np.concatenate([channel.sampled_NR for channel in channels], axis=1)[:, order],
    )


def _merge_manifests(
    base: Manifest, manifests: Sequence[Manifest], ranks: RankTable, faults: Sequence[str]
) -> Manifest:
    present = set(ranks.rank)
    missing = tuple(rank for rank in range(base.world_size) if rank not in present)
    errors = (manifest.gather_error for manifest in manifests)
    return replace(
        base,
        missing_ranks=missing,
        gather_ok=not missing or all(manifest.gather_ok for manifest in manifests),
        gather_error=next((error for error in errors if error), None),
        prefetch=_worst_prefetch([manifest.prefetch for manifest in manifests]),
        faults=tuple(dict.fromkeys([*(fault for each in manifests for fault in each.faults), *faults])),
        labels=(),
    )


def _worst_prefetch(values: Sequence[Prefetch]) -> Prefetch:
    by_severity: tuple[Prefetch, ...] = ("unaligned", "unknown", "aligned")
    return next(value for value in by_severity if value in values)
