"""Gather windows' rows on rank 0 over NCCL, on the training thread."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any

from sfapp.packets.threads import start_or_note
from sfapp.recorder.transport.gather_errors import warn
from sfapp.recorder.transport.gather_group import GatherGroup


class NcclGatherGroup(GatherGroup):
    """``GatherGroup`` over NCCL.

    NCCL's operations on one device must be issued in the same order on all ranks, across all groups, and not
    from several threads at once. Windows are therefore gathered on the training thread.
    """

    backend = "nccl"
    needs_training_thread = True

    def successor(self, rendezvous: str, seconds: float) -> None:
        """Return None, because only training may create NCCL's communicators."""

    def _operation_device(self) -> Any:
        """Return this process's CUDA device, because NCCL transfers only device memory."""
        import torch

        return torch.device("cuda", torch.cuda.current_device())

    def _abandon(self, work: Any, memory: Any) -> None:
        """Stop waiting for an operation and abort it.

        A started NCCL operation would occupy the device until torch's watchdog ends the process. It is
        aborted on a thread that can be abandoned.
        """
        super()._abandon(work, memory)
        failures: deque[str] = deque()
        if not start_or_note(threading.Thread(target=self._abort, name="sfapp-abort", daemon=True), failures):
            warn(failures[0])

    def _abort(self) -> None:
        abort = getattr(self._dist.distributed_c10d, "_abort_process_group", None)  # torch 2.6 and later.
        if abort is not None:
            with contextlib.suppress(RuntimeError, ValueError):  # It is gone already.
                abort(self._group)
