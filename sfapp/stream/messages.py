"""Messages between ranks and the aggregator: msgspec structs, encoded as MessagePack, with a version.

A rank's stream is a sequence of *elements*, counted from 0 without a gap: a window is opened (one element),
has its steps (one element each) and is closed (one element). (rank, incarnation, sequence) identifies an
element for good, however often and in whatever batches it is sent. ``WindowOpened``, ``Steps`` and
``WindowClosed`` carry elements; ``Gap`` replaces elements that were discarded. All other messages have no
sequence.

A message of another version is refused. The tags and field names below are the wire format and must not
change within a version.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from sfapp.model.capture import CAPTURE_ID, CaptureRequest, RankCapture
from sfapp.model.host_evidence import MAX_ATTRIBUTE_LENGTH, MAX_ATTRIBUTES
from sfapp.model.manifest import (
    DIMENSIONS,
    MAX_WORLD_SIZE,
    Accumulation,
    ClosedBy,
    Overhead,
    Parallelism,
    Prefetch,
    RecorderInfo,
    Wrapper,
)
from sfapp.model.parse import MOST_WINDOW
from sfapp.model.samples import AnySample
from sfapp.model.stages import MAX_NAME_LENGTH, MAX_STAGES
from sfapp.model.standstill import MAX_LOOKS, ProcessId, ProcessLook, ReportedPlace

VERSION = 2
"""Version of the messages that are sent and understood."""

MAX_MESSAGE_BYTES = 8 << 20
"""Longer messages are dropped and counted; no recorder sends one."""

PIECE_BYTES = 512 << 10
"""Largest piece of a file of operator events."""

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
Text = Annotated[str, Meta(max_length=1000)]
Token = Annotated[str, Meta(max_length=64)]
CaptureId = Annotated[str, Meta(pattern=rf"^{CAPTURE_ID}\Z")]  # it is a part of a file's name
Count = Annotated[int, Meta(ge=0, le=2**62)]
WindowNumber = Annotated[int, Meta(ge=0, le=MOST_WINDOW)]
Rank = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Stages = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_STAGES)]
RankAttributes = Annotated[
    dict[Name, Annotated[str, Meta(max_length=MAX_ATTRIBUTE_LENGTH)]], Meta(max_length=MAX_ATTRIBUTES)
]
Nanoseconds = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Message(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Fields that every message has.

    Attributes:
        v: version of the messages.
        rank: global rank of the sender, or of the receiver for an answer.
        incarnation: random name of the recording process; a restarted process has another one.
    """

    v: int
    rank: Rank
    incarnation: Token


class StreamHello(Message, frozen=True, kw_only=True, tag="hello"):
    """Identity of a rank and its job: the first message, sent again when the aggregator requests it.

    Attributes:
        run_id: name of the run, the same on all ranks.
        attempt: the same on all ranks that were started together, another one after a restart or a change of
            the world size. A window consists of ranks of one attempt.
        first_window: number of the attempt's first window, the same on all its ranks.
        first: sequence of the first element that the rank still holds; earlier elements are acknowledged.
        local_rank, node_rank, hostname: where the rank runs.
        attributes: attributes of the rank's machine and job; not sent if there are none.
        understands: kinds of capture requests that the recorder understands; older ones do not send it, and
            understand profiles only.
        process_seconds: since the process was started, when this message was made; not sent if not known.
        wrapper, parallelism, prefetch, model_fit, recorder, extra: fields of the packet (packet.md).
    """

    run_id: Name
    attempt: Token
    first_window: WindowNumber = 0
    first: Count = 0
    world_size: Annotated[int, Meta(ge=1, le=MAX_WORLD_SIZE)]
    local_rank: Rank = 0
    node_rank: Rank = 0
    hostname: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] = ""
    attributes: RankAttributes | UnsetType = UNSET
    understands: Annotated[tuple[Token, ...], Meta(max_length=16)] | UnsetType = UNSET
    process_seconds: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    wrapper: Wrapper = "other"
    parallelism: Parallelism = Parallelism()
    prefetch: Prefetch = "unknown"
    model_fit: bool = False
    recorder: RecorderInfo = RecorderInfo()
    extra: dict[str, Any] = {}


class WindowOpened(Message, frozen=True, kw_only=True, tag="opened"):
    """Start of a window. Its fields hold for all steps of the window (accounting.md §9).

    Attributes:
        window: the rank's number of the window; all ranks of an attempt count equally.
        broad: the ordered explicit stages, as named by the training loop.
        stages: the stage columns: one per micro-step, the residual last.
        coordinates: the rank's place in the parallel layout, by dimension; not sent if not known.
        attempt: as in the rank's hello, which may be lost; recorders of older versions do not send it.
    """

    sequence: Count
    window: WindowNumber
    broad: Stages
    stages: Stages
    accumulation: Accumulation = Accumulation()
    role: Name | None = None
    coordinates: Annotated[dict[Name, Rank], Meta(max_length=len(DIMENSIONS))] | UnsetType = UNSET
    attempt: Token | UnsetType = UNSET


class Steps(Message, frozen=True, kw_only=True, tag="steps"):
    """Finished steps of the open window, sent about every 200 ms.

    Attributes:
        sequence: of the first step.
        rows: int64, little-endian, [n, 2 + S]: step number, wall ns, then the window's stages in order, ns.
        side: side-channel values known so far, float64 [n] little-endian, NaN where there is none; values
            that arrive later (device events) are in ``WindowClosed``.
    """

    sequence: Count
    window: WindowNumber
    rows: bytes
    side: dict[Name, bytes] = {}


class WindowClosed(Message, frozen=True, kw_only=True, tag="closed"):
    """End of a window.

    Attributes:
        steps: number of steps of the window, which must equal the number that arrived.
        side: every side channel over all steps, float64 [steps] little-endian; unsampled values are marked by
            their bits (``sfapp.recorder.side_channels.channels``).
        evidence: channels of host evidence over all steps, as ``side``; one value if all are equal. Not sent
            if there are none.
        faults: telemetry faults by code, with the first detail seen.
        side_faults: per side channel, why values are missing.
        nested_ns: time in nested stages, which was dropped.
    """

    sequence: Count
    window: WindowNumber
    steps: Count
    closed_by: ClosedBy = "full"
    started_at_ns: Nanoseconds | None = None
    ended_at_ns: Nanoseconds | None = None
    side: dict[Name, bytes] = {}
    evidence: dict[Name, bytes] | UnsetType = UNSET
    faults: dict[Name, Text] = {}
    side_faults: dict[Name, Text] = {}
    overhead: Overhead = Overhead()
    nested_ns: Count = 0


class Gap(Message, frozen=True, kw_only=True, tag="gap"):
    """Elements ``sequence`` to ``until − 1`` were discarded before they could be delivered.

    Attributes:
        first_window, last_window: windows that the elements belong to.
        steps: number of steps among them.
    """

    sequence: Count
    until: Count
    first_window: WindowNumber
    last_window: WindowNumber
    steps: Count = 0
    reason: Text = ""


class Samples(Message, frozen=True, kw_only=True, tag="samples"):
    """System metrics of the node, its devices and the process (``sfapp.model.samples``).

    Not part of the sequence: lost samples are not sent again.
    """

    samples: Annotated[tuple[AnySample, ...], Meta(max_length=4096)]


class Heartbeat(Message, frozen=True, kw_only=True, tag="heartbeat"):
    """Heartbeat, to which the aggregator responds with an ``Echo``.

    Attributes:
        sent: the next sequence. If the aggregator expects an earlier one, a message was lost.
        sent_ns: when this message left, ns since 1970 by the rank's clock.
        offset_ns, uncertainty_ns: the rank's estimate of the difference to the aggregator's clock.
        process_seconds: as in ``StreamHello``.
        place: where the training thread is; not sent if it is not known.
        looks: states of the processes that the last ``Echo`` asked for; not sent if it asked for none.
    """

    sent: Count
    sent_ns: Nanoseconds
    offset_ns: float | None = None
    uncertainty_ns: float | None = None
    process_seconds: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    place: ReportedPlace | UnsetType = UNSET
    looks: Annotated[tuple[ProcessLook, ...], Meta(max_length=MAX_LOOKS)] | UnsetType = UNSET


class Bye(Message, frozen=True, kw_only=True, tag="bye"):
    """The recorder was closed after ``sequence`` elements in all."""

    sequence: Count


class _CaptureMessage(Message, frozen=True, kw_only=True):
    """Fields of a rank's messages about captures, which have a sequence of their own.

    Attributes:
        number: position in that sequence, counted from 0.
        first: number of the first message that the rank still holds.
        capture: id of the request.
    """

    number: Count
    first: Count
    capture: CaptureId


class CaptureReport(_CaptureMessage, frozen=True, kw_only=True, tag="capture_said"):
    """The state of a capture on the rank, with its own window numbers; of stacks, also on its neighbours.
    Tag and name of the field are those of the protocol, which older ranks and aggregators use too."""

    state: RankCapture = msgspec.field(name="said")


class CapturePiece(_CaptureMessage, frozen=True, kw_only=True, tag="capture_piece"):
    """One piece of a file: one window's operator events (operators.md), stacks, or a Flight Recorder dump.

    Attributes:
        window: the rank's number of the window. piece, pieces: index and number of pieces.
        holds, of_rank: kind of file; of stacks, the rank, which may be another one of the sender's machine.
        clock_offset_ns: estimated offset from the events' times to the aggregator's clock.
    """

    window: WindowNumber
    piece: Annotated[int, Meta(ge=0, lt=512)]
    pieces: Annotated[int, Meta(ge=1, le=512)]
    content: Annotated[bytes, Meta(max_length=PIECE_BYTES)]
    clock_offset_ns: Annotated[int, Meta(ge=-(2**61), le=2**61)] = 0
    of_rank: Rank = 0
    holds: Literal["events", "stacks", "dump"] = "events"


FromRank: TypeAlias = (
    StreamHello
    | WindowOpened
    | Steps
    | WindowClosed
    | Gap
    | Samples
    | Heartbeat
    | Bye
    | CaptureReport
    | CapturePiece
)
"""Messages from a rank."""


class Ack(Message, frozen=True, kw_only=True, tag="ack"):
    """Elements below ``up_to_sequence`` are in packets on disk; the rank can release them."""

    up_to_sequence: Count


class Resend(Message, frozen=True, kw_only=True, tag="resend"):
    """Request to send a ``StreamHello`` if ``hello`` is set, and to continue from element ``sequence``."""

    sequence: Count
    hello: bool = False


class Echo(Message, frozen=True, kw_only=True, tag="echo"):
    """Answer to a ``Heartbeat``, from which the rank estimates the difference of the clocks.

    Attributes:
        sent_ns: copied from the heartbeat.
        received_ns, replied_ns: ns since 1970 by the aggregator's clock.
        look_at: silent processes of the rank's host, of which the next heartbeat reports the states; not sent
            if there are none.
    """

    sent_ns: Nanoseconds
    received_ns: Nanoseconds
    replied_ns: Nanoseconds
    look_at: Annotated[tuple[ProcessId, ...], Meta(max_length=MAX_LOOKS)] | UnsetType = UNSET


class Refused(Message, frozen=True, kw_only=True, tag="refused"):
    """The aggregator refuses this stream for good, for example because its version is newer."""

    reason: Text


class CaptureCommand(Message, frozen=True, kw_only=True, tag="capture_asked"):
    """Request to profile these steps, with ``first_step`` set, or for stacks. Sent again until the rank
    reports on it."""

    request: CaptureRequest


class CaptureAck(Message, frozen=True, kw_only=True, tag="capture_heard"):
    """Capture messages below ``number`` are on disk; the rank can release them."""

    number: Count


FromAggregator: TypeAlias = Ack | Resend | Echo | Refused | CaptureCommand | CaptureAck
"""Answers of the aggregator."""


_ENCODER = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """Return the message as MessagePack."""
    return _ENCODER.encode(message)
