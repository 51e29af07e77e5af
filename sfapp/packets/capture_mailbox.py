"""The protocol through which a rank receives capture requests, and the choice of a capture's first step."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from typing import Literal, Protocol

from sfapp.model.capture import LAST_STEP, CaptureRequest, RankCapture
from sfapp.packets.job import JobRank

NOT_YET, NEVER_CHOSEN = -1, -2
"""Values instead of a first step: the choosing rank has not chosen one yet, or never will."""

FileKind = Literal["stacks", "dump"]
"""A rank's stacks, or its Flight Recorder dump."""

_OBSERVATIONS, _SHORTEST_OBSERVED_SECONDS = 30, 1.5


class StepPace:
    """Pace of a run's steps from occasional observations, to predict the step at a future time."""

    def __init__(self) -> None:
        self._observed: deque[tuple[float, int]] = deque(maxlen=_OBSERVATIONS)

    def add(self, now: float, step: int) -> None:
        """Record the run's step at ``now``, in monotonic seconds."""
        self._observed.append((now, step))

    def ahead(self, seconds: float) -> int | None:
        """Return the step that begins in ``seconds`` or slightly later, within the steps that a request can
        name; None before the pace is known."""
        if not self._observed:
            return None
        (begin, first), (end, last) = self._observed[0], self._observed[-1]
        if end - begin < _SHORTEST_OBSERVED_SECONDS:
            return None
        step = last + math.ceil(max(0, last - first) / (end - begin) * seconds) + 2
        return min(max(step, 0), LAST_STEP)


class CaptureMailbox(Protocol):
    """Source of capture requests and destination of their results.

    Called on the captures' own thread, which may block. Methods raise only ``SfappError``.
    """

    def poll_seconds(self, rank: JobRank) -> float:
        """Return the seconds to wait between two calls of ``new_requests``."""

    def new_requests(self, rank: JobRank) -> list[CaptureRequest]:
        """Return the requests for this rank that were not returned before, oldest first."""

    def first_step(self, rank: JobRank, request: CaptureRequest) -> int:
        """Return the step that the request's lowest rank has chosen, ``NOT_YET`` or ``NEVER_CHOSEN``."""

    def report(self, rank: JobRank, request: CaptureRequest, capture: RankCapture) -> None:
        """Publish the state of a request on a rank, replacing an earlier one.

        It is this rank's state, or for stacks that of another rank of this machine.
        """

    def root(self, rank: JobRank, scratch: Path) -> Path:
        """Return the folder below which operator events are to be written, laid out as packets are.

        Args:
            scratch: a folder that exists until ``deliver`` returns.
        """

    def deliver(self, rank: JobRank, request: CaptureRequest, windows: tuple[int, ...], root: Path) -> None:
        """Publish the events of these windows; any events are below ``root``."""

    def deliver_file(
        self, rank: JobRank, request: CaptureRequest, kind: FileKind, of_rank: int, content: bytes
    ) -> None:
        """Publish the stacks or the dump of a rank, which may be another rank of this machine."""
