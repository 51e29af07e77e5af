"""Gather windows' rows on rank 0, over a process group of the recorder's own.

The group is separate from training's, so that neither waits for the other's collectives. Every operation is
started asynchronously and polled from Python with a deadline, so that a peer that is gone or stuck never
blocks this process in native code, not even while the interpreter shuts down. After a failed operation the
connections are in an unknown state; ``successor`` makes new ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from sfapp.errors import describe_error
from sfapp.model.window import RankIdentity
from sfapp.packets.compose import whole_draft
from sfapp.packets.job import JobInfo
from sfapp.packets.window_rows import STEP_COLUMN, WindowBuffer
from sfapp.recorder.transport.errors import GatherFailed, GatherRefused
from sfapp.recorder.transport.gather_messages import (
    GatherHeader,
    GatherHello,
    GatherPlan,
    WriteReport,
    decode_block,
    decode_message,
    digest_of,
    faults_of,
    from_block,
    plan_of,
    to_block,
)
from sfapp.recorder.transport.transport_group import AgreedStart, GatherResult

if TYPE_CHECKING:
    from sfapp.packets import WindowDraft

_SHORTEST_POLL, _LONGEST_POLL = 0.0005, 0.02  # Seconds between two polls of an operation.

_MAX_REASONS = 900
"""Most characters that the reasons of a ``WriteReport`` take together."""


@dataclass(frozen=True, slots=True, eq=False)
class GatheredWindow:
    """Every rank's rows of a window, on rank 0.

    Attributes:
        row_RNC: int64 [R, N, 2 + S + K] torch tensor, ranks ascending.
        channels: the K side channels whose bits the last columns hold.
        identities: of the R ranks, with their roles in this window.
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


class GatherGroup:
    """The recorder's own process group.

    ``greet``, ``gather`` and ``confirm`` are collective: all ranks call them, in one order, from one thread.

    Attributes:
        needs_training_thread: whether that must be the training thread. NCCL's operations on one device must
            come in one order on all ranks, whatever their group, and not from several threads at once.
        batch_size: how many windows are to be gathered at once from now on; the same on all ranks.
    """

    takes_several = True
    """Whether several windows can be gathered at once."""

    def __init__(self, timeout: float, backend: str = "gloo") -> None:
        """Make the group over ``gloo`` or ``nccl``; collective over all ranks of the job.

        Making it has the training group's timeout, so that ranks may arrive as far apart as training allows.
        Every later operation takes at most ``timeout`` seconds.
        """
        import torch
        import torch.distributed as dist

        self._dist = dist
        self._group: Any = dist.new_group(backend=backend)
        self._backend = backend
        self.needs_training_thread = backend == "nccl"
        # Key under which a successor's ranks find each other, and how long they wait for that.
        self._rendezvous, self._rendezvous_seconds = "", timeout
        # NCCL transfers device memory only.
        self._device = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else "cpu"
        self._timeout = timeout
        self._cancelled = threading.Event()
        self._cancel_reason = ""
        self._unfinished: list[Any] = []  # Abandoned operations, with the memory they write to.
        self._is_busy = False
        self._identities: tuple[RankIdentity, ...] = ()
        self.batch_size = 1
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.training_backend = str(dist.get_backend())

    def greet(self, identity: RankIdentity, run_id: str, next_window: int, next_step: int) -> AgreedStart:
        """Agree on the run's name and the attempt's (rank 0's), and its next window and step (the highest).

        Raises:
            GatherFailed: a rank is gone or late.
        """
        mine = GatherHello.of(identity, run_id, next_window, next_step)
        blocks = self._collect(to_block(msgspec.json.encode(mine)))
        agreed = mine
        if blocks is not None:
            hellos = [decode_block(block, GatherHello) for block in blocks]
            self._identities = tuple(
                RankIdentity(hello.rank, hello.local_rank, hello.node_rank, hello.hostname)
                for hello in hellos
            )
            agreed = msgspec.structs.replace(
                mine,
                next_window=max(hello.next_window for hello in hellos),
                next_step=max(hello.next_step for hello in hellos),
            )
        return decode_message(self._broadcast(msgspec.json.encode(agreed)), GatherHello).start

    def successor(self, rendezvous: str, seconds: float) -> GatherGroup | None:
        """Return a group of the same ranks with new connections, which its first gather makes.

        None over NCCL, whose communicators only training may make.

        Args:
            rendezvous: key under which the ranks find each other.
            seconds: how long they wait for each other.
        """
        if self._backend == "nccl":
            return None
        successor = copy(self)
        successor._group, successor._rendezvous = None, rendezvous
        successor._rendezvous_seconds = min(seconds, self._timeout)
        successor._cancelled, successor._cancel_reason, successor._unfinished = threading.Event(), "", []
        successor._is_busy, successor.batch_size = False, 1
        return successor

    def gather(self, buffers: Sequence[WindowBuffer]) -> tuple[int, list[GatherResult]]:
        """Gather windows on rank 0.

        Rows are sent only where all ranks have the same steps of the same stages of the same windows. That is
        nearly always so, and sixteen bytes show it; otherwise rank 0 examines the first window's headers,
        and only this window is gathered.

        Returns:
            How many windows were gathered, from the first on, and the results, on rank 0.

        Raises:
            GatherRefused: ranks have different first windows, or different steps or stages in it.
            GatherFailed: a rank is gone or late.
        """
        self._connect()
        headers = [GatherHeader.of(buffer) for buffer in buffers]
        if not self._is_equal(digest_of(headers)):
            del headers[1:]
            plans = [self._plan_together(headers[0])]
        else:
            empty = next((index for index, header in enumerate(headers) if not header.steps), len(headers))
            del headers[max(1, empty) :]  # An empty window is refused, alone.
            plans = [plan_of([header]) for header in headers]
        if plans[0].objection:
            raise GatherRefused(plans[0].objection)
        found = self._rows(headers, buffers, [plan.side for plan in plans])
        return len(headers), found

    def confirm(self, reasons: Sequence[str], batch_size: int = 1) -> list[str]:
        """Send rank 0's outcome of writing to all ranks, and return it.

        Args:
            reasons: on rank 0, for each window why it is not on disk, empty if it is.
            batch_size: on rank 0, how many windows are to be gathered at once from now on.

        Raises:
            GatherFailed: the report did not arrive.
        """
        mine = WriteReport([reason[: _MAX_REASONS // len(reasons)] for reason in reasons], batch_size)
        report = decode_message(self._broadcast(msgspec.json.encode(mine)), WriteReport)
        self.batch_size = report.batch_size
        return report.reasons

    def give_up(self, reason: str) -> None:
        """Make the operation in progress and all later ones fail at once; from any thread."""
        self._cancel_reason = self._cancel_reason or reason
        self._cancelled.set()
        if self._is_busy:
            self._keep_alive()

    # ---- operations -----------------------------------------------------------------------------

    def _connect(self) -> None:
        """Make the connections of a successor, once all ranks have arrived; Python waits for that.

        Raises:
            GatherFailed: a rank is gone or late.
        """
        if self._group is not None:
            return
        deadline = time.monotonic() + self._rendezvous_seconds
        poll = _SHORTEST_POLL
        try:
            # There is no public access to the store through which the job's ranks found each other.
            store = self._dist.distributed_c10d.PrefixStore(
                f"sfapp/{self._rendezvous}", self._dist.distributed_c10d._get_default_store()
            )
            store.add("here", 1)
            while store.add("here", 0) < self.world_size:
                if self._cancelled.wait(poll):
                    raise GatherFailed(self._cancel_reason)
                if time.monotonic() > deadline:
                    raise GatherFailed(
                        f"not all ranks were there again within {self._rendezvous_seconds:.3g} s"
                    )
                poll = min(2 * poll, _LONGEST_POLL)
            timeout = timedelta(seconds=self._timeout)
            self._group = self._dist.ProcessGroupGloo(store, self.rank, self.world_size, timeout)
        except (RuntimeError, ValueError) as error:
            raise GatherFailed(describe_error(error)) from error

    def _is_equal(self, number: int) -> bool:
        """Return whether this number is equal on all ranks."""
        import torch

        extremes = torch.tensor([number, -number], device=self._device)
        options: Any = self._dist.AllreduceOptions()
        options.reduceOp = self._dist.ReduceOp.MAX
        self._finish(partial(self._group.allreduce, [extremes], options), extremes)
        highest, lowest = extremes.tolist()
        return bool(highest == -lowest)

    def _plan_together(self, header: GatherHeader) -> GatherPlan:
        """Return rank 0's decision on headers that differ."""
        blocks = self._collect(to_block(msgspec.json.encode(header)))
        headers = [] if blocks is None else [decode_block(block, GatherHeader) for block in blocks]
        return decode_message(self._broadcast(msgspec.json.encode(plan_of(headers))), GatherPlan)

    def _rows(
        self, headers: Sequence[GatherHeader], buffers: Sequence[WindowBuffer], channels: Sequence[list[str]]
    ) -> list[GatherResult]:
        """Return, on rank 0, every rank's rows of each window that has a header; elsewhere nothing."""
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
            replace(identity, role=header.role)
            for identity, header in zip(self._identities, headers, strict=True)
        )
        return GatheredWindow(row_RNC, tuple(channels), identities, faults_of(headers))

    def _collect(self, mine: Any) -> Any:
        """Return every rank's tensor as one [R, …], in rank order, on rank 0; None elsewhere."""
        import torch

        mine = mine.to(self._device)
        shape = (self.world_size, *mine.shape)
        everyone = torch.empty(shape, dtype=mine.dtype, device=self._device) if self.rank == 0 else None
        parts = list(everyone.unbind(0)) if everyone is not None else None
        options = self._dist.GatherOptions()
        options.rootRank = 0
        outputs = [] if parts is None else [parts]
        self._finish(partial(self._group.gather, outputs, [mine], options), mine, everyone)
        return None if everyone is None else everyone.cpu()

    def _broadcast(self, message: bytes) -> bytes:
        """Return rank 0's message on every rank."""
        block = to_block(message if self.rank == 0 else b"").to(self._device)
        options = self._dist.BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        self._finish(partial(self._group.broadcast, [block], options), block)
        return from_block(block.cpu())

    def _finish(self, start: Callable[[], Any], *memory: Any) -> None:
        """Start an operation and wait until it has completed; abandon it at its deadline.

        Args:
            memory: tensors that the operation reads or writes.
        """
        deadline = time.monotonic() + self._timeout
        try:
            if self._cancelled.is_set():
                raise GatherFailed(self._cancel_reason)
            self._is_busy = True
            work = start()
            if work is None:  # torch returns None, with a warning, once the group was destroyed.
                raise GatherFailed("the process group is gone: torch.distributed was shut down")
            poll = _SHORTEST_POLL
            while not work.is_completed():
                time.sleep(poll)
                if self._cancelled.is_set():
                    self._abandon(work, memory)
                    raise GatherFailed(self._cancel_reason)
                if time.monotonic() > deadline:
                    self._abandon(work, memory)
                    raise GatherFailed(f"no answer from the other ranks within {self._timeout:g} s")
                poll = min(2 * poll, _LONGEST_POLL)
            self._is_busy = False
            work.wait()  # It has completed: this raises its error.
        except (RuntimeError, ValueError) as error:  # DistBackendError is one.
            self._is_busy = False
            raise GatherFailed(describe_error(error)) from error

    def _abandon(self, work: Any, memory: Any) -> None:
        """Stop waiting for an operation.

        A started NCCL operation would occupy the device until torch's watchdog ends the process. It is
        aborted on a thread that can be left behind.
        """
        self._unfinished.append((work, memory))
        self._keep_alive()
        if self._backend == "nccl":
            threading.Thread(target=self._abort, name="sfapp-abort", daemon=True).start()

    def _keep_alive(self) -> None:
        """Keep the group from being destroyed before the process ends.

        Destroying it would wait in native code, as long as training's own timeout, for an operation that no
        other rank answers. A failing rank would not end, and the others would wait for it.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))

    def _abort(self) -> None:
        abort = getattr(self._dist.distributed_c10d, "_abort_process_group", None)  # torch 2.6 and later.
        if abort is not None:
            with contextlib.suppress(RuntimeError, ValueError):  # It is gone already.
                abort(self._group)
