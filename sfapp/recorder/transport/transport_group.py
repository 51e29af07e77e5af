"""The interface of a transport: ``TransportGroup``, which it implements, and ``Transport``, its table entry.

``Recorder`` creates a group with ``Transport.connect`` and joins it (``rank_group.py``); ``GatherSink``
gathers windows over it; ``WindowQueue`` decides how many at once. ``distributed_group.py`` has a base class
for groups over torch.distributed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sfapp.model.rank_table import RankIdentity
from sfapp.packets.job import JobInfo
from sfapp.packets.window_rows import WindowBuffer

if TYPE_CHECKING:
    from sfapp.packets import WindowDraft


@dataclass(frozen=True, slots=True)
class AgreedStart:
    """The agreement of all ranks when they join a group.

    Attributes:
        run_id: name of the run.
        attempt: name of this start of the run.
        next_window, next_step: the window and the step with which all ranks continue.
    """

    run_id: str
    attempt: str
    next_window: int
    next_step: int


class GatherResult(Protocol):
    """A window of all ranks, on rank 0."""

    @property
    def faults(self) -> dict[str, str]:
        """Every rank's faults by code, each with its detail."""

    @property
    def objection(self) -> str:
        """Why the window is invalid; empty if it is valid. If it is invalid, every rank writes its part."""

    def draft(self, job: JobInfo, buffer: WindowBuffer, gather_ns: int) -> WindowDraft:
        """Return the window's draft; ``sfapp.packets.compose.whole_draft`` makes one from the ranks' rows.

        Args:
            buffer: rank 0's own window.
            gather_ns: the time that gathering took.
        """


class TransportGroup(Protocol):
    """All ranks of a job, from the view of one rank that combines its windows with the others on rank 0.

    ``greet``, ``gather`` and ``confirm`` are collective: all ranks call them in the same order. No exchange
    within them waits for other ranks longer than the seconds passed to ``Transport.connect``. They raise only
    the listed errors; after any other error in ``gather`` the rows are lost.

    The recorder calls ``greet`` once, when it is created. At the end of windows its own thread calls
    ``gather`` and ``confirm``. After ``GatherFailed`` it calls only ``successor``. Of a group of one rank it
    uses only ``world_size`` and ``training_backend``.

    Attributes:
        world_size: number of ranks.
        training_backend: backend of training's own collectives, such as ``nccl``, for packets.
        takes_several: whether ``gather`` can gather several windows at once.
        needs_training_thread: whether the training thread must call ``gather``. Training then waits for it,
            ``confirm`` is never called, and the last window is written as parts.
        batch_size: number of windows to gather at once from now on, at least 1 and the same on all ranks.
            ``confirm`` sets it; the training thread and the recorder's thread read it.
    """

    world_size: int
    training_backend: str
    takes_several: bool
    needs_training_thread: bool
    batch_size: int

    def greet(self, identity: RankIdentity, run_id: str, next_window: int, next_step: int) -> AgreedStart:
        """Agree on the names of the run and of the attempt (rank 0's), and on the next window and step (the
        highest); on the training thread.

        Args:
            identity: of this rank.
            run_id, next_window, next_step: values with which this rank would continue.

        Raises:
            GatherFailed: a rank is gone or late.
        """

    def gather(self, buffers: Sequence[WindowBuffer]) -> tuple[int, Sequence[GatherResult]]:
        """Gather closed windows on rank 0.

        Args:
            buffers: this rank's windows in order, at least one. ``WindowBuffer.packed`` returns the rows of a
                window, int64 [N, C + K]. A window may have no rows, and ranks may hold different numbers of
                windows.

        Returns:
            The number of windows gathered, from the first on, at least 1 and the same on all ranks; the
            others are passed again. Also their results on rank 0, and an empty sequence on other ranks.

        Raises:
            GatherRefused: on all ranks, if the ranks' first windows do not match; these are written as parts.
            GatherFailed: a rank is gone or late. All of ``buffers`` are written as parts.
        """

    def confirm(self, reasons: Sequence[str], batch_size: int) -> list[str]:
        """Send rank 0's outcome of writing the gathered windows to all ranks, and return it; after each
        ``gather``, on the same thread.

        Args:
            reasons: on rank 0, why each gathered window is not on disk; empty for windows on disk.
            batch_size: on rank 0, the new ``batch_size`` of all ranks.

        Raises:
            GatherFailed: the outcome did not arrive.
        """

    def successor(self, rendezvous: str, seconds: float) -> TransportGroup | None:
        """Return a group of the same ranks with new connections after an operation has failed, or None if
        this is impossible. On the recorder's thread.

        Does not block, because the first ``gather`` makes the connections. ``greet`` is not called again.

        Args:
            rendezvous: key under which the ranks find each other, the same on all of them.
            seconds: time limit of that.
        """

    def give_up(self, reason: str) -> None:
        """Let the operation in progress and all later ones raise ``GatherFailed(reason)`` at once.

        Called on any thread, while another one may be inside ``gather``; does not block.
        """


@dataclass(frozen=True, slots=True)
class Transport:
    """Table entry of a transport, which combines the ranks' rows of a window.

    Attributes:
        title: description for error messages and lists.
        connect: creates the group over which windows are gathered, given the seconds that a rank waits for
            the others; collective over all ranks, on the training thread. After an error this rank writes
            parts. None if every rank writes its own part. Without torch.distributed,
            ``sfapp.recorder.identity.place_here`` returns this rank and the number of ranks.
        needs_process_group: whether ``connect`` needs an initialised torch.distributed. Without it, every
            rank of a larger job writes parts.
    """

    title: str
    connect: Callable[[float], TransportGroup] | None
    needs_process_group: bool = True
