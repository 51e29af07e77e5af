"""Read the events of a trace file in batches, without holding the whole file in memory.

A Kineto file is one JSON object whose ``traceEvents`` is a list of events (or that list alone). A batch is
cut between ``},`` and ``{`` and decoded as a list of its own. If the cut lies inside a string or a nested
list, the part before it does not decode, and more of the file is read for another cut. The decoder therefore
decides whether a cut is valid.

Only the fields named here are decoded; everything else in the file (environment variables, for example) is
skipped.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from sfapp.errors import TraceError
from sfapp.importers.source_files import open_source
from sfapp.model.parse import UNREADABLE_JSON

CHUNK = 2**18
"""Bytes of text decoded at once."""

MAX_BETWEEN_CUTS = 64 * 2**20
"""Largest size of one event, or of everything outside the events, bytes."""

MAX_KEYS = 16
"""Keys 'traceEvents' that are tried; others lie inside strings or objects of the trace's header."""

MAX_BYTES = 64 * 2**30
"""Largest expanded size of one file, bytes."""

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_CUT = re.compile(rb"\}\s{0,30},\s{0,30}\{")
_LONGEST_CUT = 64
"""Largest number of bytes that ``_CUT`` matches."""

_BLOCK = 2**13
"""Bytes in which a cut is looked for at once, from the end. Testing each brace of a deeply nested event by
itself takes a minute."""

_BYTE = re.compile(r"\(byte (\d+)\)$")
_EVENT = re.compile(r" - at `\$\[(\d+)\](.*)`$")


class EventArgs(msgspec.Struct, gc=False):
    """Arguments of an event that are read; values of another type are treated as absent later."""

    correlation: Any = None
    sequence_number: Any = msgspec.field(name="Sequence number", default=None)
    collective: Any = msgspec.field(name="Collective name", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)


class TraceEvent(msgspec.Struct, gc=False):
    """One event; times in µs."""

    ph: str = ""
    cat: str | None = None
    name: str | int | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: EventArgs | None = None


class DistributedInfo(msgspec.Struct):
    """Rank and world size of the process that wrote the file."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None


class TraceHeader(msgspec.Struct):
    """Fields that are read outside the events."""

    distributed: DistributedInfo | None = msgspec.field(name="distributedInfo", default=None)
    base_ns: int | None = msgspec.field(name="baseTimeNanoseconds", default=None)


_EVENTS = msgspec.json.Decoder(list[TraceEvent])
_HEADER = msgspec.json.Decoder(TraceHeader)


@dataclass(slots=True)
class _Text:
    """Text of a file from some byte on."""

    file: IO[bytes]
    path: str
    buffer: bytes = b""
    consumed: int = 0
    read: int = 0
    is_over: bool = False

    def more(self) -> None:
        """Append the next chunk, at least doubling the buffer, so that repeated decoding stays cheap."""
        if self.read > MAX_BYTES:
            raise self.error(f"expands to more than {MAX_BYTES >> 30} GiB")
        try:
            found = self.file.read(max(CHUNK, len(self.buffer)))
        except EOFError as error:
            raise self.error("the file is cut off in the middle", self.read) from error
        except (OSError, zlib.error) as error:
            raise self.error(f"cannot be read: {error}", self.read) from error
        self.is_over = not found
        self.read += len(found)
        self.buffer += found

    def drop(self, count: int) -> None:
        self.buffer = self.buffer[count:]
        self.consumed += count

    def error(self, reason: str, byte: int | None = None) -> TraceError:
        return TraceError(reason, path=self.path, place=f"byte {byte:,}" if byte is not None else None)


class EventFile:
    """Events of one file.

    Attributes:
        header: fields outside the events; complete after all batches were read.
        count: number of events read so far.

    Raises (from ``batches``):
        TraceError: the file cannot be read, is truncated, or is not a JSON trace.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = TraceHeader()
        self.count = 0
        self._is_over = False

    def batches(self) -> Iterator[list[TraceEvent]]:
        """Yield the events in the order of the file, some thousands at a time."""
        try:
            with open_source(self.path) as file:
                text = _Text(file, str(self.path))
                self._head(text)
                while not self._is_over:
                    batch = self._batch(text)
                    yield batch
                    self.count += len(batch)
        except OSError as error:
            raise TraceError(f"cannot be read: {error.strerror or error}", path=str(self.path)) from error

    def _head(self, text: _Text) -> None:
        """Read everything before the first event."""
        text.more()
        tried = 0  # bytes whose keys are known to be none of the trace's own
        tries = 0
        while True:
            start = text.buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
            if start.startswith(b"["):
                text.drop(len(text.buffer) - len(start) + 1)
                return
            for found in _EVENTS_KEY.finditer(text.buffer, tried):
                tried, tries = found.end(), tries + 1
                if tries > MAX_KEYS:
                    raise text.error(
                        f"is not a trace: its first {MAX_KEYS} keys 'traceEvents' are not its own"
                    )
                header = self._header(text.buffer[: found.end()] + b"]}")
                if header is not None:
                    self.header = header
                    text.drop(found.end())
                    return
            if text.is_over or (start and not start.startswith(b"{")):
                raise text.error("is not a trace: expected JSON with a list 'traceEvents'")
            if len(text.buffer) > MAX_BETWEEN_CUTS:
                raise text.error(f"has no 'traceEvents' in its first {MAX_BETWEEN_CUTS >> 20} MiB")
            text.more()

    def _header(self, raw: bytes) -> TraceHeader | None:
        try:
            return _HEADER.decode(raw)
        except UNREADABLE_JSON:
            return None  # inside a string or another object: not the list of events

    def _batch(self, text: _Text) -> list[TraceEvent]:
        """Return the next events; with the last ones, the rest of the file is read too."""
        if len(text.buffer) < CHUNK and not text.is_over:
            text.more()
        while not text.is_over:
            cut = _last_cut(text.buffer)
            if cut is not None:
                found = self._decode(text, text.buffer[: cut[0]] + b"]")
                if isinstance(found, int):
                    return self._last_batch(text, found)
                if found is not None:
                    text.drop(cut[1])
                    return found
            # No event ends here, or the cut lies inside an event: more text gives another last cut.
            if len(text.buffer) > MAX_BETWEEN_CUTS:
                raise text.error(f"one event is longer than {MAX_BETWEEN_CUTS >> 20} MiB", text.consumed)
            text.more()
        found = self._decode(text, text.buffer, at_end=True)
        return found if isinstance(found, list) else self._last_batch(text, found or 0)

    def _decode(self, text: _Text, inside: bytes, *, at_end: bool = False) -> list[TraceEvent] | int | None:
        """Decode the inside of a list of events.

        Returns:
            The events; or the position at which the list ended within; or None for an incomplete list, which
            is an error at the end of the file.
        """
        try:
            events = _EVENTS.decode(b"[" + inside)
        except msgspec.ValidationError as error:
            raise self._wrong_event(text, str(error)) from error
        except UNREADABLE_JSON as error:
            message = str(error)
            byte = _BYTE.search(message)
            if byte is not None and "trailing characters" in message:
                return inside.rfind(b"]", 0, int(byte[1]) - 1) + 1
            if not at_end:
                return None
            if "truncated" in message:
                at = text.consumed + len(inside)
                raise text.error("the file is cut off in the middle", at) from error
            reason = _BYTE.sub("", message).removeprefix("JSON is malformed:").strip()
            at = text.consumed + (int(byte[1]) - 1 if byte else 0)
            raise text.error(f"is not valid JSON: {reason}", at) from error
        if at_end:
            self._is_over = True
        return events

    def _wrong_event(self, text: _Text, message: str) -> TraceError:
        found = _EVENT.search(message)
        place = f"event {self.count + int(found[1]):,}" if found else None
        field = found[2].lstrip(".") if found else ""
        reason = _EVENT.sub("", message)
        return TraceError(f"{field}: {reason}" if field else reason, path=text.path, place=place)

    def _last_batch(self, text: _Text, end: int) -> list[TraceEvent]:
        """Return the events up to the end of the list, and read the header that follows it."""
        try:
            batch = _EVENTS.decode(b"[" + text.buffer[:end])
        except UNREADABLE_JSON as error:
            raise text.error("is not valid JSON: brackets do not match", text.consumed + end) from error
        text.drop(end)
        while not text.is_over:
            if len(text.buffer) > MAX_BETWEEN_CUTS:
                raise text.error(f"more than {MAX_BETWEEN_CUTS >> 20} MiB follow the events", text.consumed)
            text.more()
        self._tail(text)
        self._is_over = True
        return batch

    def _tail(self, text: _Text) -> None:
        rest = text.buffer.strip()
        if not rest:
            return
        inside = rest[1:].lstrip() if rest.startswith(b",") else rest
        try:
            found = _HEADER.decode(b"{" + inside)
        except UNREADABLE_JSON as error:
            raise text.error(f"is not valid JSON after its events: {error}", text.consumed) from error
        self.header.base_ns = found.base_ns if found.base_ns is not None else self.header.base_ns
        self.header.distributed = found.distributed or self.header.distributed


def _last_cut(buffer: bytes) -> tuple[int, int] | None:
    """Return the end of the last ``}`` that is followed by ``,`` and ``{``, and the begin of that ``{``."""
    end = len(buffer)
    while end > 0:
        begin = max(0, end - _BLOCK)
        cuts = list(_CUT.finditer(buffer, begin, end + _LONGEST_CUT))
        if cuts:
            return cuts[-1].start() + 1, cuts[-1].end() - 1
        end = begin
    return None
