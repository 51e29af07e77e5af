"""A job's stream in one process, without threads and sockets, and with a clock that jumps.

The parts are those of the product: window buffers, ``StreamWriter`` with its send queue and parts on disk,
both sides of the protocol, and the packet directory. Only the network is simulated: a relay stores nothing,
so it is a link that loses what is in transit when it ends.
"""

from __future__ import annotations

import re
import resource
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sfapp.errors import PacketError
from sfapp.model import RankIdentity
from sfapp.model.manifest import Accumulation, Parallelism, RecorderInfo
from sfapp.model.standstill import PlaceSource
from sfapp.packets import packet_path, write_packet
from sfapp.packets.compose import part_draft
from sfapp.packets.job import JobInfo, JobRank
from sfapp.packets.window_rows import WindowBuffer, WindowSchema
from sfapp.recorder.capture.mailbox import FileCaptureMailbox
from sfapp.stream.capture_mailbox import StreamCaptureMailbox
from sfapp.stream.messages import Message, StreamHello, encode
from sfapp.stream.rank_protocol import RankProtocol
from sfapp.stream.send_queue import SendQueue
from sfapp.stream.sender import StreamOptions
from sfapp.stream.stream_receiver import Route, StreamReceiver
from sfapp.stream.stream_writer import StreamWriter
from sfapp.stream.system_sampler import SystemSampler

RUN = "run"
WINDOW_STEPS = 3
LINK_FRAMES = 12
"""Frames in transit on a link before it accepts no more."""

MEMORY_BYTES, DISK_BYTES = 500, 12_000
"""Bounds of a send queue: about three windows in memory and two in files."""

_DISCARDED = re.compile(r"window (\d+): \d+ steps discarded")

SCHEMA = WindowSchema.of(("data.next_wait",), Accumulation(), None)


class SimulatedClock:
    """Monotonic seconds, as far as a process sees them: it may be stopped for hours."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class SimulatedDisk:
    """A disk with room for files of ``room`` bytes; None without a limit."""

    def __init__(self) -> None:
        self.room: int | None = None

    @contextmanager
    def used(self) -> Iterator[None]:
        if self.room is None:
            yield
            return
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.room, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, ignored)


class PartsSink:
    """Local sink that writes parts at once. Windows that it cannot write are in ``dropped``."""

    def __init__(self) -> None:
        self.written: deque[Path] = deque()
        self.failures: deque[str] = deque()
        self.dropped: list[int] = []
        self.pending = 0
        self.mailbox = FileCaptureMailbox(self.failures)

    def follow(self, places: PlaceSource) -> None:
        """Do nothing."""

    def begin_window(self, rank: JobRank, buffer: WindowBuffer) -> None:
        """Do nothing."""

    def end_window(self, rank: JobRank, buffer: WindowBuffer, last: bool = False) -> bool:
        job, number = rank.job, rank.identity.rank
        try:
            path = packet_path(job.root, job.run_id, buffer.number, number, job.process)
            write_packet(part_draft(job, buffer, rank.identity, rank.part_reason or ""), path)
        except PacketError as error:
            self.failures.append(f"window {buffer.number}: {error}")
            self.dropped.append(buffer.number)
            return False
        self.written.append(path)
        return True

    def close(self, seconds: float) -> None:
        """Do nothing."""

    def save_parts(self, reason: str, seconds: float) -> None:
        """Do nothing."""


class NoSampler(SystemSampler):
    """Sampler without its thread."""

    def set_identity(self, identity: RankIdentity) -> None:
        """Do nothing."""


class SimulatedLink:
    """Frames in transit between one rank's process and the aggregator, both ways."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.connections = 0
        self.is_up = True
        self.up: list[bytes] = []
        self.down: list[bytes] = []

    @property
    def route(self) -> Route:
        return (self.name + b"/%d" % self.connections,)

    def send(self, message: Message) -> bool:
        if not self.is_up or len(self.up) >= LINK_FRAMES:
            return False
        self.up.append(encode(message))
        return True

    def reset(self) -> None:
        """Lose what is in transit, as when a cable is pulled or a relay is killed."""
        self.connections += 1
        self.up.clear()
        self.down.clear()


class SimulatedSender:
    """Sender of a rank that is driven by ``turn``.

    ``close`` calls ``wait`` until everything is acknowledged or the wait is over.
    """

    def __init__(
        self,
        link: SimulatedLink,
        clock: SimulatedClock,
        disk: SimulatedDisk,
        wait: Callable[[], None],
        protocol: RankProtocol,
        queue: SendQueue,
    ) -> None:
        self.queue = queue
        self._link, self._clock, self._disk, self._wait = link, clock, disk, wait
        self._protocol = protocol
        self._connection = -1
        self._closing = False

    def start_again(self) -> bool:
        return True

    def turn(self) -> None:
        """Do what the sender's thread does when it wakes up."""
        if self._connection != self._link.connections:
            self._connection = self._link.connections
            self._protocol.begin_connection()
        with self._disk.used():
            self._protocol.send_due(self._link.send, self._closing)

    def receive(self, frame: bytes) -> None:
        self._protocol.receive(frame)

    def close(self, seconds: float) -> bool:
        self._closing = True
        for _ in range(12):
            if self._protocol.is_delivered or self._protocol.refused:
                break
            self.turn()
            self._wait()
            self._clock.now += seconds / 12
        self._protocol.send_bye(self._link.send)
        return self._protocol.is_delivered


class SimulatedRankProcess:
    """One recording process: numbered steps, each with a wall time that occurs once in the whole history.

    Attributes:
        recorded: window number of every recorded step, by wall time.
    """

    def __init__(
        self,
        rank: int,
        world: int,
        attempt: str,
        output: Path,
        clock: SimulatedClock,
        disk: SimulatedDisk,
        wait: Callable[[], None],
        first_window: int,
    ) -> None:
        self.rank, self.attempt = rank, attempt
        self.link = SimulatedLink(f"{attempt}-{rank}".encode())
        self.disk = disk
        self.local = PartsSink()
        self.recorded: dict[int, int] = {}
        self._elements = 0
        self._until: dict[int, int] = {}
        job = JobInfo(
            root=output, run_id=RUN, world_size=world, wrapper="ddp", parallelism=Parallelism(dp=world),
            prefetch="unknown", model_fit=False, recorder=RecorderInfo(),
        )  # fmt: skip
        self._job_rank = JobRank(RankIdentity(rank, rank, 0, "node-0"), job, attempt=attempt)
        options = StreamOptions(
            endpoint="tcp://127.0.0.1:1", spool_memory_bytes=MEMORY_BYTES, spool_disk_bytes=DISK_BYTES
        )

        def make_sender(
            options: StreamOptions,
            queue: SendQueue,
            incarnation: str,
            make_hello: Callable[[JobRank, int], StreamHello],
            failures: deque[str],
            mailbox: StreamCaptureMailbox,
        ) -> SimulatedSender:
            protocol = RankProtocol(queue, incarnation, make_hello, failures, mailbox, clock=clock)
            self.sender = SimulatedSender(self.link, clock, disk, wait, protocol, queue)
            return self.sender

        self.writer = StreamWriter(options, lambda: self.local, make_sender, NoSampler(deque()))
        self._open(first_window)

    def _open(self, number: int) -> None:
        self._buffer = WindowBuffer.empty(SCHEMA, number, WINDOW_STEPS)
        self.writer.begin_window(self._job_rank, self._buffer)

    def train(self, step: int, wall_ns: int) -> None:
        """Record a step."""
        self._buffer.add(np.array([[step, wall_ns, wall_ns // 2]]))
        self.recorded[wall_ns] = self._buffer.number
        if self._buffer.filled == WINDOW_STEPS:
            self._end_window("full")
            self._open(self._buffer.number + 1)

    def _end_window(self, closed_by: Any, last: bool = False) -> None:
        self._elements += 2 + self._buffer.filled  # opened, steps, closed
        self._until[self._buffer.number] = self._elements
        self._buffer.close(closed_by)
        self.writer.end_window(self._job_rank, self._buffer, last)

    def close(self, seconds: float) -> None:
        """End as a training process does that has finished."""
        if self._buffer.filled:
            self._end_window("shutdown", last=True)
        with self.disk.used():
            self.writer.close(seconds)

    @property
    def discarded(self) -> set[int]:
        """Numbers of the windows that the process reports as discarded, or could not write when it ended."""
        named = {int(number) for failure in self.local.failures for number in _DISCARDED.findall(failure)}
        return named | set(self.local.dropped)

    @property
    def acknowledged(self) -> set[int]:
        """Wall times of the steps that the process has released, without those that it has discarded."""
        first = self.sender.queue.first
        windows = {number for number, until in self._until.items() if until <= first} - self.discarded
        return {wall for wall, window in self.recorded.items() if window in windows}


class SimulatedAggregator:
    """The aggregator's process. Killing it loses what is in memory."""

    def __init__(self, root: Path, clock: SimulatedClock, disk: SimulatedDisk) -> None:
        self.links: dict[Route, SimulatedLink] = {}
        self._disk = disk
        self._receiver = StreamReceiver(root, self._deliver, clock)

    @property
    def lost_steps(self) -> int:
        """Steps that ranks reported as discarded, as far as this process knows."""
        return sum(rank.lost_steps for rank in self._receiver.snapshot().ranks)

    def receive(self, link: SimulatedLink, frame: bytes) -> None:
        self.links[link.route] = link
        with self._disk.used():
            self._receiver.receive(link.route, frame, lambda: "simulated")

    def turn(self, is_idle: bool) -> None:
        """Do the work between two batches of messages."""
        if is_idle:
            self._receiver.note_empty_queue()
        with self._disk.used():
            self._receiver.run_due_work()

    def stop(self) -> None:
        """End as on SIGTERM."""
        with self._disk.used():
            self._receiver.finish()

    def _deliver(self, route: Route, answer: bytes) -> None:
        link = self.links.get(route)
        if link is not None and link.is_up and link.route == route and len(link.down) < LINK_FRAMES:
            link.down.append(answer)
