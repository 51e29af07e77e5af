"""Where packets are written: on the recorder's thread, or in another process where that is worth one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sfapp.errors import describe_error

if TYPE_CHECKING:
    from sfapp.packets import WindowDraft
    from sfapp.packets.writer_process import WriterProcess

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
        self._writer_process: WriterProcess | None = None
        self._may_start = True
        self._windows = self._spent_ns = self._trained_ns = 0

    def write_here(self, draft: WindowDraft, path: Path) -> Exception | None:
        """Write a window on this thread; why it was not written. What parts need: every rank of a node may
        have one."""
        from sfapp.packets import write_packet

        try:
            write_packet(draft, path)
        except Exception as error:  # fail-open, and who waits for the packet must hear of it
            return error
        return None

    def write(self, packets: Sequence[tuple[WindowDraft, Path]]) -> list[Exception | None]:
        """Write windows; of each why it was not written, or None."""
        # Reduced windows are written here: they hold tensors, and the other process has no torch.
        if any(draft.reduced is not None for draft, _ in packets):
            return [self.write_here(draft, path) for draft, path in packets]
        elsewhere = self._written_elsewhere(packets)
        if elsewhere is not None:
            return elsewhere
        begin = time.perf_counter_ns()
        refusals = [self.write_here(draft, path) for draft, path in packets]
        self._windows += len(packets)
        self._spent_ns += time.perf_counter_ns() - begin
        self._trained_ns += sum(draft.manifest.overhead.train_ns for draft, _ in packets)
        if self._may_start and self._windows >= FIRST_WINDOWS:
            self._start_if_worth_it()
        return refusals

    def close(self) -> None:
        """Let the other process end."""
        if self._writer_process is not None:
            self._writer_process.close()

    def _start_if_worth_it(self) -> None:
        if self._spent_ns <= WORTH_A_PROCESS * self._trained_ns:
            return
        from sfapp.packets.writer_process import WriterProcess

        self._may_start = False  # once: if it cannot be started, or ends, this process writes again
        try:
            self._writer_process = WriterProcess()
        except (OSError, ValueError) as error:  # ValueError: this system cannot hand a socket over
            self._failures.append(f"packets are written on the recorder's thread: {describe_error(error)}")

    def _written_elsewhere(
        self, packets: Sequence[tuple[WindowDraft, Path]]
    ) -> list[Exception | None] | None:
        """What the other process said of them; None where there is none, or it is not ready."""
        from sfapp.packets.writer_process import WriterProcessEnded

        writer_process = self._writer_process
        if writer_process is None:
            return None
        # Half of what they took, so that none waits behind them for long.
        trained_ns = sum(draft.manifest.overhead.train_ns for draft, _ in packets)
        try:
            return [*writer_process.write(packets, max(SHORTEST_PATIENCE, trained_ns / 2e9))]
        except WriterProcessEnded as gone:
            if gone.for_good:
                self._writer_process = None
                self._failures.append(
                    f"the process that writes packets {gone}: the recorder's thread does it again"
                )
                writer_process.close()
            return None
