"""What a rank says beside its steps: samples of the system, on the aggregator's time axis."""

from __future__ import annotations

import time
from collections import deque

import msgspec

from sfapp.model.samples import AnySample, NodeSample
from sfapp.model.window import RankIdentity
from sfapp.stream.clocks import ClockExchange, ClockOffsetEstimator
from sfapp.stream.messages import Echo
from sfapp.stream.system_readings import SamplingThread


class SystemSampler:
    """Looks at this process, and on a node's leader at the node, from when the rank is known.

    ``samples`` and ``on_echo`` are the sender's: called on its thread alone.

    Args:
        failures: what goes wrong is put there.
    """

    def __init__(self, failures: deque[str]) -> None:
        self._failures = failures
        self._clock = ClockOffsetEstimator()
        self._identity: RankIdentity | None = None
        self._watch: SamplingThread | None = None

    def follow(self, identity: RankIdentity) -> None:
        """Who this rank is, now; another one after the world has changed."""
        if identity == self._identity:
            return
        self.close()
        self._identity = identity
        self._watch = SamplingThread(identity, self._failures)
        self._watch.start()

    def close(self) -> None:
        """Look no more; again is no harm."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def samples(self) -> list[AnySample]:
        """What was seen since last asked, with the times that the aggregator's clock had."""
        watch = self._watch
        return [] if watch is None else [self._placed(sample) for sample in watch.take()]

    def on_echo(self, echo: Echo, returned_ns: int) -> None:
        """An answer of the aggregator to a heartbeat, and when it came, by our clock."""
        self._clock.add(ClockExchange(echo.sent_ns, echo.received_ns, echo.replied_ns, returned_ns))

    def clock_offset_ns(self) -> int:
        """What to add to our time now to have the aggregator's; 0 before anything is known of it."""
        offset = self._clock.at(time.time_ns())
        return 0 if offset is None else round(offset.offset_ns)

    def _placed(self, sample: AnySample) -> AnySample:
        offset = self._clock.at(sample.at_ns)
        if offset is None:
            return sample
        placed = msgspec.structs.replace(sample, at_ns=max(0, sample.at_ns + round(offset.offset_ns)))
        if not isinstance(placed, NodeSample):
            return placed
        return msgspec.structs.replace(
            placed,
            clock_offset_ns=offset.offset_ns,
            clock_uncertainty_ns=offset.uncertainty_ns,
            clock_drift_ppm=offset.drift_ppm,
            clock_jumps=offset.jumps,
        )
