"""Convert a window's buffer into messages, and a part on disk back into a buffer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from sfapp.errors import PacketError, describe_error
from sfapp.model.host_evidence import EVIDENCE_PREFIX
from sfapp.model.manifest import Overhead
from sfapp.model.stages import RESIDUAL
from sfapp.model.window import Window
from sfapp.packets.window_rows import WindowBuffer, WindowSchema, unsampled
from sfapp.stream.messages import MAX_MESSAGE_BYTES, VERSION, Steps, WindowClosed, WindowOpened


@dataclass(frozen=True, slots=True)
class ElementId:
    """Identity of one element of a stream: the first one that a message carries."""

    rank: int
    incarnation: str
    sequence: int


def opened_message(element: ElementId, buffer: WindowBuffer, attempt: str) -> WindowOpened:
    """Return the message that opens the buffer's window in an attempt at the run."""
    return WindowOpened(
        v=VERSION,
        rank=element.rank,
        incarnation=element.incarnation,
        sequence=element.sequence,
        window=buffer.number,
        broad=buffer.schema.broad,
        stages=buffer.schema.stages,
        accumulation=buffer.schema.accumulation,
        role=buffer.schema.role,
        coordinates=dict(buffer.schema.coordinates) or UNSET,
        attempt=attempt,
    )


def steps_message(element: ElementId, buffer: WindowBuffer, begin: int, end: int) -> Steps:
    """Return the message with the window's steps ``begin`` to ``end − 1``, by their index in the window."""
    return Steps(
        v=VERSION,
        rank=element.rank,
        incarnation=element.incarnation,
        sequence=element.sequence,
        window=buffer.number,
        rows=_little_endian(buffer.row_NC[begin:end]),
        side={
            name: _little_endian(values[begin:end])
            for name, values in tuple(buffer.side.items())
            if not name.startswith(EVIDENCE_PREFIX)
        },
    )


def closed_message(element: ElementId, buffer: WindowBuffer) -> WindowClosed:
    """Return the message that closes the buffer's window."""
    encoded = {name: _little_endian(values[: buffer.filled]) for name, values in buffer.side.items()}
    evidence = {name: _shortened(raw) for name, raw in encoded.items() if name.startswith(EVIDENCE_PREFIX)}
    side = {name: raw for name, raw in encoded.items() if name not in evidence}
    side_faults = dict(buffer.side_faults)
    reason = "too large to stream: record fewer steps per window, or gather instead"
    if _size(side) > MAX_MESSAGE_BYTES // 2:
        side_faults |= dict.fromkeys(side, reason)
        side = {}
    if _size(side) + _size(evidence) > MAX_MESSAGE_BYTES // 2:
        side_faults[EVIDENCE_PREFIX.rstrip(".")] = reason
        evidence = {}
    return WindowClosed(
        v=VERSION,
        rank=element.rank,
        incarnation=element.incarnation,
        sequence=element.sequence,
        window=buffer.number,
        steps=buffer.filled,
        closed_by=buffer.closed_by,
        started_at_ns=_unix_ns(buffer.started_at),
        ended_at_ns=_unix_ns(buffer.ended_at),
        side=side,
        evidence=evidence or UNSET,
        faults=dict(buffer.faults),
        side_faults=side_faults,
        overhead=Overhead(record_ns=buffer.record_ns, train_ns=buffer.train_ns),
        nested_ns=buffer.nested_ns,
    )


def buffer_from_part(window: Window) -> WindowBuffer:
    """Return the buffer that a rank's own part was written from.

    Raises:
        PacketError: the recorder did not write this part.
    """
    try:
        return _buffer_from_part(window)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise PacketError(f"is no part of this recorder: {describe_error(error)}") from error


def _buffer_from_part(window: Window) -> WindowBuffer:
    manifest = window.manifest
    planes_CN = [window.step_N, window.wall_NR[:, 0], *window.duration_SNR[:, :, 0]]
    broad = tuple(name for name in window.broad_stages if name != RESIDUAL)
    details = manifest.extra.get("faults_seen", {})
    rank = window.ranks.identity(0)
    buffer = WindowBuffer(
        WindowSchema(broad, window.stages, manifest.accumulation, rank.role, (), rank.coordinates),
        window.number,
        np.column_stack(planes_CN),
        filled=len(window.step_N),
        faults={code: str(details.get(code, "")) for code in manifest.faults},
        side_faults=dict(manifest.extra.get("side_faults", {})),
        nested_ns=int(manifest.extra.get("nested_ns", 0)),
        record_ns=manifest.overhead.record_ns,
        train_ns=manifest.overhead.train_ns,
        closed_by=manifest.closed_by,
        started_at=_datetime_from_iso(manifest.started_at),
        ended_at=_datetime_from_iso(manifest.ended_at),
    )
    for name, channel in window.side.items():
        bits = np.ascontiguousarray(channel.value_NR[:, 0]).view(np.int64)
        unsampled_bits = unsampled(1).view(np.int64)
        buffer.side[name] = np.where(channel.sampled_NR[:, 0], bits, unsampled_bits).view(np.float64)
    return buffer


def datetime_from_ns(unix_ns: int | None) -> datetime | None:
    """Return a time from a message in the recorder's format."""
    return None if unix_ns is None else datetime.fromtimestamp(unix_ns // 1000 / 1e6, UTC)


def evidence_values(raw: bytes, steps: int) -> npt.NDArray[np.float64]:
    """Return a channel of host evidence from a message: float64 [steps]."""
    values = np.frombuffer(raw, dtype="<f8")
    return np.repeat(values, steps if len(values) == 1 else 1)


def _shortened(raw: bytes) -> bytes:
    """Return the first value alone if all values are equal."""
    return raw[:8] if raw == raw[:8] * (len(raw) // 8) else raw


def _size(channels: Mapping[str, bytes]) -> int:
    return sum(map(len, channels.values()))


def _little_endian(values: npt.NDArray[np.generic]) -> bytes:
    if sys.byteorder == "big":
        values = values.byteswap()
    return values.tobytes()


def _unix_ns(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1e6) * 1000


def _datetime_from_iso(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
