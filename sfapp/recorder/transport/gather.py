"""Bringing windows' rows to rank 0, over a group of the recorder's own.

A Gloo group beside the training's: telemetry never waits for, or is waited for by, a training collective.
Every operation is started asynchronously and watched from Python with a deadline of our own, so that a
peer that is gone or stuck never holds this process in native code, not even while the interpreter shuts down.
After one that failed the connections are in no known state; ``successor`` makes new ones, later.
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
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from sfapp.errors import describe_error
from sfapp.model.window import RankIdentity
from sfapp.packets.compose import whole_draft
from sfapp.packets.job import JobInfo
from sfapp.packets.window_rows import STEP_COLUMN, WindowBuffer
from sfapp.recorder.transport.errors import GatherFailed, GatherRefused
from sfapp.recorder.transport.gather_messages import (
    Header,
    Hello,
    Plan,
    Word,
    decoded,
    digest_of,
    faults_of,
    framed,
    plan_of,
    unframed,
)

if TYPE_CHECKING:
    from sfapp.packets import WindowDraft

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02  # seconds between two looks at an operation

LONGEST_REASONS = 900
"""Characters that a word about several windows may take for its reasons."""


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """On rank 0: every rank's rows, and what the ranks say about them.

    Attributes:
        row_RNC: int64 [R, N, 2 + S + K] torch tensor, ranks ascending.
        channels: the K side channels whose bits the last columns hold.
        identities: of the R ranks, roles as of this window.
        faults: any rank's, by code, with the rank that saw it first.
    """

    row_RNC: Any
    channels: tuple[str, ...]
    identities: tuple[RankIdentity, ...]
    faults: dict[str, str]

    @property
    def objection(self) -> str:
        """Why these rows are no window, or nothing."""
        steps_RN = self.row_RNC[:, :, STEP_COLUMN]
        return "ranks recorded different steps" if bool((steps_RN != steps_RN[0]).any()) else ""

    def draft(self, job: JobInfo, buffer: WindowBuffer, gather_ns: int) -> WindowDraft:
        """What its packet is to hold; ``gather_ns`` is what bringing it together took."""
        return whole_draft(job, buffer, self.row_RNC.numpy(), self.channels, self.identities, gather_ns)


class Result(Protocol):
    """What came together of a window on rank 0."""

    @property
    def faults(self) -> dict[str, str]: ...

    @property
    def objection(self) -> str: ...

    def draft(self, job: JobInfo, buffer: WindowBuffer, gather_ns: int) -> WindowDraft: ...


class TelemetryGroup:
    """The recorder's own process group. ``greet``, ``gather`` and ``confirm`` are collective: all ranks call
    them, in the same order, from one thread.

    Attributes:
        needs_training_thread: whether that must be the training's. NCCL's operations on one device must come
            in one order on all ranks, whatever group they are of, and not from several threads at once.
        together: how many windows are to be gathered at once from now on; the same on all ranks.
    """

    takes_several = True
    """Whether it can gather more than one window at once."""

    def __init__(self, timeout: float, backend: str = "gloo") -> None:
        """Make the group, over ``gloo`` or ``nccl``; collective over all ranks of the job.

        Its own timeout is the training group's, so that ranks may reach this line as far apart as training
        allows; ``timeout`` seconds bound every operation after it.
        """
        import torch
        import torch.distributed as dist

        self._dist = dist
        self._group: Any = dist.new_group(backend=backend)
        self._backend = backend
        self.needs_training_thread = backend == "nccl"
        # Where its ranks meet, and how long they wait there, for a group that is not made yet.
        self._meeting, self._patience = "", timeout
        # NCCL moves memory of the device alone.
        self._device = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else "cpu"
        self._timeout = timeout
        self._given_up = threading.Event()
        self._why_given_up = ""
        self._unfinished: list[Any] = []  # operations abandoned in flight, with the memory they write to
        self._is_busy = False
        self._identities: tuple[RankIdentity, ...] = ()
        self.together = 1
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.training_backend = str(dist.get_backend())

    def greet(self, identity: RankIdentity, run_id: str, next_window: int, next_step: int) -> Hello:
        """Agree on the run's name and a name for this attempt at it (rank 0's), and on its next window and
        step (the highest of all ranks').

        Raises:
            GatherFailed: a rank is gone or late.
        """
        mine = Hello.of(identity, run_id, next_window, next_step)
        blocks = self._collect(framed(msgspec.json.encode(mine)))
        agreed = mine
        if blocks is not None:
            hellos = [decoded(block, Hello) for block in blocks]
            self._identities = tuple(
                RankIdentity(hello.rank, hello.local_rank, hello.node_rank, hello.hostname)
                for hello in hellos
            )
            agreed = msgspec.structs.replace(
                mine,
                next_window=max(hello.next_window for hello in hellos),
                next_step=max(hello.next_step for hello in hellos),
            )
        return decoded(framed(self._announce(msgspec.json.encode(agreed))), Hello)

    def successor(self, meeting: str, patience: float) -> TelemetryGroup | None:
        """The same ranks with new connections. Their first gather makes them, if all ranks come to the same
        meeting within ``patience`` seconds. None over NCCL, whose communicators only training may make."""
        if self._backend == "nccl":
            return None
        following = copy(self)
        following._group, following._meeting = None, meeting
        following._patience = min(patience, self._timeout)
        following._given_up, following._why_given_up, following._unfinished = threading.Event(), "", []
        following._is_busy, following.together = False, 1
        return following

    def gather(self, buffers: Sequence[WindowBuffer]) -> tuple[int, list[Result]]:
        """Bring windows to rank 0: how many came together, from the first on, and, there, what of each.

        Rows follow only where all ranks have the same steps of the same stages of the same windows. That is
        nearly always so, and sixteen bytes show it; where it is not, rank 0 looks at the first window's
        headers, and this one goes alone.

        Raises:
            GatherRefused: ranks have different first windows, or different steps or stages in it.
            GatherFailed: a rank is gone or late.
        """
        self._connect()
        headers = [Header.of(buffer) for buffer in buffers]
        if not self._all_have(digest_of(headers)):
            del headers[1:]
            plans = [self._settled(headers[0])]
        else:
            empty = next((place for place, header in enumerate(headers) if not header.steps), len(headers))
            del headers[max(1, empty) :]  # an empty window is refused, by itself
            plans = [plan_of([header]) for header in headers]
        if plans[0].objection:
            raise GatherRefused(plans[0].objection)
        found = self._rows(headers, buffers, [plan.side for plan in plans])
        return len(headers), found

    def confirm(self, reasons: Sequence[str], together: int = 1) -> list[str]:
        """Rank 0 tells the others of each window why it is not on disk, or nothing if it is, and how many
        windows are to be gathered at once from now on; returns the reasons.

        Raises:
            GatherFailed: the word did not arrive.
        """
        mine = Word([reason[: LONGEST_REASONS // len(reasons)] for reason in reasons], together)
        word = decoded(framed(self._announce(msgspec.json.encode(mine))), Word)
        self.together = word.together
        return word.reasons

    def give_up(self, why: str) -> None:
        """End whatever the group is waiting for, from any thread: it fails at once, and so does all later."""
        self._why_given_up = self._why_given_up or why
        self._given_up.set()
        if self._is_busy:
            self._outlive()

    # ---- operations -----------------------------------------------------------------------------

    def _connect(self) -> None:
        """Make the connections of a successor once all ranks are there, for whom Python does the waiting.

        Raises:
            GatherFailed: a rank is gone or late.
        """
        if self._group is not None:
            return
        deadline = time.monotonic() + self._patience
        pause = _SHORTEST_PAUSE
        try:
            # There is no public way to the store that the job's ranks found each other by.
            store = self._dist.PrefixStore(
                f"sfapp/{self._meeting}", self._dist.distributed_c10d._get_default_store()
            )
            store.add("here", 1)
            while store.add("here", 0) < self.world_size:
                if self._given_up.wait(pause):
                    raise GatherFailed(self._why_given_up)
                if time.monotonic() > deadline:
                    raise GatherFailed(f"not all ranks were there again within {self._patience:.3g} s")
                pause = min(2 * pause, _LONGEST_PAUSE)
            patience = timedelta(seconds=self._timeout)
            self._group = self._dist.ProcessGroupGloo(store, self.rank, self.world_size, patience)
        except (RuntimeError, ValueError) as error:
            raise GatherFailed(describe_error(error)) from error

    def _all_have(self, number: int) -> bool:
        """Whether all ranks say the same number."""
        import torch

        extremes = torch.tensor([number, -number], device=self._device)
        options = self._dist.AllreduceOptions()
        options.reduceOp = self._dist.ReduceOp.MAX
        self._finish(partial(self._group.allreduce, [extremes], options), extremes)
        highest, lowest = extremes.tolist()
        return bool(highest == -lowest)

    def _settled(self, header: Header) -> Plan:
        """What rank 0 makes of headers that differ."""
        blocks = self._collect(framed(msgspec.json.encode(header)))
        headers = [] if blocks is None else [decoded(block, Header) for block in blocks]
        return decoded(framed(self._announce(msgspec.json.encode(plan_of(headers)))), Plan)

    def _rows(
        self, headers: Sequence[Header], buffers: Sequence[WindowBuffer], channels: Sequence[list[str]]
    ) -> list[Result]:
        """On rank 0 every rank's header and rows of each window that there is a header of; elsewhere none."""
        import torch

        heads = [framed(msgspec.json.encode(header)).view(torch.int64) for header in headers]
        rows = [
            torch.from_numpy(buffer.packed(names)) for buffer, names in zip(buffers, channels, strict=False)
        ]
        mine = [part for head, row_NC in zip(heads, rows, strict=True) for part in (head, row_NC.flatten())]
        everyone = self._collect(torch.cat(mine))
        if everyone is None:
            return []
        theirs = iter(everyone.split([len(part) for part in mine], dim=1))
        return [
            self._gathered(next(theirs), next(theirs).unflatten(1, row_NC.shape), names)
            for row_NC, names in zip(rows, channels, strict=True)
        ]

    def _gathered(self, head_R: Any, row_RNC: Any, channels: Sequence[str]) -> Result:
        import torch

        headers = [decoded(said.view(torch.uint8), Header) for said in head_R]
        identities = tuple(
            replace(identity, role=header.role)
            for identity, header in zip(self._identities, headers, strict=True)
        )
        return Gathered(row_RNC, tuple(channels), identities, faults_of(headers))

    def _collect(self, mine: Any) -> Any:
        """Every rank's tensor as one [R, …], in rank order, on rank 0; None elsewhere."""
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

    def _announce(self, message: bytes) -> bytes:
        """Rank 0's message, on every rank."""
        block = framed(message if self.rank == 0 else b"").to(self._device)
        options = self._dist.BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        self._finish(partial(self._group.broadcast, [block], options), block)
        return unframed(block.cpu())

    def _finish(self, start: Callable[[], Any], *memory: Any) -> None:
        """Start an operation and see it through, or give up on it, by its deadline."""
        deadline = time.monotonic() + self._timeout
        try:
            if self._given_up.is_set():
                raise GatherFailed(self._why_given_up)
            self._is_busy = True
            work = start()
            if work is None:  # what torch returns, with a warning, once the group has been destroyed
                raise GatherFailed("the process group is gone: torch.distributed was shut down")
            pause = _SHORTEST_PAUSE
            while not work.is_completed():
                time.sleep(pause)
                if self._given_up.is_set():
                    self._abandon(work, memory)
                    raise GatherFailed(self._why_given_up)
                if time.monotonic() > deadline:
                    self._abandon(work, memory)
                    raise GatherFailed(f"no answer from the other ranks within {self._timeout:g} s")
                pause = min(2 * pause, _LONGEST_PAUSE)
            self._is_busy = False
            work.wait()  # done already: raises what went wrong
        except (RuntimeError, ValueError) as error:  # torch's own, DistBackendError included
            self._is_busy = False
            raise GatherFailed(describe_error(error)) from error

    def _abandon(self, work: Any, memory: Any) -> None:
        """An operation that nobody will wait for any more. What NCCL has begun would hold the device, and in
        the end torch's watchdog would end the process: it is aborted, by a thread that can be left behind."""
        self._unfinished.append((work, memory))
        self._outlive()
        if self._backend == "nccl":
            threading.Thread(target=self._abort, name="sfapp-abort", daemon=True).start()

    def _outlive(self) -> None:
        """Let nobody destroy the group before the process has ended: that would wait, in native code and as
        long as training's own timeout, for an operation that no other rank answers. A rank that fails would
        not end, and the others would wait for it."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))

    def _abort(self) -> None:
        abort = getattr(self._dist.distributed_c10d, "_abort_process_group", None)  # torch 2.6 and later
        if abort is not None:
            with contextlib.suppress(RuntimeError, ValueError):  # gone meanwhile
                abort(self._group)
