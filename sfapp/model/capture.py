"""Requests to ranks of a running job for a trace of some steps (docs/capture.md) or for their stacks
(docs/stacks.md), and their results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sfapp.errors import CaptureError
from sfapp.model.stages import MAX_NAME_LENGTH

CaptureStatus = Literal["asked", "running", "done", "refused", "expired"]

CaptureKind = Literal["profile", "stacks"]
"""What a request is for: a profiler trace of some steps, or the present stacks of the ranks' threads."""

CAPTURE_STEPS = 5
"""Default number of steps of a capture."""

MAX_CAPTURE_STEPS = 20
"""Maximum number of steps of one capture: a large model's step has a hundred thousand events, all held in
memory."""

MAX_CAPTURE_RANKS = 64
"""Maximum number of ranks of one capture."""

MAX_STACK_RANKS = 1024
"""Maximum number of ranks of one request for stacks."""

STACKS_EXPIRE_SECONDS = 60.0
"""Age above which a request for stacks is no longer answered: later stacks show another moment."""

MAX_REASON = 300
"""Maximum length of a reason, in characters."""

PROFILED = "profiled"
"""Side channel that marks the steps that a profiler slowed down."""

LAST_STEP = 2**62
"""Largest number of a step, and of anything else in a request or report."""

CAPTURE_ID = "[a-z0-9][a-z0-9-]{0,63}"
"""Regular expression of the ids of requests, which name their files."""

_ID = re.compile(CAPTURE_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """A request to run ``torch.profiler`` for some steps, or for stacks, on these ranks only.

    Attributes:
        id: names its files: lower-case letters, digits and hyphens, at most 64.
        run_id: the run it is for.
        ranks: global ranks, ascending; at most 64, of stacks 1,024.
        steps: number of steps, at most 20; 0 for stacks.
        first_step: number of the first step; None lets the lowest of the ranks choose one that is far enough
            ahead for the request to reach all ranks first.
        reason: the reason in one sentence.
        asked_by: the name of a person or a program (``sfapp capture``).
        asked_at: time of the request, with time zone.
        kind: a ``CaptureKind``.

    Raises:
        CaptureError: a value is out of bounds.
    """

    id: str
    run_id: str
    ranks: tuple[int, ...]
    steps: int
    first_step: int | None = None
    reason: str = ""
    asked_by: str = ""
    asked_at: datetime
    kind: CaptureKind = "profile"

    def __post_init__(self) -> None:
        for wrong in self._faults():
            raise CaptureError(f"capture request: {wrong}")

    def age_seconds(self) -> float:
        """Return the seconds since the request, by this machine's clock."""
        return (datetime.now(UTC) - self.asked_at).total_seconds()

    def _faults(self) -> list[str]:
        found = []
        if not _ID.fullmatch(self.id):
            found.append("the id must be 1 to 64 of a-z, 0-9 and '-'")
        if not self.run_id or len(self.run_id) > MAX_NAME_LENGTH:
            found.append(f"the run id must have 1 to {MAX_NAME_LENGTH} characters")
        most = MAX_STACK_RANKS if self.kind == "stacks" else MAX_CAPTURE_RANKS
        if not 1 <= len(self.ranks) <= most:
            found.append(f"{len(self.ranks)} ranks; name 1 to {most:,}")
        if any(later <= earlier for earlier, later in zip(self.ranks, self.ranks[1:], strict=False)):
            found.append("ranks must ascend, each once")
        if any(not 0 <= rank < 2**31 for rank in self.ranks):
            found.append("a rank is outside 0…2^31")
        if self.kind == "stacks":  # Recorders of older versions refuse a request without steps.
            if self.steps or self.first_step is not None:
                found.append("stacks are not taken at a step")
        elif not 1 <= self.steps <= MAX_CAPTURE_STEPS:
            found.append(f"{self.steps} steps; ask for 1 to {MAX_CAPTURE_STEPS}")
        if self.first_step is not None and not 0 <= self.first_step <= LAST_STEP:
            found.append("the first step is outside 0…2^62")
        if len(self.reason) > MAX_REASON or len(self.asked_by) > MAX_NAME_LENGTH:
            found.append(f"the reason may have {MAX_REASON} characters, the name {MAX_NAME_LENGTH}")
        if self.asked_at.tzinfo is None:
            found.append("the time it was asked at has no time zone")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCapture:
    """The state of a request on one rank.

    Attributes:
        status: a ``CaptureStatus``.
        first_step: the first step it recorded or will record, None if it recorded none.
        steps: number of recorded steps.
        windows: the windows of these steps.
        events: number of operator events written.
        trace_bytes: size of the trace from which they were made.
        stopped_ns: how long training paused for the profiler's start and stop.
        why: why it was refused or recorded fewer steps than requested; empty otherwise.

    Raises:
        CaptureError: a number is negative or too large.
    """

    rank: int
    status: CaptureStatus
    first_step: int | None = None
    steps: int = 0
    windows: tuple[int, ...] = ()
    events: int = 0
    trace_bytes: int = 0
    stopped_ns: int = 0
    why: str = ""

    def __post_init__(self) -> None:
        numbers = (self.rank, self.steps, self.events, self.trace_bytes, self.stopped_ns, *self.windows)
        if not all(0 <= number <= LAST_STEP for number in (*numbers, self.first_step or 0)):
            raise CaptureError("a rank's report on a capture: a number is outside 0…2^62")
        if len(self.windows) > MAX_CAPTURE_STEPS or len(self.why) > MAX_REASON:
            raise CaptureError("a rank's report on a capture: too many windows, or too long a reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureState:
    """The state of a request over all its ranks.

    Attributes:
        status: of the whole request: ``done`` once every rank has ended and at least one has its events.
        ranks_done: ranks whose events are next to the packets.
        why: reasons of the ranks that refused it or recorded fewer steps; empty if there are none.
        ranks: the reports of the ranks that sent one, ascending by rank.
    """

    request: CaptureRequest
    status: CaptureStatus
    ranks_done: tuple[int, ...] = ()
    why: str = ""
    ranks: tuple[RankCapture, ...] = ()

    @property
    def is_over(self) -> bool:
        """Return whether the request has ended on all ranks."""
        return self.status in ("done", "refused", "expired")

    @property
    def windows(self) -> tuple[int, ...]:
        """Return the windows that hold captured steps, ascending."""
        return tuple(sorted({window for each in self.ranks for window in each.windows}))


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureLimits:
    """Limits that a recorder sets for every capture.

    Attributes:
        cooldown_seconds: minimum time from the end of a capture to the start of the next.
        per_hour: maximum number of captures that begin within any 3,600 seconds.
        total_steps: maximum number of profiled steps over the recorder's life.
        total_bytes: bytes of traces over the recorder's life after which no further capture begins.
        longest_seconds: a capture that takes longer stops after the current step.
        expires_seconds: a request that has not begun by then is dropped.
        stacks_per_hour: maximum number of requests for stacks that are answered within any 3,600 seconds.
    """

    cooldown_seconds: float = 60.0
    per_hour: int = 12
    total_steps: int = 500
    total_bytes: int = 4 << 30
    longest_seconds: float = 120.0
    expires_seconds: float = 900.0
    stacks_per_hour: int = 60

    def __post_init__(self) -> None:
        counts = (self.per_hour, self.total_steps, self.total_bytes, self.stacks_per_hour)
        times = (self.longest_seconds, self.expires_seconds)
        # NaN is neither, and would lift a limit.
        if not (
            all(each >= 0 for each in (self.cooldown_seconds, *counts)) and all(each > 0 for each in times)
        ):
            raise CaptureError("capture limits must not be negative, nor their times zero")


DEFAULT_LIMITS = CaptureLimits()
