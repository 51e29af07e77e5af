"""Gather windows' rows on rank 0, over the recorder's own process group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from sfapp.model.rank_table import RankIdentity
from sfapp.packets.compose import whole_draft
from sfapp.packets.job import JobInfo
from sfapp.packets.window_rows import STEP_COLUMN, WindowBuffer
from sfapp.recorder.transport.distributed_group import DistributedGroup
from sfapp.recorder.transport.gather_errors import GatherRefused
from sfapp.recorder.transport.gather_messages import (
    GatherHeader,
    GatherHello,
    GatherPlan,
    decode_block,
    decode_message,
    digest_of,
    faults_of,
    plan_of,
    to_block,
)
from sfapp.recorder.transport.transport_group import AgreedStart, GatherResult

if TYPE_CHECKING:
    from sfapp.packets import WindowDraft


@dataclass(frozen=True, slots=True, eq=False)
class GatheredWindow:
    """Every rank's rows of a window, on rank 0.

    Attributes:
        row_RNC: int64 [R, N, 2 + S + K] torch tensor, ranks ascending.
        channels: the K side channels whose bits the last columns hold.
        identities: identities of the R ranks, with their roles and coordinates in this window.
        faults: every rank's faults by code, with the lowest rank that has each.
    """

    row_RNC: Any
    channels: tuple[str, ...]
    identities: tuple[RankIdentity, ...]
    faults: dict[str, str]

    @property
    def objection(self) -> str:
        """Why these rows do not form a window; empty if they do."""
        steps_RN = self.row_RNC[:, :, STEP_COLUMN]
        return "ranks recorded different steps" if bool((steps_RN != steps_RN[0]).any()) else ""

    def draft(self, job: JobInfo, buffer: WindowBuffer, gather_ns: int) -> WindowDraft:
        """Return the window's draft; ``gather_ns`` is the time that gathering took."""
        return whole_draft(job, buffer, self.row_RNC.numpy(), self.channels, self.identities, gather_ns)


class GatherGroup(DistributedGroup):
    """Group that gathers every row of a window on rank 0, over Gloo."""

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
        self._identities: tuple[RankIdentity, ...] = ()

    def greet(self, identity: RankIdentity, run_id: str, next_window: int, next_step: int) -> AgreedStart:
        """Agree on the names of run and attempt (rank 0's) and on the next window and step (the highest).

        Raises:
            GatherFailed: a rank is gone or late.
        """
        mine = GatherHello.of(identity, run_id, next_window, next_step)
        blocks = self._collect(to_block(msgspec.json.encode(mine)))
        agreed = mine
        if blocks is not None:
            hellos = [decode_block(block, GatherHello) for block in blocks]
            self._identities = tuple(hello.identity for hello in hellos)
            agreed = msgspec.structs.replace(
                mine,
                next_window=max(hello.next_window for hello in hellos),
                next_step=max(hello.next_step for hello in hellos),
            )
        return decode_message(self._broadcast(msgspec.json.encode(agreed)), GatherHello).start

    def gather(self, buffers: Sequence[WindowBuffer]) -> tuple[int, list[GatherResult]]:
        """Gather windows on rank 0.

        Rows are sent only if all ranks have the same steps, stages and windows. This is nearly always the
        case, and sixteen bytes show it; otherwise rank 0 examines the first window's headers, and only this
        window is gathered.

        Returns:
            The number of windows gathered, from the first on, and on rank 0 the results.

        Raises:
            GatherRefused: ranks have different first windows, or different steps or stages in it.
            GatherFailed: a rank is gone or late.
        """
        headers = [GatherHeader.of(buffer) for buffer in buffers]
        if not self._is_equal(digest_of(headers)):
            del headers[1:]
            plans = [self._plan_together(headers[0])]
        else:
            empty = next((index for index, header in enumerate(headers) if not header.steps), len(headers))
            del headers[max(1, empty) :]  # An empty window is refused alone.
            plans = [plan_of([header]) for header in headers]
        if plans[0].objection:
            raise GatherRefused(plans[0].objection)
        channels = [plan.channels(buffer.schema.stages) for plan, buffer in zip(plans, buffers, strict=False)]
        found = self._rows(headers, buffers, channels)
        return len(headers), found

    def _is_equal(self, number: int) -> bool:
        """Return whether this number is equal on all ranks."""
        import torch

        highest, lowest = self._maximum(torch.tensor([number, -number])).tolist()
        return bool(highest == -lowest)

    def _plan_together(self, header: GatherHeader) -> GatherPlan:
        """Return rank 0's decision on headers that differ."""
        blocks = self._collect(to_block(msgspec.json.encode(header)))
        headers = [] if blocks is None else [decode_block(block, GatherHeader) for block in blocks]
        return decode_message(self._broadcast(msgspec.json.encode(plan_of(headers))), GatherPlan)

    def _rows(
        self, headers: Sequence[GatherHeader], buffers: Sequence[WindowBuffer], channels: Sequence[list[str]]
    ) -> list[GatherResult]:
        """Return, on rank 0, every rank's rows of each window that has a header; nothing on other ranks."""
        import torch

        blocks = [to_block(msgspec.json.encode(header)).view(torch.int64) for header in headers]
        rows = [
            torch.from_numpy(buffer.packed(names)) for buffer, names in zip(buffers, channels, strict=False)
        ]
        mine = [
            part for block, row_NC in zip(blocks, rows, strict=True) for part in (block, row_NC.flatten())
        ]
        everyone = self._collect(torch.cat(mine))
        if everyone is None:
            return []
        parts = iter(everyone.split([len(part) for part in mine], dim=1))
        return [
            self._gathered(next(parts), next(parts).unflatten(1, row_NC.shape), names)
            for row_NC, names in zip(rows, channels, strict=True)
        ]

    def _gathered(self, block_R: Any, row_RNC: Any, channels: Sequence[str]) -> GatherResult:
        import torch

        headers = [decode_block(block.view(torch.uint8), GatherHeader) for block in block_R]
        identities = tuple(
            replace(identity, role=header.role, coordinates=header.coordinates)
            for identity, header in zip(self._identities, headers, strict=True)
        )
        return GatheredWindow(row_RNC, tuple(channels), identities, faults_of(headers))
