"""Messages of fixed size that ranks exchange before the rows of a window follow."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from sfapp.errors import describe_error
from sfapp.model.host_evidence import evidence_channels, kinds_among
from sfapp.model.manifest import Accumulation
from sfapp.model.rank_table import RankIdentity
from sfapp.model.stages import stage_hash
from sfapp.packets.window_rows import MAX_CHANNELS, STEP_COLUMN, WindowBuffer
from sfapp.recorder.transport.gather_errors import GatherFailed
from sfapp.recorder.transport.transport_group import AgreedStart

_Message = TypeVar("_Message", bound=msgspec.Struct)

BLOCK_BYTES = 4096
"""Size of every message."""

_SAME = ("window", "stage_hash", "accumulation", "steps", "first", "last")
"""Fields of a header that must be equal on all ranks."""


class GatherHello(msgspec.Struct, frozen=True):
    """Message of a rank when the group is created."""

    run_id: str
    next_window: int
    next_step: int
    rank: int
    local_rank: int
    node_rank: int
    hostname: str
    attempt: str = ""
    attributes: dict[str, str] = {}

    @classmethod
    def of(cls, identity: RankIdentity, run_id: str, next_window: int, next_step: int) -> GatherHello:
        """Return this rank's message, with a new name for the attempt."""
        return cls(
            run_id,
            next_window,
            next_step,
            identity.rank,
            identity.local_rank,
            identity.node_rank,
            identity.hostname,
            secrets.token_hex(8),
            dict(identity.attributes),
        )

    @property
    def identity(self) -> RankIdentity:
        """The rank, without what may change between windows."""
        return RankIdentity(
            self.rank, self.local_rank, self.node_rank, self.hostname, attributes=self.attributes
        )

    @property
    def start(self) -> AgreedStart:
        """The agreement of the ranks, if this is rank 0's message to all of them."""
        return AgreedStart(self.run_id, self.attempt, self.next_window, self.next_step)


class GatherHeader(msgspec.Struct, frozen=True):
    """Description of a rank's window, sent before its rows. It names kinds of host evidence and not their
    channels, whose names would not fit into the message beside those of the user's channels."""

    window: int
    stage_hash: str
    accumulation: str
    steps: int
    first: int | None
    last: int | None
    role: str | None
    faults: dict[str, str]
    side: list[str]
    coordinates: dict[str, int] = {}
    evidence: list[str] = []

    @classmethod
    def of(cls, buffer: WindowBuffer) -> GatherHeader:
        """Return the header of a closed window."""
        steps = buffer.rows()[:, STEP_COLUMN]
        return cls(
            window=buffer.number,
            stage_hash=stage_hash(buffer.schema.stages),
            accumulation=accumulation_text(buffer.schema.accumulation),
            steps=len(steps),
            first=int(steps[0]) if len(steps) else None,
            last=int(steps[-1]) if len(steps) else None,
            role=buffer.schema.role,
            faults=buffer.faults,
            side=sorted(buffer.side.keys() - buffer.evidence_channels),
            coordinates=dict(buffer.schema.coordinates),
            evidence=list(buffer.evidence),
        )

    def compared(self) -> list[object]:
        """Return the values that are equal on ranks whose rows match."""
        return [getattr(self, name) for name in (*_SAME, "side", "evidence")]


def digest_of(headers: Sequence[GatherHeader]) -> int:
    """Return a number that is equal on ranks whose rows of these windows match."""
    compared = msgspec.json.encode([header.compared() for header in headers])
    return int.from_bytes(hashlib.blake2b(compared, digest_size=8).digest(), "little") >> 1


class WriteReport(msgspec.Struct, frozen=True):
    """Message of rank 0 after writing.

    Attributes:
        reasons: why each window is not on disk; empty for windows on disk.
        batch_size: number of windows to gather at once from now on.
    """

    reasons: list[str]
    batch_size: int


class GatherPlan(msgspec.Struct, frozen=True):
    """Decision of rank 0 on headers.

    Attributes:
        objection: why the window cannot be combined; empty if it can.
        side: its side channels without host evidence.
        evidence: its kinds of host evidence.
    """

    objection: str = ""
    side: list[str] = []
    evidence: list[str] = []

    def channels(self, stages: Sequence[str]) -> list[str]:
        """Return all its side channels; ``stages`` are those recorded."""
        return [*self.side, *evidence_channels(self.evidence, stages)]


def plan_of(headers: Sequence[GatherHeader]) -> GatherPlan:
    """Return the decision on the ranks' headers."""
    side = sorted({name for header in headers for name in header.side})
    evidence = {kind for header in headers for kind in header.evidence}
    return GatherPlan(_objection(headers), side[:MAX_CHANNELS], list(kinds_among(evidence)))


def _objection(headers: Sequence[GatherHeader]) -> str:
    """Return why these headers cannot become one window; empty if they can."""
    if headers and not any(header.steps for header in headers):
        return "no rank has steps in this window"
    for name in _SAME:
        values = {getattr(header, name) for header in headers}
        if len(values) > 1:
            shown = ", ".join(sorted(str(value)[:24] for value in values)[:4])
            return f"ranks disagree on {name}: {shown}"
    return ""


def accumulation_text(accumulation: Accumulation) -> str:
    """Return the accumulation as text, for comparison between ranks."""
    kept = "ordered" if accumulation.ordered else "collapsed"
    return f"{accumulation.factor} {kept}, sync {accumulation.sync}"[:60]


def faults_of(headers: Sequence[GatherHeader]) -> dict[str, str]:
    """Return every rank's faults by code, with the lowest rank that has each."""
    found: dict[str, str] = {}
    for rank, header in enumerate(headers):
        for code, detail in header.faults.items():
            found.setdefault(code, f"rank {rank}: {detail}" if detail else f"rank {rank}")
    return found


def to_block(message: bytes) -> Any:
    """Return a message as a uint8 tensor of fixed size: its length, then its bytes."""
    import torch

    if len(message) > BLOCK_BYTES - 4:
        raise GatherFailed(f"names of {len(message)} bytes do not fit into a message of {BLOCK_BYTES}")
    sized = len(message).to_bytes(4, "little") + message
    return torch.frombuffer(bytearray(sized.ljust(BLOCK_BYTES, b"\0")), dtype=torch.uint8)


def from_block(block: Any) -> bytes:
    """Return the message in such a tensor."""
    raw: bytes = block.numpy().tobytes()
    return raw[4 : 4 + int.from_bytes(raw[:4], "little")]


def decode_block(block: Any, kind: type[_Message]) -> _Message:
    """Decode the message in such a tensor.

    Raises:
        GatherFailed: it is not of this kind.
    """
    return decode_message(from_block(block), kind)


def decode_message(message: bytes, kind: type[_Message]) -> _Message:
    """Decode a message.

    Raises:
        GatherFailed: it is not of this kind.
    """
    try:
        return msgspec.json.decode(message, type=kind)
    except msgspec.MsgspecError as error:  # Another node runs another version of the recorder.
        raise GatherFailed(describe_error(error)) from error
