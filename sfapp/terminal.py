"""Escape untrusted text for a terminal, a log or an error message.

Names in packets and messages of other libraries may hold control characters. They are shown as escape
sequences such as ``\\x1b``, so that a terminal never executes them, and are cut to a bounded length.
"""

from __future__ import annotations

import re

MAX_TEXT = 4_000
MAX_QUOTE = 80

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tabs and newlines, and those that reverse the direction of what follows."""


def without_controls(text: str) -> str:
    """Return text for a document, with each control character as U+FFFD; tabs and newlines stay.

    Characters that reverse the direction of writing count as control characters: with them, a name could make
    the rest of its line read differently.
    """
    return _CONTROLS.sub("\ufffd", text.replace("\r\n", "\n"))


def encodable(text: str) -> str:
    """Return text that UTF-8 can encode: a lone surrogate, as which Python reads a byte of a file's name that
    is not UTF-8, is written as ``\\udcff``.
    """
    return text.encode(errors="backslashreplace").decode()


def printable(text: str, limit: int = MAX_TEXT) -> str:
    """Return text with its control characters escaped, cut to at most ``limit`` characters."""
    shown = text[: limit + 1]
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in shown)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def quoted(text: str, limit: int = MAX_QUOTE) -> str:
    """Return text in quotes as Python writes it, cut to ``limit`` characters."""
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}…"


def first_line(text: str, limit: int = MAX_TEXT) -> str:
    """Return the first line of a message of another library, escaped."""
    return printable(text.strip().split("\n", 1)[0].strip(), limit)
