"""Write log messages that hold text of others, such as a browser's, so that a terminal does not obey them."""

from __future__ import annotations

import logging
from types import TracebackType

from sfapp.terminal import printable

MOST_LINES = 200
"""Lines of a traceback that are written, the last ones: the message of an error may have any number."""

_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class PrintableFormatter(logging.Formatter):
    """Formatter that escapes control characters, and writes each message on one line of bounded length."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: _ExceptionInfo) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join(map(printable, lines[-MOST_LINES:]))


def write_printable_log() -> None:
    """Let messages of the log be written so wherever no handler is configured."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(PrintableFormatter())
