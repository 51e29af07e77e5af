"""Version 1: TraceML's single-node messages, said again in the words of version 2.

They know neither node nor sequence: the rank is taken as global, on node 0, and steps that come again are
told by their numbers. Nothing is acknowledged, so what is lost on the way stays lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfapp.model.stages import DEFAULT_STAGES
from sfapp.stream.messages import VERSION, Closed, Hello, LegacyTables, Message, Opened, Steps

RUN_ID = "version-1"
HOSTNAME = "localhost"
WINDOW_STEPS = 100

_EVENTS = ("dataloader_next", "forward_time", "backward_time", None, "optimizer_step")
"""TraceML's names, after their prefix, of our default stages in order."""

_STEP = "step_time"
_PREFIX = "_traceml_internal:"
_NS_PER_MS = 1_000_000


@dataclass(slots=True)
class _Stream:
    """One rank's rows so far.

    Attributes:
        turn: how often it has begun anew.
        sequence: of the element that comes next.
        first_window: number of its first window; window, steps: the one under way.
        world: what it was said to be one of.
    """

    incarnation: str
    turn: int
    first_window: int
    last_step: int
    sequence: int = 0
    window: int | None = None
    steps: int = 0
    world: int = 0


class LegacyStreams:
    """The streams of version 1, by address and rank. There is no goodbye: a window ends with the next one."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, int], _Stream] = {}
        self._world = 1  # ranks, as far as they have shown up

    def translated(
        self, tables: LegacyTables, address: str, expected: Callable[[str], int | None]
    ) -> Iterator[Message]:
        """What a message says, for the steps in it that are new.

        Args:
            expected: by incarnation, the sequence that comes next; None of one that is not known, any more.
                Who cannot be asked to send again begins anew where the two do not agree.
        """
        key = address, tables.rank
        stream = self._streams.get(key)
        last_step = -1 if stream is None else stream.last_step
        rows = [row for table in tables.tables.values() for row in table]
        found = sorted(said for row in rows if (said := _numbers(row)) is not None and said[0] > last_step)
        if stream is None or expected(stream.incarnation) != stream.sequence:
            turn = 0 if stream is None else stream.turn + 1
            incarnation = f"v1-{tables.rank}-{turn}-{address}"[:64]
            first_window = found[0][0] // WINDOW_STEPS if found else 0
            stream = self._streams[key] = _Stream(incarnation, turn, first_window, last_step)
        self._world = max(self._world, tables.rank + 1)
        if stream.world != self._world:
            yield _hello(stream, tables.rank, self._world)
            stream.world = self._world
        for step, numbers in found:
            if step > stream.last_step:  # and not twice in one message
                yield from self._step(stream, tables.rank, step, numbers)

    def _step(self, stream: _Stream, rank: int, step: int, numbers: list[int]) -> Iterator[Message]:
        window = step // WINDOW_STEPS
        if stream.window != window:
            if stream.window is not None:
                yield Closed(**_head(stream, rank), window=stream.window, steps=stream.steps)
                stream.sequence += 1
            yield Opened(
                **_head(stream, rank), window=window, broad=DEFAULT_STAGES[:-1], stages=DEFAULT_STAGES
            )
            stream.sequence += 1
            stream.window, stream.steps = window, 0
        row = np.array([step, *numbers], dtype="<i8")
        yield Steps(**_head(stream, rank), window=window, rows=row.tobytes())
        stream.sequence += 1
        stream.steps += 1
        stream.last_step = step


def _head(stream: _Stream, rank: int) -> dict[str, Any]:
    return {"v": VERSION, "rank": rank, "incarnation": stream.incarnation, "sequence": stream.sequence}


def _hello(stream: _Stream, rank: int, world: int) -> Hello:
    return Hello(
        v=VERSION,
        rank=rank,
        incarnation=stream.incarnation,
        run_id=RUN_ID,
        attempt="v1",
        first_window=stream.first_window,
        world_size=world,
        local_rank=rank,
        hostname=HOSTNAME,
    )


def _numbers(row: dict[str, Any]) -> tuple[int, list[int]] | None:
    """A row's step, its wall ns and its stages' ns; None if it is no step."""
    step, events = row.get("step"), row.get("events")
    if not isinstance(step, int) or not isinstance(events, dict) or not 0 <= step < 2**62:
        return None
    wall = _ns(events, _STEP)
    if wall is None:
        return None
    stages = [0 if name is None else _ns(events, name) or 0 for name in _EVENTS]
    return step, [wall, *stages, max(0, wall - sum(stages))]


def _ns(events: dict[Any, Any], name: str) -> int | None:
    """An event's duration over all devices, as the host saw it."""
    devices = events.get(_PREFIX + name, events.get(name))
    if not isinstance(devices, dict):
        return None
    times = [device.get("duration_ms") for device in devices.values() if isinstance(device, dict)]
    known = [time for time in times if isinstance(time, int | float) and 0 <= time < 1e12]
    return round(sum(known) * _NS_PER_MS) if known else None
