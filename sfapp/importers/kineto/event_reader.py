"""Events out of a trace file, batch by batch: the file is never held as a whole.

A Kineto file is one JSON object whose ``traceEvents`` is a list of events (or that list alone). A batch is
cut where ``},`` meets ``{`` and decoded as a list of its own. Such a cut may lie inside a string or a nested
list; then what precedes it is no whole list and does not decode, and more of the file is taken for another
cut. So the decoder decides what is whole, and a cut that decodes is right.

Only what is named here is decoded; whatever else a file holds (environment variables, say) is passed over.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from sfapp.errors import TraceError

CHUNK = 2**18
"""Bytes of text that are decoded at once."""

MOST_BETWEEN_CUTS = 64 * 2**20
"""Bytes that one event, or all that stands beside the events, may take."""

MOST_BYTES = 64 * 2**30
"""Bytes of text in one file, expanded."""

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BEFORE_NEXT = re.compile(rb"\}\s*,\s*\Z")
_BYTE = re.compile(r"\(byte (\d+)\)$")
_EVENT = re.compile(r" - at `\$\[(\d+)\](.*)`$")


class Args(msgspec.Struct, gc=False):
    """What is read of an event's arguments; anything of another type than these is taken as absent later."""

    correlation: Any = None
    sequence_number: Any = msgspec.field(name="Sequence number", default=None)
    collective: Any = msgspec.field(name="Collective name", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)


class Event(msgspec.Struct, gc=False):
    """One event; times in µs."""

    ph: str = ""
    cat: str | None = None
    name: str | int | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: Args | None = None


class DistributedInfo(msgspec.Struct):
    """Which rank of how many wrote the file."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None


class Header(msgspec.Struct):
    """What is read beside the events."""

    distributed: DistributedInfo | None = msgspec.field(name="distributedInfo", default=None)
    base_ns: int | None = msgspec.field(name="baseTimeNanoseconds", default=None)


_EVENTS = msgspec.json.Decoder(list[Event])
_HEADER = msgspec.json.Decoder(Header)


@dataclass(slots=True)
class _Text:
    """The text of a file from some byte on."""

    file: IO[bytes]
    path: str
    buffer: bytes = b""
    consumed: int = 0
    read: int = 0
    is_over: bool = False

    def more(self) -> None:
        """Append the next chunk, at least as much as is there, so that trying again stays cheap."""
        if self.read > MOST_BYTES:
            raise self.error(f"expands to more than {MOST_BYTES >> 30} GiB")
        try:
            found = self.file.read(max(CHUNK, len(self.buffer)))
        except EOFError as error:
            raise self.error("the file ends in the middle: it was cut off", self.read) from error
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
    """The events of one file.

    Attributes:
        header: what stands beside the events; complete once all batches were taken.
        count: events seen so far.

    Raises (from ``batches``):
        TraceError: the file cannot be read, is cut off, no JSON, or no trace.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = Header()
        self.count = 0
        self._is_over = False

    def batches(self) -> Iterator[list[Event]]:
        """The events in the order of the file, some thousands at a time."""
        try:
            with _opened(self.path) as file:
                text = _Text(file, str(self.path))
                self._head(text)
                while not self._is_over:
                    batch = self._batch(text)
                    yield batch
                    self.count += len(batch)
        except OSError as error:
            raise TraceError(f"cannot be read: {error.strerror or error}", path=str(self.path)) from error

    def _head(self, text: _Text) -> None:
        """Take everything before the first event."""
        text.more()
        while True:
            start = text.buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
            if start.startswith(b"["):
                text.drop(len(text.buffer) - len(start) + 1)
                return
            for found in _EVENTS_KEY.finditer(text.buffer):
                header = self._header(text.buffer[: found.end()] + b"]}")
                if header is not None:
                    self.header = header
                    text.drop(found.end())
                    return
            if text.is_over or (start and not start.startswith(b"{")):
                raise text.error("is no trace: JSON with a list 'traceEvents' is expected")
            if len(text.buffer) > MOST_BETWEEN_CUTS:
                raise text.error(f"has no 'traceEvents' in its first {MOST_BETWEEN_CUTS >> 20} MiB")
            text.more()

    def _header(self, raw: bytes) -> Header | None:
        try:
            return _HEADER.decode(raw)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None  # inside a string or another object: not the list of events

    def _batch(self, text: _Text) -> list[Event]:
        """The next events; with the last ones, what follows them is taken too."""
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
            # No event ends here, or the cut lies inside one: with more of the file the last cut is another.
            if len(text.buffer) > MOST_BETWEEN_CUTS:
                raise text.error(f"one event is longer than {MOST_BETWEEN_CUTS >> 20} MiB", text.consumed)
            text.more()
        found = self._decode(text, text.buffer, at_end=True)
        return found if isinstance(found, list) else self._last_batch(text, found or 0)

    def _decode(self, text: _Text, inside: bytes, *, at_end: bool = False) -> list[Event] | int | None:
        """The events of a list whose inside this is; or where the list ended, if it ended within; or None
        where this is no whole list, which is an error at the end of the file."""
        try:
            events = _EVENTS.decode(b"[" + inside)
        except msgspec.ValidationError as error:
            raise self._wrong_event(text, str(error)) from error
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            message = str(error)
            byte = _BYTE.search(message)
            if byte is not None and "trailing characters" in message:
                return inside.rfind(b"]", 0, int(byte[1]) - 1) + 1
            if not at_end:
                return None
            if "truncated" in message:
                at = text.consumed + len(inside)
                raise text.error("the file ends in the middle: it was cut off", at) from error
            reason = _BYTE.sub("", message).removeprefix("JSON is malformed:").strip()
            at = text.consumed + (int(byte[1]) - 1 if byte else 0)
            raise text.error(f"is no JSON: {reason}", at) from error
        if at_end:
            self._is_over = True
        return events

    def _wrong_event(self, text: _Text, message: str) -> TraceError:
        found = _EVENT.search(message)
        place = f"event {self.count + int(found[1]):,}" if found else None
        field = found[2].lstrip(".") if found else ""
        reason = _EVENT.sub("", message)
        return TraceError(f"{field}: {reason}" if field else reason, path=text.path, place=place)

    def _last_batch(self, text: _Text, end: int) -> list[Event]:
        """The events up to where the list ends, and the header that follows it."""
        try:
            batch = _EVENTS.decode(b"[" + text.buffer[:end])
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise text.error("is no JSON: brackets do not match", text.consumed + end) from error
        text.drop(end)
        while not text.is_over:
            if len(text.buffer) > MOST_BETWEEN_CUTS:
                raise text.error(f"more than {MOST_BETWEEN_CUTS >> 20} MiB follow the events", text.consumed)
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
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise text.error(f"is no JSON after its events: {error}", text.consumed) from error
        self.header.base_ns = found.base_ns if found.base_ns is not None else self.header.base_ns
        self.header.distributed = found.distributed or self.header.distributed


def _last_cut(buffer: bytes) -> tuple[int, int] | None:
    """Where the last ``}`` ends that ``,`` and ``{`` follow, and where that ``{`` begins."""
    end = len(buffer)
    while (brace := buffer.rfind(b"{", 0, end)) > 0:
        found = _BEFORE_NEXT.search(buffer, max(0, brace - 64), brace)
        if found is not None:
            return found.start() + 1, brace
        end = brace
    return None


def _opened(path: Path) -> IO[bytes]:
    """The file's text, unpacked where it is packed, whatever its name says."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path)) if packed else path.open("rb")
