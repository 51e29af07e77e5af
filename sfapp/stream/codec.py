"""A window's buffer as the messages that carry it, and back from a part on disk."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from sfapp.model.manifest import Overhead
from sfapp.model.stages import RESIDUAL
from sfapp.model.window import Window
from sfapp.packets.window_rows import WindowBuffer, WindowSchema, unsampled
from sfapp.stream.messages import MAX_MESSAGE_BYTES, VERSION, Steps, WindowClosed, WindowOpened


@dataclass(frozen=True, slots=True)
class ElementId:
    """Whose element of which sequence a message begins with."""

    rank: int
    incarnation: str
    sequence: int


def opened(place: ElementId, buffer: WindowBuffer) -> WindowOpened:
    """The window begins."""
    return WindowOpened(
        v=VERSION,
        rank=place.rank,
        incarnation=place.incarnation,
        sequence=place.sequence,
        window=buffer.number,
        broad=buffer.schema.broad,
        stages=buffer.schema.stages,
        accumulation=buffer.schema.accumulation,
        role=buffer.schema.role,
    )


def steps(place: ElementId, buffer: WindowBuffer, begin: int, end: int) -> Steps:
    """Its steps from the place ``begin`` in the window to before ``end``."""
    return Steps(
        v=VERSION,
        rank=place.rank,
        incarnation=place.incarnation,
        sequence=place.sequence,
        window=buffer.number,
        rows=_little(buffer.row_NC[begin:end]),
        side={name: _little(values[begin:end]) for name, values in tuple(buffer.side.items())},
    )


def closed(place: ElementId, buffer: WindowBuffer) -> WindowClosed:
    """The window ends."""
    side = {name: _little(values[: buffer.filled]) for name, values in buffer.side.items()}
    side_faults = dict(buffer.side_faults)
    if sum(map(len, side.values())) > MAX_MESSAGE_BYTES // 2:
        side_faults |= dict.fromkeys(side, "too long to be streamed: fewer steps a window, or gather instead")
        side = {}
    return WindowClosed(
        v=VERSION,
        rank=place.rank,
        incarnation=place.incarnation,
        sequence=place.sequence,
        window=buffer.number,
        steps=buffer.filled,
        closed_by=buffer.closed_by,
        started_at_ns=_unix_ns(buffer.started_at),
        ended_at_ns=_unix_ns(buffer.ended_at),
        side=side,
        faults=dict(buffer.faults),
        side_faults=side_faults,
        overhead=Overhead(record_ns=buffer.record_ns, train_ns=buffer.train_ns),
        nested_ns=buffer.nested_ns,
    )


def buffer_of(window: Window) -> WindowBuffer:
    """The buffer that a rank's own part was written from."""
    manifest = window.manifest
    planes_CN = [window.step_N, window.wall_NR[:, 0], *window.duration_SNR[:, :, 0]]
    broad = tuple(name for name in window.broad_stages if name != RESIDUAL)
    seen = manifest.extra.get("faults_seen", {})
    buffer = WindowBuffer(
        WindowSchema(broad, window.stages, manifest.accumulation, window.ranks.role[0], ()),
        window.number,
        np.column_stack([plane.numpy() for plane in planes_CN]),
        filled=len(window.step_N),
        faults={code: str(seen.get(code, "")) for code in manifest.faults},
        side_faults=dict(manifest.extra.get("side_faults", {})),
        nested_ns=int(manifest.extra.get("nested_ns", 0)),
        record_ns=manifest.overhead.record_ns,
        train_ns=manifest.overhead.train_ns,
        closed_by=manifest.closed_by,
        started_at=_moment(manifest.started_at),
        ended_at=_moment(manifest.ended_at),
    )
    for name, channel in window.side.items():
        bits = channel.value_NR[:, 0].numpy().view(np.int64)
        nothing = unsampled(1).view(np.int64)
        buffer.side[name] = np.where(channel.sampled_NR[:, 0].numpy(), bits, nothing).view(np.float64)
    return buffer


def moment_of(unix_ns: int | None) -> datetime | None:
    """A moment on the wire as the recorder keeps it."""
    return None if unix_ns is None else datetime.fromtimestamp(unix_ns // 1000 / 1e6, UTC)


def _little(values: npt.NDArray[np.generic]) -> bytes:
    """The values' bytes, little-endian on any machine."""
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def _unix_ns(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1e6) * 1000


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
