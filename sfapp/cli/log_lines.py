"""Write log messages that hold text of others, such as a browser's, so that a terminal does not obey them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from sfapp.terminal import printable

MOST_LINES = 200
"""Lines of a traceback that are written, the last ones: the message of an error may have any number."""

MOST_MESSAGES, PERIOD_SECONDS = 200, 60.0
"""Number of messages that are written in one period: a visitor's browser can send any number."""

_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class PrintableFormatter(logging.Formatter):
    """Formatter that escapes control characters, and writes each message on one line of bounded length."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: _ExceptionInfo) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join(map(printable, lines[-MOST_LINES:]))


class MessageLimit(logging.Filter):
    """Filter that lets ``MOST_MESSAGES`` through in each period; the first one of a later period says how
    many were left out."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._lock = threading.Lock()
        self._ends = float("-inf")
        self._written = self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        with self._lock:
            if (now := self._now()) >= self._ends:
                self._ends, self._written = now + PERIOD_SECONDS, 0
            if self._written >= MOST_MESSAGES:
                self._left_out += 1
                return False
            self._written += 1
            left_out, self._left_out = self._left_out, 0
        if left_out:
            record.msg = f"[{left_out:,} messages were left out] {record.getMessage()}"
            record.args = ()
        return True


_LIMIT = MessageLimit()


def write_printable_log() -> None:
    """Let messages of the log be written so, and a bounded number of them, wherever no handler is
    configured."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(PrintableFormatter())
        logging.lastResort.addFilter(_LIMIT)
