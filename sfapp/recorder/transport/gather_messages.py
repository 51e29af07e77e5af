"""What ranks say to each other before the rows of a window follow, as messages of one size."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from sfapp.errors import describe_error
from sfapp.model.manifest import Accumulation
from sfapp.model.stages import stage_hash
from sfapp.model.window import RankIdentity
from sfapp.packets.window_rows import MAX_CHANNELS, STEP_COLUMN, WindowBuffer
from sfapp.recorder.transport.errors import GatherFailed

_Message = TypeVar("_Message", bound=msgspec.Struct)

BLOCK_BYTES = 4096
"""Size of a message: every rank sends as much, whatever it has to say."""

_SAME = ("window", "stage_hash", "accumulation", "steps", "first", "last")
"""Of a header: in what ranks must not differ."""


class Hello(msgspec.Struct, frozen=True):
    """What a rank says when the group is made."""

    run_id: str
    next_window: int
    next_step: int
    rank: int
    local_rank: int
    node_rank: int
    hostname: str
    attempt: str = ""

    @classmethod
    def of(cls, identity: RankIdentity, run_id: str, next_window: int, next_step: int) -> Hello:
        """What this rank says, with a new name for the attempt."""
        return cls(
            run_id,
            next_window,
            next_step,
            identity.rank,
            identity.local_rank,
            identity.node_rank,
            identity.hostname,
            secrets.token_hex(8),
        )


class Header(msgspec.Struct, frozen=True):
    """What a rank says about its window before it sends the rows."""

    window: int
    stage_hash: str
    accumulation: str
    steps: int
    first: int | None
    last: int | None
    role: str | None
    faults: dict[str, str]
    side: list[str]

    @classmethod
    def of(cls, buffer: WindowBuffer) -> Header:
        """The header of a closed window."""
        steps = buffer.rows()[:, STEP_COLUMN]
        return cls(
            window=buffer.number,
            stage_hash=stage_hash(buffer.schema.stages),
            accumulation=spelled(buffer.schema.accumulation),
            steps=len(steps),
            first=int(steps[0]) if len(steps) else None,
            last=int(steps[-1]) if len(steps) else None,
            role=buffer.schema.role,
            faults=buffer.faults,
            side=sorted(buffer.side),
        )

    def compared(self) -> list[object]:
        """What ranks share whose rows fit together as they are."""
        return [getattr(self, name) for name in (*_SAME, "side")]


def digest_of(headers: Sequence[Header]) -> int:
    """A number that ranks share whose rows of these windows fit together as they are."""
    compared = msgspec.json.encode([header.compared() for header in headers])
    return int.from_bytes(hashlib.blake2b(compared, digest_size=8).digest(), "little") >> 1


class Word(msgspec.Struct, frozen=True):
    """What rank 0 says when it has written: of each window why it is not on disk, or nothing if it is; and
    how many windows are to be gathered at once from now on."""

    reasons: list[str]
    together: int


class Plan(msgspec.Struct, frozen=True):
    """What rank 0 makes of the headers: why there will be no window, or which side channels it has."""

    objection: str = ""
    side: list[str] = []


def plan_of(headers: Sequence[Header]) -> Plan:
    """What is to be made of the ranks' headers."""
    side = sorted({name for header in headers for name in header.side})
    return Plan(_objection(headers), side[:MAX_CHANNELS])


def _objection(headers: Sequence[Header]) -> str:
    """Why these headers cannot become one window, or nothing."""
    if headers and not any(header.steps for header in headers):
        return "no rank has steps in this window"
    for name in _SAME:
        values = {getattr(header, name) for header in headers}
        if len(values) > 1:
            shown = ", ".join(sorted(str(value)[:24] for value in values)[:4])
            return f"ranks disagree on {name}: {shown}"
    return ""


def spelled(accumulation: Accumulation) -> str:
    """The accumulation as ranks compare it."""
    kept = "ordered" if accumulation.ordered else "collapsed"
    return f"{accumulation.factor} {kept}, sync {accumulation.sync}"[:60]


def faults_of(headers: Sequence[Header]) -> dict[str, str]:
    """What any rank saw go wrong, by code, with the first that did."""
    found: dict[str, str] = {}
    for rank, header in enumerate(headers):
        for code, detail in header.faults.items():
            found.setdefault(code, f"rank {rank}: {detail}" if detail else f"rank {rank}")
    return found


def framed(message: bytes) -> Any:
    """A message as a tensor of fixed size: its length, then its bytes."""
    import torch

    if len(message) > BLOCK_BYTES - 4:
        raise GatherFailed(f"names of {len(message)} bytes do not fit into a message of {BLOCK_BYTES}")
    sized = len(message).to_bytes(4, "little") + message
    return torch.frombuffer(bytearray(sized.ljust(BLOCK_BYTES, b"\0")), dtype=torch.uint8)


def unframed(block: Any) -> bytes:
    """The message in such a tensor."""
    raw: bytes = block.numpy().tobytes()
    return raw[4 : 4 + int.from_bytes(raw[:4], "little")]


def decoded(block: Any, kind: type[_Message]) -> _Message:
    """The message in such a tensor as what it says.

    Raises:
        GatherFailed: it is nothing of the kind.
    """
    try:
        return msgspec.json.decode(unframed(block), type=kind)
    except msgspec.MsgspecError as error:  # another version of the recorder on another node
        raise GatherFailed(describe_error(error)) from error
