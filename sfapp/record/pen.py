"""Where packets are written: on the recorder's thread, or in another process where that is worth one."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from sfapp.record.refusals import one_line

if TYPE_CHECKING:
    from sfapp.packets import Draft
    from sfapp.packets.scribe import Scribe

WORTH_A_PROCESS = 1e-3
"""Share of the time trained that writing may take here: training wants the interpreter meanwhile."""

FIRST_WINDOWS = 8
"""Written here before that is asked: short jobs need no other process."""

SHORTEST_PATIENCE = 1.0
"""Seconds that the other process may take for a packet at the least."""


class Pen:
    """Writes a recorder's packets.

    Args:
        failures: what goes wrong without losing a window is put there.
    """

    def __init__(self, failures: deque[str]) -> None:
        self._failures = failures
        self._scribe: Scribe | None = None
        self._may_start = True
        self._windows = self._spent_ns = self._trained_ns = 0

    def write(self, draft: Draft, path: Path, is_part: bool) -> None:
        """Write a window, or a rank's part of one.

        Raises:
            PacketError: as ``sfapp.packets.write_packet``.
        """
        from sfapp.packets import write_packet

        # Parts are written here: every rank of a node may have one. So are reduced windows: they hold
        # tensors, and the other process has no torch.
        if is_part or draft.reduced is not None:
            write_packet(draft, path)
        elif not self._written_elsewhere(draft, path):
            begin = time.perf_counter_ns()
            write_packet(draft, path)
            self._windows += 1
            self._spent_ns += time.perf_counter_ns() - begin
            self._trained_ns += draft.manifest.overhead.train_ns
            if self._may_start and self._windows >= FIRST_WINDOWS:
                self._start_if_worth_it()

    def close(self) -> None:
        """Let the other process end."""
        if self._scribe is not None:
            self._scribe.close()

    def _start_if_worth_it(self) -> None:
        if self._spent_ns <= WORTH_A_PROCESS * self._trained_ns:
            return
        from sfapp.packets.scribe import Scribe

        self._may_start = False  # once: if it cannot be started, or ends, this process writes again
        try:
            self._scribe = Scribe()
        except (OSError, ValueError) as error:  # ValueError: this system cannot hand a socket over
            self._failures.append(f"packets are written on the recorder's thread: {one_line(error)}")

    def _written_elsewhere(self, draft: Draft, path: Path) -> bool:
        """Whether the other process wrote it; there may be none, or it is not ready."""
        from sfapp.packets.scribe import ScribeGone

        scribe = self._scribe
        if scribe is None:
            return False
        # Half a window, so that none waits behind this one for long.
        patience = max(SHORTEST_PATIENCE, draft.manifest.overhead.train_ns / 2e9)
        try:
            scribe.write(draft, path, patience)
        except ScribeGone as gone:
            if gone.for_good:
                self._scribe = None
                self._failures.append(
                    f"the process that writes packets {gone}: the recorder's thread does it again"
                )
                scribe.close()
            return False
        return True
