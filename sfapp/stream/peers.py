"""On the aggregator: one rank's stream, taken in order and once.

An element is taken only if it is the next: an earlier one is a duplicate, a later one means that something
was lost on the way and is asked for again. What breaks the rules of a stream is refused before it is counted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from sfapp.errors import StreamError
from sfapp.model.manifest import Manifest
from sfapp.model.stages import stage_hash
from sfapp.packets.faults import Faults
from sfapp.packets.manifest import check_manifest
from sfapp.packets.window_rows import CHANNEL_NAME, FIRST_STAGE_COLUMN, MAX_CHANNELS, STEP_COLUMN
from sfapp.stream.live_state import Live
from sfapp.stream.messages import Closed, Gap, Hello, Opened, Steps
from sfapp.stream.window_assembly import Assembly
from sfapp.stream.window_buffer import RankRows, Rows

MAX_VALUE = 2**62
"""Largest number a packet holds (packet.md)."""

Element = Opened | Steps | Closed | Gap


@dataclass(slots=True, eq=False)
class Peer:
    """One process's stream.

    Attributes:
        offset: what its window numbers are moved by on disk.
        route: frames that an answer to it begins with.
        expected: the sequence that comes next.
        columns: how many numbers a step of its newest window has.
        current: the window under way.
        undelivered: its windows that are not on disk, in order.
        acknowledged: what it was told last.
        asked_at: when it was last asked to send something again.
        last_step: number of its newest step.
        captures_heard: of what it says of captures, the number that comes next.
    """

    hello: Hello
    offset: int
    route: tuple[bytes, ...]
    expected: int
    heard_at: float
    columns: int = FIRST_STAGE_COLUMN + 1
    current: RankRows | None = None
    undelivered: deque[RankRows] = field(default_factory=deque)
    acknowledged: int = 0
    asked_at: float = float("-inf")
    last_step: int = 0
    captures_heard: int = 0

    def durable(self) -> int:
        """The sequence below which everything is on disk."""
        done = self.acknowledged
        while self.undelivered and self.undelivered[0].is_durable:
            done = self.undelivered.popleft().end or done
        if not self.undelivered:
            done = self.expected
        return done


def take(peer: Peer, element: Element, assembly: Assembly, live: Live) -> bool:
    """Take an element into the window that it belongs to, as far as it is new.

    Returns:
        False where elements before it are missing.

    Raises:
        StreamError: it breaks the rules of a stream.
    """
    if element.sequence > peer.expected:
        return False
    if isinstance(element, Steps):
        _take_steps(peer, element, assembly, live)
    elif isinstance(element, Gap):
        _take_gap(peer, element, assembly, live)
    elif element.sequence < peer.expected:
        return True  # again: the window was opened, or closed, before
    elif isinstance(element, Opened):
        _take_opened(peer, element, assembly, live)
    else:
        _take_closed(peer, element, assembly)
    return True


def _take_opened(peer: Peer, opened: Opened, assembly: Assembly, live: Live) -> None:
    _check_schema(peer.hello, opened)
    if peer.current is not None:
        raise StreamError(f"window {opened.window} begins before window {peer.current.opened.window} ended")
    peer.current = assembly.open(peer.hello, opened, opened.window + peer.offset)
    peer.columns = FIRST_STAGE_COLUMN + len(opened.stages)
    peer.undelivered.append(peer.current)
    peer.expected += 1
    live.open(peer.hello, opened.window, opened.stages, opened.role)


def _take_steps(peer: Peer, steps: Steps, assembly: Assembly, live: Live) -> None:
    old = peer.expected - steps.sequence
    window = peer.current
    if window is None or steps.window != window.opened.window:
        if old > 0:  # again, of a window that has ended
            live.count(peer.hello, duplicates=len(steps.rows) // (8 * peer.columns))
            return
        raise StreamError(f"steps of window {steps.window}, which is not open")
    if not steps.rows or len(steps.rows) % (8 * peer.columns):
        raise StreamError(f"{len(steps.rows)} bytes are no rows of {peer.columns} columns")
    row_NC = np.frombuffer(steps.rows, dtype="<i8").astype(np.int64, copy=False).reshape(-1, peer.columns)
    if old:
        live.count(peer.hello, duplicates=min(old, len(row_NC)))
        row_NC = row_NC[old:]
    if len(row_NC):
        _check_rows(row_NC, window.last_step)
        assembly.add(window, row_NC)
        peer.expected += len(row_NC)
        peer.last_step = int(row_NC[-1, STEP_COLUMN])
        live.add(peer.hello, row_NC)


def _take_closed(peer: Peer, closed: Closed, assembly: Assembly) -> None:
    window = peer.current
    if window is None or closed.window != window.opened.window:
        raise StreamError(f"window {closed.window} ends, which is not open")
    if closed.steps != window.steps:
        raise StreamError(f"window {closed.window} has {closed.steps} steps, {window.steps} have come")
    if len(closed.side) > MAX_CHANNELS or not all(map(CHANNEL_NAME.fullmatch, closed.side)):
        raise StreamError(f"window {closed.window} has side channels that no recorder makes")
    if any(len(values) != 8 * closed.steps for values in closed.side.values()):
        raise StreamError(f"window {closed.window} has side channels of another length")
    peer.expected += 1
    peer.current = None
    window.hello = peer.hello  # what is known of the job by now
    assembly.close(window, closed, peer.expected)


def _take_gap(peer: Peer, gap: Gap, assembly: Assembly, live: Live) -> None:
    if gap.until <= peer.expected:
        return
    window = peer.current
    peer.expected = gap.until
    live.count(peer.hello, lost=gap.steps)
    if window is not None:
        window.has_gap = True
        peer.current = None
        assembly.close(window, None, gap.until)


def _check_schema(hello: Hello, opened: Opened) -> None:
    """Hold what a packet's manifest will say against the format's own rules."""
    faults = Faults()
    check_manifest(
        Manifest(
            run_id=hello.run_id,
            window=opened.window,
            stages=opened.stages,
            stage_hash=stage_hash(opened.stages),
            world_size=hello.world_size,
            accumulation=opened.accumulation,
        ),
        faults,
    )
    found = faults.found
    if found:
        raise StreamError(f"window {opened.window}: {found[0].fault}")


def _check_rows(row_NC: Rows, last_step: int | None) -> None:
    steps = row_NC[:, STEP_COLUMN]
    ascending = (steps[1:] > steps[:-1]).all() and (last_step is None or steps[0] > last_step)
    if not ascending or abs(int(steps[0])) > MAX_VALUE or int(steps[-1]) > MAX_VALUE:
        raise StreamError("step numbers must ascend")
    spent = row_NC[:, 1:]
    if int(spent.min()) < 0 or int(spent.max()) > MAX_VALUE:
        raise StreamError("durations must lie between 0 and 2^62 ns")
