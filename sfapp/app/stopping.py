"""A server that ends in time: work that ignores the stop signal is abandoned with the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

GRACE_S = 4.0
"""Seconds from the signal to a forced end. A computation on a thread cannot be interrupted; it only reads
packets, and the store keeps committed data."""

CLOSING_S = 0.5
"""Seconds that closing the store may take after that."""


class PunctualServer(uvicorn.Server):
    """Server that stops at a signal, and ends the process if this takes longer than ``GRACE_S``.

    Args:
        close: closes the resources that must be closed even then; it may block.
        abandon: ends the process without waiting for its threads.
    """

    def __init__(
        self, config: uvicorn.Config, *, close: Callable[[], None], abandon: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._close = close
        self._abandon = abandon
        self._is_stopping = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if not self._is_stopping:
            self._is_stopping = True
            timer = threading.Timer(GRACE_S, self._end_by_force)
            timer.daemon = True  # where everything ends by itself, the process does not wait for this
            timer.start()

    def _end_by_force(self) -> None:
        closing = threading.Thread(target=self._close, name="sfapp-close", daemon=True)
        closing.start()
        closing.join(CLOSING_S)
        self._abandon()
