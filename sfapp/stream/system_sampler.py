"""Sample the system for a rank's stream, with times of the aggregator's clock."""

from __future__ import annotations

import time
from collections import deque

import msgspec

from sfapp.model.rank_table import RankIdentity
from sfapp.model.samples import AnySample, NodeSample
from sfapp.stream.clocks import ClockExchange, ClockOffsetEstimator
from sfapp.stream.messages import Echo
from sfapp.stream.system_readings import SamplingThread


class SystemSampler:
    """Sampler of this process, and on the node's leader of the node, once the rank is known.

    ``samples`` and ``on_echo`` are called on the sender's thread only.

    Args:
        failures: receives a message for each failure.
    """

    def __init__(self, failures: deque[str]) -> None:
        self._failures = failures
        self._clock = ClockOffsetEstimator()
        self._identity: RankIdentity | None = None
        self._thread: SamplingThread | None = None

    def set_identity(self, identity: RankIdentity) -> None:
        """Start sampling for this rank, again whenever its identity changes."""
        if identity == self._identity:
            return
        self.close()
        self._identity = identity
        self._thread = SamplingThread(identity, self._failures)
        self._thread.start()

    def close(self) -> None:
        """Stop sampling. Safe to call again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    def samples(self) -> list[AnySample]:
        """Return the samples since the last call, with times of the aggregator's clock."""
        thread = self._thread
        return [] if thread is None else [self._on_aggregator_clock(sample) for sample in thread.take()]

    def on_echo(self, echo: Echo, returned_ns: int) -> None:
        """Process a response to a heartbeat and its time of arrival, by this machine's clock."""
        self._clock.add(ClockExchange(echo.sent_ns, echo.received_ns, echo.replied_ns, returned_ns))

    def clock_offset_ns(self) -> int:
        """Return the offset from this machine's time to the aggregator's; 0 before it is known."""
        offset = self._clock.at(time.time_ns())
        return 0 if offset is None else round(offset.offset_ns)

    def _on_aggregator_clock(self, sample: AnySample) -> AnySample:
        offset = self._clock.at(sample.at_ns)
        if offset is None:
            return sample
        moved = msgspec.structs.replace(sample, at_ns=max(0, sample.at_ns + round(offset.offset_ns)))
        if not isinstance(moved, NodeSample):
            return moved
        return msgspec.structs.replace(
            moved,
            clock_offset_ns=offset.offset_ns,
            clock_uncertainty_ns=offset.uncertainty_ns,
            clock_drift_ppm=offset.drift_ppm,
            clock_jumps=offset.jumps,
        )
