"""The standstills of streamed runs, from samples of the aggregator (docs/hangs.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from sfapp.accounting.problems import NS_PER_HOUR, OVERDUE
from sfapp.model.onsets import StepEstimate
from sfapp.model.problems import Cost, Problem
from sfapp.model.samples import AggregatorSample, StandstillSample
from sfapp.model.standstill import REPEAT_SECONDS, RollCall, parse_roll_call
from sfapp.views import text as words

if TYPE_CHECKING:
    from sfapp.store import Store

MOST_STANDSTILLS = 256
"""Number of a run's newest standstills that are read."""

UNCONFIRMED = timedelta(seconds=3 * REPEAT_SECONDS)
"""Time without a sample of it after which a standstill is over, if there are samples of its run: the
aggregator that wrote it has ended, and the next one does not know of it."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """A standstill of a run.

    Attributes:
        roll: which ranks have arrived, which have not, and which rank holds the job, at ``at``.
        began_at: when a rank last finished a step. at: time of the newest sample of it, UTC.
        has_ended: whether a step was finished, or all ranks left, by then; or the aggregator ended, and the
            run was seen later without it.
    """

    run_id: str
    roll: RollCall
    began_at: datetime
    at: datetime
    has_ended: bool

    def seen_at(self, now: datetime) -> Standstill:
        """Return it with the times of a later moment, while it lasts."""
        later_s = (now - self.at).total_seconds()
        if self.has_ended or later_s <= 0:
            return self
        return replace(self, roll=self.roll.after(later_s), at=now)

    def is_continued_by(self, later: Standstill) -> bool:
        """Return whether a later one of the same step is this one, as seen by an aggregator that was started
        meanwhile: it knows for how long ranks have been connected only."""
        return not self.has_ended and later.began_at - self.at <= UNCONFIRMED

    def document(self) -> dict[str, Any]:
        """Return it as plain data for JSON, with its sentences."""
        roll = self.roll
        return {
            "problem": self.problem().id,
            "summary": words.standstill_sentence(roll),
            "detail": list(words.standstill_details(roll)),
            "action": words.standstill_action(roll),
            "began_at": self.began_at,
            "has_ended": self.has_ended,
            "holders": list(roll.holders),
            **msgspec.to_builtins(roll),
        }

    def problem(self) -> Problem:
        """Return it as a problem, whose id names run and step."""
        roll, step = self.roll, StepEstimate(self.roll.step, self.roll.step, self.roll.step)
        lost_ns = roll.idle_s * 1e9
        if self.has_ended:
            lost_ns = max(0.0, (self.at - self.began_at).total_seconds() * 1e9)
        digest = blake2b(json.dumps((self.run_id, "standstill", roll.step)).encode(), digest_size=8)
        first = next(iter(roll.held_by), None)
        return Problem(
            id=digest.hexdigest(),
            run_id=self.run_id,
            kind="standstill",
            stage=None if first is None else first.stage or None,
            ranks=roll.holders,
            hostname=None,
            windows=(),
            world=roll.world_size,
            began=step,
            ended=step if self.has_ended else None,
            began_at=self.began_at,
            ended_at=self.at if self.has_ended else None,
            stale_from=None if self.has_ended else self.at + OVERDUE,
            cost=Cost(lost_ns, lost_ns, lost_ns, 1, lost_ns, lost_ns * roll.world_size / NS_PER_HOUR),
            roll_call=roll,
        )


def standstills(store: Store, run_id: str, until: datetime | None = None) -> list[Standstill]:
    """Return the standstills of a run, the earliest first; of one step only the newest.

    Args:
        until: as known at this moment.
    """
    by_step: dict[int, Standstill] = {}
    rows = store.newest_samples(StandstillSample, run_id, until, most=MOST_STANDSTILLS)
    for row in sorted(rows, key=lambda each: each["sampled_at"]):
        roll = parse_roll_call(row["roll_call"])
        if roll is not None:
            began_at = datetime.fromtimestamp(row["began_ns"] / 1e9, UTC)
            found = Standstill(run_id, roll, began_at, row["sampled_at"], row["has_ended"])
            before = by_step.get(roll.step)
            if before is not None and before.is_continued_by(found):
                found = replace(found, began_at=min(before.began_at, began_at))
            by_step[roll.step] = found
    every = sorted(by_step.values(), key=lambda each: each.began_at)
    if all(each.has_ended for each in every):
        return every
    seen = store.newest_samples(AggregatorSample, run_id, until)
    seen_at = max((row["sampled_at"] for row in seen), default=None)
    return [_ended_unseen(each, seen_at) for each in every]


def _ended_unseen(found: Standstill, seen_at: datetime | None) -> Standstill:
    """Return a standstill as ended if its aggregator has ended and the run was seen after that."""
    is_over = seen_at is not None and seen_at > found.at + UNCONFIRMED
    return replace(found, has_ended=True) if is_over and not found.has_ended else found


def present_standstill(found: Sequence[Standstill], now: datetime) -> Standstill | None:
    """Return the standstill that lasts, with the times of this moment."""
    last = next((each for each in reversed(found) if not each.has_ended), None)
    return None if last is None or last is not found[-1] else last.seen_at(now)
