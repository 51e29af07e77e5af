"""How a recorder's windows go to an aggregator instead of into packets of its own.

``StreamWriter`` is a ``PacketSink``. What the aggregator has not acknowledged when the recorder is closed
goes to a local sink as this rank's parts, as after a failed gather: nothing is lost, and readers put it
together.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from dataclasses import replace
from pathlib import Path

from sfapp.errors import StreamError
from sfapp.packets.job import JobRank
from sfapp.packets.sink import STREAM_VARIABLE, LocalSinkFactory
from sfapp.packets.window_rows import WindowBuffer
from sfapp.stream.capture_mailbox import StreamCaptureMailbox
from sfapp.stream.messages import VERSION, StreamHello
from sfapp.stream.security import check_endpoint
from sfapp.stream.send_queue import SendQueue
from sfapp.stream.sender import StreamOptions, StreamSender
from sfapp.stream.system_sampler import SystemSampler

NOT_ACKNOWLEDGED = "the aggregator had not acknowledged it when the recorder was closed"


class StreamWriter:
    """Owns a recorder's spool and sender, what looks at the system, and the writer for what they leave.

    Args:
        options: where to, and how much may wait.
        local_sink: makes the sink for windows that could not be delivered.

    Raises:
        StreamError: the endpoint is none, or needs keys.
    """

    def __init__(self, options: StreamOptions, local_sink: LocalSinkFactory) -> None:
        self.incarnation = secrets.token_hex(8)
        self._process = os.getpid()
        self._first_window: dict[str, int] = {}
        check_endpoint(options.endpoint, options.keys)
        self._local = local_sink()
        self._measuring = SystemSampler(self.failures)
        options = replace(
            options,
            sources=(*options.sources, self._measuring.samples),
            on_echo=options.on_echo or self._measuring.on_echo,
        )
        self._spool = SendQueue(
            self.incarnation, options.spool_memory_bytes, options.spool_disk_bytes, self.failures
        )
        self.mailbox = StreamCaptureMailbox(self.incarnation, self._measuring.clock_offset_ns)
        self._sender = StreamSender(
            options, self._spool, self.incarnation, self._greeting, self.failures, self.mailbox
        )
        self._is_closed = False

    @property
    def written(self) -> deque[Path]:
        """Parts that this rank has left because the stream did not deliver them."""
        return self._local.written

    @property
    def failures(self) -> deque[str]:
        """The newest things that went wrong."""
        return self._local.failures

    @property
    def pending(self) -> int:
        """Closed windows that are neither acknowledged nor on disk nor discarded."""
        return len(self._spool.left()) if not self._is_closed else self._local.pending

    @property
    def lost_steps(self) -> int:
        """Steps that were discarded because the spool was full."""
        return self._spool.lost_steps

    def begin_window(self, rank: JobRank, buffer: WindowBuffer) -> None:
        """A window begins: its steps are sent as the buffer fills."""
        if self._process == os.getpid():
            self._first_window.setdefault(rank.attempt, buffer.number)
            self._measuring.follow(rank.identity)
            self._spool.open(rank, buffer)

    def end_window(self, rank: JobRank, buffer: WindowBuffer, last: bool = False) -> bool:
        """The window ends. False in a forked child, whose steps nobody sends."""
        if self._process != os.getpid():
            return False
        self._spool.close(rank, buffer)
        return True

    def close(self, seconds: float) -> None:
        """Deliver what is left within ``seconds``, and leave as parts what could not be."""
        self._leave(NOT_ACKNOWLEDGED, seconds)

    def save_parts(self, reason: str, seconds: float) -> None:
        """The same, in a hurry: half of the time is kept for the parts."""
        self._leave(reason, seconds / 2)

    def _leave(self, reason: str, seconds: float) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._measuring.close()
        self._sender.close(seconds)
        for team, buffer in self._spool.left():
            self._local.end_window(team.alone(reason), buffer, last=True)
        self._local.close(max(1.0, seconds))

    def _greeting(self, team: JobRank, first: int) -> StreamHello:
        identity, job = team.identity, team.job
        return StreamHello(
            v=VERSION,
            rank=identity.rank,
            incarnation=self.incarnation,
            run_id=job.run_id,
            attempt=team.attempt,
            first_window=self._first_window.get(team.attempt, 0),
            first=first,
            world_size=job.world_size,
            local_rank=identity.local_rank,
            node_rank=identity.node_rank,
            hostname=identity.hostname,
            wrapper=job.wrapper,
            parallelism=job.parallelism,
            prefetch=job.prefetch,
            model_fit=job.model_fit,
            recorder=job.recorder,
            extra=job.extra,
        )


def stream_sink(stream: StreamOptions | str | None, local_sink: LocalSinkFactory) -> StreamWriter:
    """Return the sink of a recorder that streams to ``stream``, or else to the environment's address.

    Raises:
        StreamError: neither names an endpoint, or the endpoint or the keys cannot be used.
    """
    options = StreamOptions.of(stream)
    if options is None:
        raise StreamError(f"no address to stream to: write tcp://HOST:PORT, or set {STREAM_VARIABLE}")
    return StreamWriter(options, local_sink)
