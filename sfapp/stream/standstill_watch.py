"""Notice that a job stands still, and keep which rank holds it as samples next to the packets."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from sfapp.model.samples import StandstillSample
from sfapp.model.standstill import REPEAT_SECONDS, JobPositions, RankPosition, RollCall
from sfapp.packets.window_rows import STEP_COLUMN, WALL_COLUMN
from sfapp.stream.live_state import LiveSnapshot, RankSnapshot

RollCallRule = Callable[[JobPositions], RollCall | None]
"""Function that returns which rank holds a job that stands still; None if it does not."""

MOVING_SECONDS = 1.0
"""Time since the last step of any rank below which a job moves, whatever the limit: watches are a second
apart."""

_LONGEST_PAUSE = 5.0
"""Seconds between two looks above which this process itself was stopped: ranks then only seem silent."""

SETTLED_SECONDS = 5.0
"""Seconds after which the state of every rank is known: silence takes some seconds to notice."""

_GONE = frozenset({"dead", "silent", "silent_node", "left"})

_MOST_RANKS = 64  # whose steps tell how long a step usually takes
_FEW_STEPS = 10


@dataclass(frozen=True, slots=True)
class _Standstill:
    """A standstill as it was last written.

    Attributes:
        began_ns: when the last step was finished, ns since 1970; began_at: the same in monotonic seconds.
        content: the roll-call without its times.
        found_at, written_at: when it was found and last written, monotonic seconds.
        written_ns: when it was last written, ns since 1970.
    """

    began_ns: int
    began_at: float
    roll: RollCall
    content: object
    found_at: float
    written_at: float
    written_ns: int

    def is_over(self, job: JobPositions, now: float) -> bool:
        """Return whether a rank has finished a step, or a restarted process has connected, since it began."""
        return now - self.began_at - job.idle_s > 1.0

    def is_due(self, now: float, at_ns: int) -> bool:
        """Return whether it is to be written again, by either clock: readers compare the times of samples,
        and the time of day may have been set."""
        return now - self.written_at >= REPEAT_SECONDS or at_ns - self.written_ns >= REPEAT_SECONDS * 1e9

    def later(self, now: float, at_ns: int) -> _Standstill:
        """Return it as written again at this moment."""
        roll = self.roll.after(now - self.written_at)
        return replace(self, roll=roll, written_at=now, written_ns=at_ns)

    def is_followed_by(self, roll: RollCall, now: float) -> bool:
        """Return whether a later roll-call only shows how the job was ended.

        A watchdog or the launcher ends it some time after it stands still; the first cause is kept.
        """
        is_sure = bool(self.roll.holders) and self.roll.certainty != "possible"
        return is_sure and now - self.found_at > SETTLED_SECONDS and not _gone(roll) <= _gone(self.roll)


def _gone(roll: RollCall) -> set[int]:
    """Return the ranks whose processes may not exist any more."""
    return {rank for group in roll.groups if group.state in _GONE for rank in group.ranks}


class StandstillWatch:
    """Watch of all runs of an aggregator, called about once a second.

    Args:
        rule: finds which rank holds a job.
        clock: monotonic seconds.
    """

    def __init__(self, rule: RollCallRule, clock: Callable[[], float] = time.monotonic) -> None:
        self._rule = rule
        self._clock = clock
        self._standing: dict[str, _Standstill] = {}
        self._looked_at: float | None = None

    def samples(self, snapshot: LiveSnapshot, at_ns: int) -> dict[str, StandstillSample]:
        """Return a sample for every run whose standstill has begun, changed or ended.

        Args:
            at_ns: the current time, ns since 1970.
        """
        now, before = self._clock(), self._looked_at
        self._looked_at = now
        by_run: defaultdict[str, list[RankSnapshot]] = defaultdict(list)
        for rank in snapshot.ranks:
            by_run[rank.run_id].append(rank)
        self._standing = {run: found for run, found in self._standing.items() if run in by_run}
        if before is None or now - before > _LONGEST_PAUSE:
            found = {run_id: self._repeated(run_id, now, at_ns) for run_id in by_run}
        else:
            found = {run_id: self._look(run_id, ranks, now, at_ns) for run_id, ranks in by_run.items()}
        return {run_id: sample for run_id, sample in found.items() if sample is not None}

    def _look(
        self, run_id: str, ranks: Sequence[RankSnapshot], now: float, at_ns: int
    ) -> StandstillSample | None:
        known = self._standing.get(run_id)
        if known is None and any(_has_just_stepped(rank) for rank in ranks):
            return None  # Positions of 100,000 ranks take as many objects.
        job = positions_of(ranks)
        if known is not None and (known.is_over(job, now) or all(rank.has_left for rank in ranks)):
            del self._standing[run_id]
            return _sample(known, at_ns, has_ended=True)
        roll = self._rule(job)
        if roll is None or (known is not None and known.is_followed_by(roll, now)):
            return self._repeated(run_id, now, at_ns)
        content = _without_times(roll)
        if known is not None and content == known.content and not known.is_due(now, at_ns):
            return None
        idle_ns = int(roll.idle_s * 1e9)
        standing = _Standstill(
            began_ns=at_ns - idle_ns if known is None else known.began_ns,
            began_at=now - roll.idle_s if known is None else known.began_at,
            roll=roll,
            content=content,
            found_at=now if known is None else known.found_at,
            written_at=now,
            written_ns=at_ns,
        )
        self._standing[run_id] = standing
        return _sample(standing, at_ns, has_ended=False)

    def _repeated(self, run_id: str, now: float, at_ns: int) -> StandstillSample | None:
        """Return a known standstill again if that is due: readers take one that is not for over."""
        known = self._standing.get(run_id)
        if known is None or not known.is_due(now, at_ns):
            return None
        self._standing[run_id] = known = known.later(now, at_ns)
        return _sample(known, at_ns, has_ended=False)


def _has_just_stepped(rank: RankSnapshot) -> bool:
    return rank.idle_seconds is not None and rank.idle_seconds < MOVING_SECONDS


def positions_of(ranks: Sequence[RankSnapshot]) -> JobPositions:
    """Return where the ranks of one run are."""
    newest = min(ranks, key=lambda rank: rank.silent_seconds)  # A restarted job may have another size.
    here = [rank for rank in ranks if rank.identity.rank < newest.world_size]
    idle = [rank.idle_seconds for rank in here if rank.idle_seconds is not None]
    positions = tuple(map(_position, here))
    steps = [each.newest_step for each in positions if each.newest_step is not None]
    walls = [rank.row_NC[-_FEW_STEPS:, WALL_COLUMN] for rank in here[:_MOST_RANKS] if len(rank.row_NC)]
    return JobPositions(
        world_size=newest.world_size,
        ranks=positions,
        stages=newest.stages,
        newest_step=max(steps, default=None),
        idle_s=min(idle) if idle else min(rank.known_seconds for rank in here),
        usual_step_s=float(np.median(np.concatenate(walls))) / 1e9 if walls else 0.0,
        steps=max((len(rank.row_NC) for rank in here), default=0),
    )


def _position(rank: RankSnapshot) -> RankPosition:
    identity = rank.identity
    return RankPosition(
        rank=identity.rank,
        node_rank=identity.node_rank,
        place=rank.place,
        silent_s=rank.silent_seconds,
        has_left=rank.has_left,
        look=rank.look,
        pipeline_stage=identity.coordinates.get("pp", identity.role),
        newest_step=int(rank.row_NC[-1, STEP_COLUMN]) if len(rank.row_NC) else None,
    )


def _without_times(roll: RollCall) -> object:
    groups = tuple(msgspec.structs.replace(group, still_s=0.0) for group in roll.groups)
    return roll.kind, roll.certainty, roll.step, groups


def _sample(standing: _Standstill, at_ns: int, *, has_ended: bool) -> StandstillSample:
    return StandstillSample(
        at_ns=at_ns,
        node_rank=0,
        step=standing.roll.step,
        began_ns=standing.began_ns,
        limit_s=standing.roll.limit_s,
        has_ended=has_ended,
        roll_call=msgspec.json.encode(standing.roll).decode(),
    )
