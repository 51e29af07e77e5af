"""Base class of groups over torch.distributed: collective operations that end by a deadline.

The process group is separate from training's, so that neither waits for the other's collectives. Every
operation is started asynchronously and polled from Python with a deadline, so that a peer that is gone or
stuck never blocks this process in native code, even during interpreter shutdown. After a failed operation the
connections are in an unknown state; ``successor`` makes new ones.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, Literal, Self

import msgspec

from sfapp.errors import describe_error
from sfapp.recorder.transport.gather_errors import GatherFailed
from sfapp.recorder.transport.gather_messages import WriteReport, decode_message, from_block, to_block

_SHORTEST_POLL, _LONGEST_POLL = 0.0005, 0.02  # Seconds between two polls of an operation.

_MAX_REASONS = 900
"""Maximum total number of characters of the reasons in a ``WriteReport``."""


class DistributedGroup:
    """Base of groups over torch.distributed, independent of how they combine rows.

    A subclass adds ``greet`` and ``gather`` of ``TransportGroup``, using the collective operations
    ``_collect``, ``_broadcast``, ``_maximum`` and ``_reduce``. These take and return tensors on the CPU, and
    raise GatherFailed if a rank is gone or late. A subclass for another backend than Gloo sets ``backend``
    and replaces ``_operation_device`` and ``successor``.

    Attributes:
        rank: this rank.
    """

    backend = "gloo"
    """Name of the process group's backend in torch."""

    takes_several = True
    needs_training_thread = False

    def __init__(self, timeout: float) -> None:
        """Create the process group; collective over all ranks of the job.

        Creating it has the training group's timeout, so that ranks may arrive as far apart as training
        allows. Every later operation takes at most ``timeout`` seconds.
        """
        import torch.distributed as dist

        self._dist = dist
        self._group: Any = dist.new_group(backend=self.backend)
        # Key under which a successor's ranks find each other, and how long they wait for that.
        self._rendezvous, self._rendezvous_seconds = "", timeout
        self._device = self._operation_device()
        self._timeout = timeout
        self._cancelled = threading.Event()
        self._cancel_reason = ""
        self._unfinished: list[Any] = []  # Abandoned operations, with the memory they write to.
        self._is_busy = False
        self.batch_size = 1
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.training_backend = str(dist.get_backend())

    def confirm(self, reasons: Sequence[str], batch_size: int = 1) -> list[str]:
        """Send rank 0's outcome of writing to all ranks, and return it.

        Args:
            reasons: on rank 0, why each window is not on disk; empty for windows on disk.
            batch_size: on rank 0, the number of windows to gather at once from now on.

        Raises:
            GatherFailed: the report did not arrive.
        """
        mine = WriteReport([reason[: _MAX_REASONS // len(reasons)] for reason in reasons], batch_size)
        report = decode_message(self._broadcast(msgspec.json.encode(mine)), WriteReport)
        self.batch_size = report.batch_size
        return report.reasons

    def successor(self, rendezvous: str, seconds: float) -> Self | None:
        """Return a group of the same ranks with new Gloo connections, made by its first operation.

        Args:
            rendezvous: key under which the ranks find each other.
            seconds: time limit of that.
        """
        successor = copy(self)
        successor._group, successor._rendezvous = None, rendezvous
        successor._rendezvous_seconds = min(seconds, self._timeout)
        successor._cancelled, successor._cancel_reason, successor._unfinished = threading.Event(), "", []
        successor._is_busy, successor.batch_size = False, 1
        return successor

    def give_up(self, reason: str) -> None:
        """Let the operation in progress and all later ones fail at once; from any thread."""
        self._cancel_reason = self._cancel_reason or reason
        self._cancelled.set()
        if self._is_busy:
            self._keep_alive()

    # ---- collective operations, for subclasses --------------------------------------------------

    def _collect(self, mine: Any) -> Any:
        """Return every rank's tensor as one [R, …], in rank order, on rank 0; None on other ranks."""
        import torch

        mine = mine.to(self._device)
        shape = (self.world_size, *mine.shape)
        everyone = torch.empty(shape, dtype=mine.dtype, device=self._device) if self.rank == 0 else None
        parts = list(everyone.unbind(0)) if everyone is not None else None
        options = self._dist.GatherOptions()
        options.rootRank = 0
        outputs = [] if parts is None else [parts]
        self._finish(lambda group: group.gather(outputs, [mine], options), mine, everyone)
        return None if everyone is None else everyone.cpu()

    def _broadcast(self, message: bytes) -> bytes:
        """Return rank 0's message on every rank."""
        block = to_block(message if self.rank == 0 else b"").to(self._device)
        options = self._dist.BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        self._finish(lambda group: group.broadcast([block], options), block)
        return from_block(block.cpu())

    def _maximum(self, mine: Any) -> Any:
        """Return the ranks' maximum, element by element, on every rank; ``mine`` may be overwritten."""
        numbers = mine.to(self._device)
        options: Any = self._dist.AllreduceOptions()
        options.reduceOp = self._dist.ReduceOp.MAX
        self._finish(lambda group: group.allreduce([numbers], options), numbers)
        return numbers.cpu()

    def _reduce(self, mine: Any, how: Literal["max", "sum"]) -> Any:
        """Return the ranks' maximum or sum, element by element, on rank 0, and undefined numbers elsewhere;
        ``mine`` may be overwritten."""
        numbers = mine.to(self._device)
        options: Any = self._dist.ReduceOptions()
        options.reduceOp = self._dist.ReduceOp.SUM if how == "sum" else self._dist.ReduceOp.MAX
        options.rootRank = 0
        self._finish(lambda group: group.reduce([numbers], options), numbers)
        return numbers.cpu()

    # ---- what a backend may replace -------------------------------------------------------------

    def _operation_device(self) -> Any:
        """Return the device whose memory the backend transfers."""
        return "cpu"

    def _abandon(self, work: Any, memory: Any) -> None:
        """Stop waiting for an operation, and keep it and its memory."""
        self._unfinished.append((work, memory))
        self._keep_alive()

    # ---- operations -----------------------------------------------------------------------------

    def _connect(self) -> None:
        """Make the connections of a successor once all ranks have arrived; the wait is in Python.

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
                    raise GatherFailed(f"not all ranks returned within {self._rendezvous_seconds:.3g} s")
                poll = min(2 * poll, _LONGEST_POLL)
            timeout = timedelta(seconds=self._timeout)
            self._group = self._dist.ProcessGroupGloo(store, self.rank, self.world_size, timeout)
        except (RuntimeError, ValueError) as error:
            raise GatherFailed(describe_error(error)) from error

    def _finish(self, start: Callable[[Any], Any], *memory: Any) -> None:
        """Start an operation and wait until it has completed; abandon it at its deadline.

        Args:
            start: starts it, given the process group, and returns torch's handle of it.
            memory: tensors that the operation reads or writes.
        """
        self._connect()
        deadline = time.monotonic() + self._timeout
        try:
            if self._cancelled.is_set():
                raise GatherFailed(self._cancel_reason)
            self._is_busy = True
            work = start(self._group)
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
                    raise GatherFailed(f"no response from the other ranks within {self._timeout:g} s")
                poll = min(2 * poll, _LONGEST_POLL)
            self._is_busy = False
            work.wait()  # It has completed, so this only raises its error.
        except (RuntimeError, ValueError) as error:  # DistBackendError is one.
            self._is_busy = False
            raise GatherFailed(describe_error(error)) from error

    def _keep_alive(self) -> None:
        """Keep the group from being destroyed before the process ends.

        Destroying it would wait in native code for an operation that no other rank joins, up to training's
        own timeout. A failing rank would not end, and the others would wait for it.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))
