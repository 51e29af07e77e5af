"""A server that ends in time: work that ignores the stop signal is abandoned with the process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

GRACE_S = 4.0
"""Seconds from the signal to a forced end. A computation on a thread cannot be interrupted; it only reads
packets, and the store keeps committed data."""

CLOSING_S = 0.5
"""Seconds that closing the store may take after that."""


class _WithoutCancelled(logging.Filter):
    """Filter that drops the traceback of each request that the stop cancels: uvicorn writes one line with
    their number before."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


_WITHOUT_CANCELLED = _WithoutCancelled()


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
        logging.getLogger("uvicorn.error").addFilter(_WITHOUT_CANCELLED)
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
