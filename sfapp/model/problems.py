"""Problems of a run: groups of windows with the same cause (accounting.md §18)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from sfapp.model.diagnosis import Diagnosis
from sfapp.model.explanation import SharedAttribute
from sfapp.model.incidents import Overwritten, Stamp
from sfapp.model.onsets import Episode, StepEstimate
from sfapp.model.standstill import RollCall

ProblemKind = Literal["standstill", "missing", "rank", "ranks", "turns", "growth"]
"""Kinds of problems.

``standstill``: a running job finished no step for longer than a limit (docs/hangs.md); it has no windows.
``missing``: ranks are missing from windows, or a gather failed: nothing is known about them there.
``rank``: one rank is late in a stage. ``ranks``: several ranks are. ``turns``: one rank after the other is,
each in some steps. ``growth``: a stage takes longer than in healthy windows, on all ranks or on no rank in
particular.
"""

ProblemStatus = Literal["ongoing", "ended", "returned", "fixed", "muted"]
"""Statuses of problems.

``ongoing``: the latest window of the run has it. ``ended``: later windows of the run do not have it.
``returned``: a window that was recorded after it was marked as fixed has it. ``fixed``: it was marked as
fixed and has not returned. ``muted``: it does not ask for attention until the mute ends.
"""


_Moment = Annotated[datetime, Meta(tz=True)]


@dataclass(frozen=True, slots=True)
class TimedDiagnosis:
    """The verdict on a window with the times at which it was recorded, by the writing rank's clock (UTC)."""

    diagnosis: Diagnosis
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """Time that a problem has cost so far, with a 95 % interval.

    Attributes:
        lost_ns, low_ns, high_ns: time added to the steps of its windows, on every rank.
        steps: number of steps of its windows. steps_ns: their time.
        rank_hours: ``lost_ns`` of all ranks, hours.
    """

    lost_ns: float
    low_ns: float
    high_ns: float
    steps: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    steps_ns: float
    rank_hours: float

    @property
    def share(self) -> float:
        """``lost_ns`` as a part of the time of its windows."""
        return self.lost_ns / self.steps_ns if self.steps_ns else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the 95 % interval of ``share``."""
        return (self.low_ns / self.steps_ns, self.high_ns / self.steps_ns) if self.steps_ns else (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Windows of one run with one cause: a stage and the ranks that are late in it, or missing data.

    Attributes:
        id: derived from run, kind, stage and rank only, so that links and mutes survive new packets.
        other_ids: ids that single windows of it had; they refer to it too.
        stage: broad stage; None if data are missing.
        ranks: ranks that are late in all windows that name any (if ranks take turns, in any window), or
            missing ranks; ascending.
        hostname: of the latest rank.
        steps_late: the late steps of the latest window, or of the latest in which it is late throughout:
            ``all``, ``every K`` or their numbers.
        windows: numbers of its windows, ascending. world: number of ranks of the latest one, missing ones
            included.
        episodes: stretches of windows, the earliest first; empty if data are missing.
        began, ended: first and last step with it; ``ended`` is None while the run's last window has it.
        began_at, ended_at: when these steps ran; None if packets hold no times.
        stale_from: while the run's last window has it, when the next window is overdue, so that recording has
            stopped if none arrived; None if it has ended, or if packets hold no times.
        recovered: windows of the run since it ended.
        cost: None if data are missing.
        shared: what the ranks that are late in most of its windows share, beyond chance; None if only one is
            late, or if packets were not read.
        roll_call: of a standstill: which ranks have arrived, which have not, and which rank holds the job.
    """

    id: str
    other_ids: tuple[str, ...] = ()
    run_id: str
    kind: ProblemKind
    stage: str | None
    ranks: tuple[int, ...]
    hostname: str | None
    steps_late: str | tuple[int, ...] = "all"
    windows: tuple[int, ...]
    world: int
    episodes: tuple[Episode, ...] = ()
    began: StepEstimate
    ended: StepEstimate | None
    began_at: _Moment | None = None
    ended_at: _Moment | None = None
    stale_from: _Moment | None = None
    recovered: int = 0
    cost: Cost | None = None
    shared: tuple[SharedAttribute, ...] | None = None
    roll_call: RollCall | None = None

    def is_stale(self, now: datetime) -> bool:
        """Return whether it had not ended when recording stopped, so that it cannot be called ongoing."""
        return self.ended is None and self.stale_from is not None and now >= self.stale_from

    @property
    def latest_window(self) -> int | None:
        """Number of its latest window; None for a standstill, which has none."""
        return self.windows[-1] if self.windows else None

    @property
    def short_id(self) -> str:
        """The short form of the id."""
        return self.id[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemMark:
    """Decisions of users about a problem.

    Attributes:
        muted_until: end of the mute, UTC; None if it has none. reason: why it is muted.
        fixed_through: number of the run's last window when it was marked as fixed.
        muted, fixed: user and time of the decision; None without one.
        revision: the newest edit. overwritten: values replaced by concurrent edits.
    """

    problem: str
    muted: Stamp | None = None
    muted_until: _Moment | None = None
    reason: str = ""
    fixed: Stamp | None = None
    fixed_through: int | None = None
    revision: str = ""
    overwritten: tuple[Overwritten, ...] = ()


def problem_status(problem: Problem, mark: ProblemMark | None, now: datetime) -> ProblemStatus:
    """Return a problem's status: muted if a mute has not ended; else fixed if it was marked so and no later
    window has it, and returned while it is ongoing in spite of that mark."""
    if mark is not None and mark.muted is not None and (mark.muted_until is None or now < mark.muted_until):
        return "muted"
    if mark is None or mark.fixed is None:
        return "ongoing" if problem.ended is None else "ended"
    latest = problem.latest_window
    if mark.fixed_through is None or latest is None or latest <= mark.fixed_through:
        return "fixed"
    return "returned" if problem.ended is None else "ended"


def shown_status(problem: Problem, status: ProblemStatus, now: datetime) -> ProblemStatus:
    """Return the status in whose colour a problem is shown: that of a run which is no longer recorded as if
    it had ended, except that missing data stay an alarm."""
    is_over = problem.kind != "missing" and problem.is_stale(now)
    return "ended" if status == "ongoing" and is_over else status


def needs_attention(status: ProblemStatus) -> bool:
    """Return whether a problem of this status needs attention."""
    return status not in ("muted", "fixed")
