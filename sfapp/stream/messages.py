"""What goes over the wire between ranks and aggregator: msgspec structs in MessagePack, versioned.

A rank's stream is a row of *elements* that are counted from 0 without a hole: a window is opened (one
element), has its steps (one each) and is closed (one). An element's number is its sequence; (rank,
incarnation, sequence) names it for good, whatever is sent again or in other portions. What is sent of it:
``Opened``, ``Steps``, ``Closed``, and ``Gap`` for elements that had to be discarded. Other messages have no
sequence: the newest counts, or none.

Version 1 is TraceML's single-node message, ``{"rank", "sampler", "tables"}`` without identity or version:
accepted as node 0 (``LegacyTables``). A newer version than ours is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from sfapp.errors import CaptureError, StreamError, StreamVersionError
from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.model.manifest import (
    Accumulation,
    ClosedBy,
    Overhead,
    Parallelism,
    Prefetch,
    RecorderInfo,
    Wrapper,
)
from sfapp.model.samples import AnySample
from sfapp.model.stages import MAX_NAME_LENGTH

VERSION = 2
"""The newest version of the messages that is understood, and the one that is sent."""

MAX_MESSAGE_BYTES = 8 << 20
"""Longer messages are dropped and counted; nobody who keeps to the protocol sends one."""

PIECE_BYTES = 512 << 10
"""Operator events travel in pieces of so many bytes."""

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
Text = Annotated[str, Meta(max_length=1000)]
Token = Annotated[str, Meta(max_length=64)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Rank = Annotated[int, Meta(ge=0, le=2**31 - 1)]
LocalRank = Annotated[int, Meta(ge=0, lt=1024)]
Stages = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=4096)]
Nanoseconds = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Message(Struct, frozen=True, kw_only=True, tag_field="type"):
    """What every message of a rank says.

    Attributes:
        v: version of the messages.
        rank: global rank.
        incarnation: of the process that records; one that is started again has another.
    """

    v: int
    rank: Rank
    incarnation: Token


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """Who the rank is, in which job: said before anything else, and again whenever the aggregator asks.

    Attributes:
        run_id: the run's name, the same on all ranks.
        attempt: the same on all ranks that were started together, another once they are started again (also
            when the world has changed). Windows are put together within an attempt.
        first_window: number of the attempt's first window, the same on all its ranks.
        first: sequence of the first element that the rank still has: those before it are acknowledged.
        local_rank, node_rank, hostname: where the rank runs.
        wrapper, parallelism, prefetch, model_fit, recorder, extra: what the packet says (packet.md).
    """

    run_id: Name
    attempt: Token
    first_window: Count = 0
    first: Count = 0
    world_size: Annotated[int, Meta(ge=1, le=2**31)]
    local_rank: Rank = 0
    node_rank: Rank = 0
    hostname: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] = ""
    wrapper: Wrapper = "other"
    parallelism: Parallelism = Parallelism()
    prefetch: Prefetch = "unknown"
    model_fit: bool = False
    recorder: RecorderInfo = RecorderInfo()
    extra: dict[str, Any] = {}


class Opened(Message, frozen=True, kw_only=True, tag="opened"):
    """A window begins. What it says holds for all its steps (accounting.md §9).

    Attributes:
        window: the rank's number of it; all ranks of an attempt number alike.
        broad: the ordered explicit stages as the trainer names them.
        stages: the stage columns: micro-steps kept apart, the residual last.
    """

    sequence: Count
    window: Count
    broad: Stages
    stages: Stages
    accumulation: Accumulation = Accumulation()
    role: Name | None = None


class Steps(Message, frozen=True, kw_only=True, tag="steps"):
    """Closed steps of the window under way, every 200 ms or so.

    Attributes:
        sequence: of the first step.
        rows: int64, little-endian, [n, 2 + S]: step number, wall ns, then the window's stages in order, ns.
        side: the side-channel values known so far, float64 [n] little-endian, NaN where there is none; those
            that come later (device events) are in ``Closed``.
    """

    sequence: Count
    window: Count
    rows: bytes
    side: dict[Name, bytes] = {}


class Closed(Message, frozen=True, kw_only=True, tag="closed"):
    """A window ends.

    Attributes:
        steps: how many steps it has; less than arrived is impossible, more means that they were discarded.
        side: every side channel over all steps, float64 [steps] little-endian, unsampled ones by their bits
            (``sfapp.recorder.side_channels.channels``).
        faults: telemetry faults by code, with what was seen first.
        side_faults: why a side channel lacks a value.
        nested_ns: time in stages nested in others, which was dropped.
    """

    sequence: Count
    window: Count
    steps: Count
    closed_by: ClosedBy = "full"
    started_at_ns: Nanoseconds | None = None
    ended_at_ns: Nanoseconds | None = None
    side: dict[Name, bytes] = {}
    faults: dict[Name, Text] = {}
    side_faults: dict[Name, Text] = {}
    overhead: Overhead = Overhead()
    nested_ns: Count = 0


class Gap(Message, frozen=True, kw_only=True, tag="gap"):
    """The elements ``sequence`` to ``until − 1`` were discarded before they could be delivered.

    Attributes:
        first_window, last_window: the windows that they belong to.
        steps: how many steps are among them.
    """

    sequence: Count
    until: Count
    first_window: Count
    last_window: Count
    steps: Count = 0
    reason: Text = ""


class Samples(Message, frozen=True, kw_only=True, tag="samples"):
    """What was measured beside the steps: of the node, its devices, the process (``sfapp.model.samples``).

    Not part of the sequence: what is lost is not sent again.
    """

    samples: Annotated[tuple[AnySample, ...], Meta(max_length=4096)]


class Heartbeat(Message, frozen=True, kw_only=True, tag="heartbeat"):
    """I am here; the aggregator answers with an ``Echo``.

    Attributes:
        sent: the sequence that comes next; if the aggregator waits for an earlier one, something was lost.
        sent_ns: when this left, ns since 1970 of the rank's clock.
        offset_ns, uncertainty_ns: what the rank makes of the difference to the aggregator's clock so far.
    """

    sent: Count
    sent_ns: Nanoseconds
    offset_ns: float | None = None
    uncertainty_ns: float | None = None


class Bye(Message, frozen=True, kw_only=True, tag="bye"):
    """The recorder was closed; ``sequence`` elements were recorded in all."""

    sequence: Count


class _OfCapture(Message, frozen=True, kw_only=True):
    """What a rank says of captures is a row of its own, kept and sent again until it is heard.

    Attributes:
        number: its place there, counted from 0.
        first: number of the first that the rank still keeps.
        capture: the request's id.
    """

    number: Count
    first: Count
    capture: Token


class CaptureSaid(_OfCapture, frozen=True, kw_only=True, tag="capture_said"):
    """What the rank does about a request, with its own window numbers."""

    said: RankCapture


class CapturePiece(_OfCapture, frozen=True, kw_only=True, tag="capture_piece"):
    """A part of the file of operator events of one window (operators.md).

    Attributes:
        window: the rank's number of it.
        piece, pieces: which of how many.
        clock_offset_ns: what to add to its times to have the aggregator's clock, as well as the rank knows.
    """

    window: Count
    piece: Annotated[int, Meta(ge=0, lt=512)]
    pieces: Annotated[int, Meta(ge=1, le=512)]
    content: Annotated[bytes, Meta(max_length=PIECE_BYTES)]
    clock_offset_ns: Annotated[int, Meta(ge=-(2**61), le=2**61)] = 0


FromRank: TypeAlias = (
    Hello | Opened | Steps | Closed | Gap | Samples | Heartbeat | Bye | CaptureSaid | CapturePiece
)
"""What a rank sends."""


class Ack(Message, frozen=True, kw_only=True, tag="ack"):
    """To the rank: elements below ``up_to_sequence`` are in packets on disk and need not be kept."""

    up_to_sequence: Count


class Resend(Message, frozen=True, kw_only=True, tag="resend"):
    """To the rank: say hello if ``hello``, and go on from element ``sequence``."""

    sequence: Count
    hello: bool = False


class Echo(Message, frozen=True, kw_only=True, tag="echo"):
    """To the rank: the answer to its ``Heartbeat``, for the difference of the clocks.

    Attributes:
        sent_ns: as it was in the heartbeat.
        received_ns, replied_ns: ns since 1970 of the aggregator's clock.
    """

    sent_ns: Nanoseconds
    received_ns: Nanoseconds
    replied_ns: Nanoseconds


class Refused(Message, frozen=True, kw_only=True, tag="refused"):
    """To the rank: what it sends is not taken, now or ever, and why (a newer version, say)."""

    reason: Text


class CaptureAsked(Message, frozen=True, kw_only=True, tag="capture_asked"):
    """To the rank: profile these steps; the first one is chosen. Said until the rank says something of it."""

    request: CaptureRequest


class CaptureHeard(Message, frozen=True, kw_only=True, tag="capture_heard"):
    """To the rank: what it said of captures below ``number`` is on disk and need not be kept."""

    number: Count


FromAggregator: TypeAlias = Ack | Resend | Echo | Refused | CaptureAsked | CaptureHeard
"""What the aggregator answers."""


class LegacyTables(Struct, frozen=True):
    """Version 1: a message of a single-node sender that knows no version, no identity and no sequence.

    Attributes:
        rank: the local rank, which on a single node is the global one.
        tables: rows by table; those with a ``step`` and ``events`` are steps.
    """

    rank: LocalRank
    sampler: str
    tables: dict[str, list[dict[str, Any]]]


class _Head(Struct):
    """What every version shares: its number, absent in version 1. TraceML calls it ``_v``."""

    v: int | None = None
    legacy_v: int | None = msgspec.field(default=None, name="_v")


_ENCODER = msgspec.msgpack.Encoder()
_FROM_RANK = msgspec.msgpack.Decoder(FromRank)
_FROM_AGGREGATOR = msgspec.msgpack.Decoder(FromAggregator)
_HEAD = msgspec.msgpack.Decoder(_Head)
_LEGACY = msgspec.msgpack.Decoder(LegacyTables)


def encode(message: Message) -> bytes:
    """A message as bytes."""
    return _ENCODER.encode(message)


def decode_from_rank(raw: bytes | memoryview) -> FromRank | LegacyTables:
    """What a rank has sent.

    Raises:
        StreamVersionError: it is of a newer version.
        StreamError: it is too long, no message, or one that breaks a rule.
    """
    if len(raw) > MAX_MESSAGE_BYTES:
        raise StreamError(f"a message of {len(raw):,} bytes: at most {MAX_MESSAGE_BYTES:,} are taken")
    try:
        message: FromRank = _FROM_RANK.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError, CaptureError) as error:
        return _decode_legacy(raw, error)
    _check_version(message.v)
    return message


def decode_from_aggregator(raw: bytes) -> FromAggregator:
    """What the aggregator has answered.

    Raises:
        StreamVersionError: it is of a newer version.
        StreamError: it is no message.
    """
    try:
        message: FromAggregator = _FROM_AGGREGATOR.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError, CaptureError) as error:
        raise StreamError(f"no answer of an aggregator: {_one_line(error)}") from error
    _check_version(message.v)
    return message


class _Sender(Struct):
    """Who sent a message, whatever else it says."""

    rank: Rank
    incarnation: Token


_SENDER = msgspec.msgpack.Decoder(_Sender)


def sender_of(raw: bytes | memoryview) -> tuple[int, str] | None:
    """Rank and incarnation that a message of any version names, None where it names none."""
    try:
        found = _SENDER.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return found.rank, found.incarnation


def _decode_legacy(raw: bytes | memoryview, fault: Exception) -> LegacyTables:
    """A message of version 1, if it is one; else what is wrong with it as one of ours."""
    try:
        head = _HEAD.decode(raw)
        version = head.v if head.v is not None else head.legacy_v
        if version is not None:
            _check_version(version, says_ours=head.v is not None)
            raise StreamError(f"a wrong message: {_one_line(fault)}")
        return _LEGACY.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise StreamError(f"no message: {_one_line(error)}") from error


def _check_version(version: int, says_ours: bool = True) -> None:
    if version > VERSION or not says_ours:
        raise StreamVersionError(
            f"messages of version {version}, newer than version {VERSION}, the newest understood here: "
            "install a newer sfapp where the aggregator runs"
        )
    if version < VERSION:
        raise StreamError(f"messages of version {version} do not look like this")


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
