"""Apply one rank's stream to the aggregator's windows: every element in order and exactly once.

Only the next element is accepted: an earlier one is a duplicate, a later one means that messages were lost
and must be sent again. An element that breaks a rule of the stream is refused before it is counted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from msgspec import UNSET, UnsetType

from sfapp.errors import RecorderError, StreamError
from sfapp.model.host_evidence import EVIDENCE_KINDS, evidence_channels
from sfapp.model.manifest import Manifest
from sfapp.model.parse import MOST_WINDOW
from sfapp.model.stages import stage_hash
from sfapp.packets.attempts import RestartEntry
from sfapp.packets.faults import Faults
from sfapp.packets.manifest import check_manifest
from sfapp.packets.window_rows import (
    CHANNEL_NAME,
    FIRST_STAGE_COLUMN,
    MAX_CHANNELS,
    STEP_COLUMN,
    check_coordinates,
)
from sfapp.stream.live_state import RankStates
from sfapp.stream.messages import Gap, Steps, StreamHello, WindowClosed, WindowOpened
from sfapp.stream.window_assembly import WindowAssembler
from sfapp.stream.window_buffer import RankRows, Rows, hello_size
from sfapp.terminal import quoted

MAX_VALUE = 2**62
"""Largest number that a packet can hold (packet.md)."""

MAX_WINDOW_BYTES = 2**28
"""Largest rows of one rank's window: a million steps of six stages take a quarter of it."""

MAX_HELLO_MEMORY = 256 * 1024
"""Largest hello in memory, in bytes: one that is all text takes a quarter of it."""

Element = WindowOpened | Steps | WindowClosed | Gap


@dataclass(slots=True, eq=False)
class RankStream:
    """Stream of one recording process.

    Attributes:
        offset: added to its window numbers on disk.
        attempt: label of its attempt in packets.
        route: leading frames of an answer to it.
        expected: sequence of the next element.
        received_at: when its newest message arrived, in monotonic seconds.
        columns: number of columns of a step of its newest window.
        current: its open window.
        undelivered: its windows that are not on disk, in order.
        acknowledged: sequence below which all elements are on disk, as last acknowledged.
        resend_requested_at: when elements were last requested again.
        last_step: number of its newest step.
        next_capture_message: number of the next of its messages about captures.
        hello_bytes: bytes in memory of the fields of any size in its hello.
    """

    hello: StreamHello
    offset: int
    attempt: str
    route: tuple[bytes, ...]
    expected: int
    received_at: float
    columns: int = FIRST_STAGE_COLUMN + 1
    current: RankRows | None = None
    undelivered: deque[RankRows] = field(default_factory=deque)
    acknowledged: int = 0
    resend_requested_at: float = float("-inf")
    last_step: int = 0
    next_capture_message: int = 0
    hello_bytes: int = 0

    @classmethod
    def begin(
        cls, hello: StreamHello, entry: RestartEntry, route: tuple[bytes, ...], now: float
    ) -> RankStream:
        """Return the stream of a process that has connected."""
        stream = cls(hello, entry.offset, entry.label, route, expected=hello.first, received_at=now)
        stream.acknowledged = hello.first
        return stream

    def number_in_run(self, window: int) -> int:
        """Return the number of one of its windows in the run.

        Raises:
            StreamError: a run has no window of that number.
        """
        number = window + self.offset
        if not 0 <= number <= MOST_WINDOW:
            raise StreamError(f"window {window} has the number {number} in its run, outside 0…10^18 − 1")
        return number

    def lacks_hello_of(self, element: Element) -> bool:
        """Return whether an element begins a window of an attempt whose hello was lost."""
        if not isinstance(element, WindowOpened) or element.sequence < self.expected:
            return False
        return element.attempt not in (UNSET, self.hello.attempt)

    @property
    def waits_for_disk(self) -> bool:
        """Whether it has closed a window that is not on disk: the process could not send that again."""
        return any(rows.closed is not None and not rows.is_durable for rows in self.undelivered)

    def acknowledge(self) -> bool:
        """Move ``acknowledged`` behind the elements that are on disk; return whether it has moved."""
        before = self.acknowledged
        while self.undelivered and self.undelivered[0].is_durable:
            self.acknowledged = self.undelivered.popleft().end or self.acknowledged
        if not self.undelivered:
            self.acknowledged = self.expected
        return self.acknowledged > before


def check_hello(hello: StreamHello, stream: RankStream | None) -> int:
    """Return the bytes in memory of a hello, as ``hello_size``.

    Args:
        stream: of the process, if it is known.

    Raises:
        StreamError: no rank can send it, or it takes too many.
    """
    if hello.rank >= hello.world_size:
        raise StreamError(f"rank {hello.rank} is outside a world of {hello.world_size} ranks")
    if stream is not None and stream.hello.run_id != hello.run_id:  # Its windows are held under it.
        raise StreamError(f"the process belongs to run {quoted(stream.hello.run_id)} already")
    size = hello_size(hello)
    if size > MAX_HELLO_MEMORY:
        raise StreamError(f"hello of {size:,} bytes in memory: the limit is {MAX_HELLO_MEMORY:,}")
    return size


def take_element(stream: RankStream, element: Element, assembler: WindowAssembler, live: RankStates) -> bool:
    """Add an element to its window if it is new.

    Returns:
        False if earlier elements are missing.

    Raises:
        StreamError: the element breaks a rule of the stream.
    """
    if element.sequence > stream.expected:
        return False
    if isinstance(element, Steps):
        _take_steps(stream, element, assembler, live)
    elif isinstance(element, Gap):
        _take_gap(stream, element, assembler, live)
    elif element.sequence < stream.expected:
        return True  # a duplicate: the window was opened or closed before
    elif isinstance(element, WindowOpened):
        _take_opened(stream, element, assembler, live)
    else:
        _take_closed(stream, element, assembler)
    return True


def _take_opened(
    stream: RankStream, opened: WindowOpened, assembler: WindowAssembler, live: RankStates
) -> None:
    _check_schema(stream.hello, opened)
    if stream.current is not None:
        raise StreamError(f"window {opened.window} begins inside window {stream.current.opened.window}")
    number = stream.number_in_run(opened.window)
    rows = assembler.open(stream.hello, opened, number, stream.attempt)
    if rows is None:
        raise StreamError(f"window {opened.window} begins a second time")
    stream.current = rows
    stream.columns = FIRST_STAGE_COLUMN + len(opened.stages)
    stream.undelivered.append(stream.current)
    stream.expected += 1
    coordinates = None if isinstance(opened.coordinates, UnsetType) else opened.coordinates
    live.open_window(stream.hello, opened.window, opened.stages, opened.role, coordinates)


def _take_steps(stream: RankStream, steps: Steps, assembler: WindowAssembler, live: RankStates) -> None:
    duplicates = stream.expected - steps.sequence
    window = stream.current
    if window is None or steps.window != window.opened.window:
        if duplicates > 0:  # duplicates, of a window that has ended
            live.count_steps(stream.hello, duplicates=len(steps.rows) // (8 * stream.columns))
            return
        raise StreamError(f"steps of window {steps.window}, which is not open")
    if not steps.rows or len(steps.rows) % (8 * stream.columns):
        raise StreamError(f"{len(steps.rows)} bytes are not whole rows of {stream.columns} columns")
    row_NC = np.frombuffer(steps.rows, dtype="<i8").astype(np.int64, copy=False).reshape(-1, stream.columns)
    if duplicates:
        live.count_steps(stream.hello, duplicates=min(duplicates, len(row_NC)))
        row_NC = row_NC[duplicates:]
    if len(row_NC):
        _check_rows(row_NC, window.last_step)
        if window.size + row_NC.nbytes > MAX_WINDOW_BYTES:
            raise StreamError(
                f"window {steps.window} has more than {MAX_WINDOW_BYTES:,} bytes of steps: "
                "record fewer steps per window, or gather instead"
            )
        assembler.add(window, row_NC)
        stream.expected += len(row_NC)
        stream.last_step = int(row_NC[-1, STEP_COLUMN])
        live.add_steps(stream.hello, row_NC)


def _take_closed(stream: RankStream, closed: WindowClosed, assembler: WindowAssembler) -> None:
    window = stream.current
    if window is None or closed.window != window.opened.window:
        raise StreamError(f"end of window {closed.window}, which is not open")
    if closed.steps != window.steps:
        raise StreamError(f"window {closed.window} has {closed.steps} steps, but {window.steps} arrived")
    if len(closed.side) > MAX_CHANNELS or not all(map(CHANNEL_NAME.fullmatch, closed.side)):
        raise StreamError(f"window {closed.window} has side channels with invalid names, or too many")
    if any(len(values) != 8 * closed.steps for values in closed.side.values()):
        raise StreamError(f"window {closed.window} has side channels that do not match its steps")
    _check_evidence(window, closed)
    stream.expected += 1
    stream.current = None
    assembler.close(window, closed, stream.expected, stream.hello)


def _check_evidence(window: RankRows, closed: WindowClosed) -> None:
    """Check the host evidence of a window that is closed.

    Raises:
        StreamError: a channel is not one of this window's, or does not match its steps.
    """
    if isinstance(closed.evidence, UnsetType):
        return
    if not closed.evidence.keys() <= set(evidence_channels(EVIDENCE_KINDS, window.opened.stages)):
        raise StreamError(f"window {closed.window} has host evidence with invalid names")
    if any(len(values) not in (8, 8 * closed.steps) for values in closed.evidence.values()):
        raise StreamError(f"window {closed.window} has host evidence that does not match its steps")


def _take_gap(stream: RankStream, gap: Gap, assembler: WindowAssembler, live: RankStates) -> None:
    if gap.until <= stream.expected:
        return
    live.count_steps(stream.hello, lost=gap.steps)
    _skip_to(stream, gap.until, assembler)


def _skip_to(stream: RankStream, until: int, assembler: WindowAssembler) -> None:
    """Expect element ``until`` next; a window that is open has lost its end."""
    window = stream.current
    stream.expected = until
    if window is not None:
        window.has_gap = True
        stream.current = None
        assembler.close(window, None, until, stream.hello)


def skip_gone(stream: RankStream, first: int, assembler: WindowAssembler) -> None:
    """Continue with element ``first``, because the rank holds no earlier ones: they were acknowledged by
    another aggregator, or in the name of this one.
    """
    if first <= stream.expected:
        return
    name = f"rank {stream.hello.rank} of run {quoted(stream.hello.run_id)}"
    assembler.failures.append(f"{name} holds elements {stream.expected} to {first - 1} no more")
    _skip_to(stream, first, assembler)


def _check_schema(hello: StreamHello, opened: WindowOpened) -> None:
    """Check the schema of a window against the rules of the packet format.

    Raises:
        StreamError: it breaks one.
    """
    if not isinstance(opened.coordinates, UnsetType):
        try:
            check_coordinates(opened.coordinates)
        except RecorderError as error:
            raise StreamError(f"window {opened.window}: {error}") from error
    faults = Faults()
    check_manifest(
        Manifest(
            run_id=hello.run_id,
            window=opened.window,
            stages=opened.stages,
            stage_hash=stage_hash(opened.stages),
            world_size=hello.world_size,
            accumulation=opened.accumulation,
            extra=hello.extra,
        ),
        faults,
    )
    if faults.found:
        raise StreamError(f"window {opened.window}: {faults.found[0].fault}")


def _check_rows(row_NC: Rows, last_step: int | None) -> None:
    steps = row_NC[:, STEP_COLUMN]
    ascending = (steps[1:] > steps[:-1]).all() and (last_step is None or steps[0] > last_step)
    if not ascending or int(steps[0]) < 0 or int(steps[-1]) > MAX_VALUE:
        raise StreamError("step numbers must ascend from 0 to 2^62")
    durations = row_NC[:, 1:]
    if int(durations.min()) < 0 or int(durations.max()) > MAX_VALUE:
        raise StreamError("durations must lie between 0 and 2^62 ns")
