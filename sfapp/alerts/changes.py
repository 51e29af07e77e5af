"""Find what has changed since a target was notified: pure functions of problems.

A target is notified of the difference between the problems that it knows and the present ones, and knows
these once it has accepted the message. Nothing is therefore sent twice, and what happens while nothing can be
sent is summed up afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal

import msgspec

from sfapp.service.problems import ListedProblem
from sfapp.views.text.problems import problem_text

ChangeKind = Literal["began", "changed", "ended", "returned", "removed"]

CHANGES: Mapping[ChangeKind, str] = {
    "began": "A problem is ongoing that the target does not know.",
    "changed": "An ongoing problem has other ranks, or costs twice as much or half as much per step.",
    "ended": "A known problem has ended, or a problem began and ended since the last look.",
    "returned": "A problem that had ended, or was marked as fixed, is ongoing again.",
    "removed": "An ongoing problem is not found any more: its windows were removed or judged again.",
}
"""Every kind of change with its meaning."""

CHANGE_SECONDS = 600.0
"""Shortest time between two notifications that the same problem has changed."""

REMOVED_SECONDS = 60.0
"""Time for which a problem must be missing before it counts as removed: an app may just have started."""

DROP_SECONDS = 30 * 86_400.0
"""Time after which a problem that is not found any more is dropped from the state."""

MAX_KNOWN = 20_000
"""Number of known problems above which those that are not found are dropped; those that were found last are
kept."""

_FACTOR = 2.0

_LONGEST_TITLE = 200


class KnownProblem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a target knows of one problem; of one that is not ongoing, the latest window only.

    Attributes:
        ranks: digest of its ranks. lost_ns: its cost per step, ns; None if that is not known.
        at: when the target was notified last, seconds since 1970.
        missing_since: since when it is not found, seconds since 1970.
        window: its latest window; None if it has none.
    """

    run_id: str
    title: str
    is_ongoing: bool
    ranks: str = ""
    lost_ns: float | None = None
    at: float = 0.0
    missing_since: float | None = None
    window: int | None = None


Known = Mapping[str, KnownProblem]
"""What a target knows, by the id of the problem."""


@dataclass(frozen=True, slots=True)
class ProblemChange:
    """Something that a target does not know yet.

    Attributes:
        id, run_id, title: of the problem.
        listed: the problem; None if it was removed.
    """

    kind: ChangeKind
    id: str
    run_id: str
    title: str
    listed: ListedProblem | None


def changes_since(
    known: Known | None, present: Iterable[ListedProblem], now: float
) -> tuple[list[ProblemChange], dict[str, KnownProblem]]:
    """Return what has changed, in the order of the problems, and what the target knows once it was notified.

    Args:
        known: None at a target's first look: it is notified of ongoing problems of runs that are recorded,
            and of none that have ended.
        now: seconds since 1970.
    """
    before, is_first = dict(known or {}), known is None
    found: list[ProblemChange] = []
    after: dict[str, KnownProblem] = {}
    for listed in present:
        problem = listed.problem
        names = (problem.id, *problem.other_ids)
        matches = [each for name in names if (each := before.pop(name, None)) is not None]
        last = max(matches, key=lambda each: (each.is_ongoing, each.window or 0), default=None)
        kind = _change(last, listed, now, is_first)
        fresh = _known(listed, now if kind else (last.at if last else 0.0))
        if kind is not None:
            found.append(ProblemChange(kind, problem.id, problem.run_id, fresh.title, listed))
        elif last is not None and last.is_ongoing and listed.status in ("ongoing", "returned", "muted"):
            # It is compared with what the target was notified of, so that slow changes add up.
            fresh = msgspec.structs.replace(last, missing_since=None)
        else:
            # Of a store of many runs, most have ended: the state keeps no words of these.
            fresh = KnownProblem(run_id="", title="", is_ongoing=False, window=fresh.window)
        after[problem.id] = fresh
    for name, missing in before.items():
        # A time ahead is of a clock that was set back since: it would keep the problem for as long.
        since = now if missing.missing_since is None else min(now, missing.missing_since)
        if missing.is_ongoing and now - since >= REMOVED_SECONDS:
            found.append(ProblemChange("removed", name, missing.run_id, missing.title, None))
        elif now - since < DROP_SECONDS:
            after[name] = msgspec.structs.replace(missing, missing_since=since)
    return found, _bounded(after)


def _change(
    last: KnownProblem | None, listed: ListedProblem, now: float, is_first: bool
) -> ChangeKind | None:
    """Return what to notify of about one problem; None for nothing."""
    if listed.status in ("muted", "fixed"):
        return None
    if listed.status == "ended":
        is_news = not is_first if last is None else last.is_ongoing or _is_later(last, listed)
        return "ended" if is_news else None
    is_over = listed.problem.is_stale(datetime.fromtimestamp(now, UTC))
    if last is None:
        return None if is_first and is_over else "began"
    if not last.is_ongoing:
        is_same = is_over and last.window == listed.problem.latest_window
        return None if is_same else "returned"
    is_recent = 0 <= now - last.at < CHANGE_SECONDS  # not if the clock was set back since
    return "changed" if not is_recent and _differs(last, listed) else None


def _is_later(last: KnownProblem, listed: ListedProblem) -> bool:
    """Return whether a problem has a later window than when the target knew it, so that it had returned."""
    latest = listed.problem.latest_window
    return last.window is not None and latest is not None and latest > last.window


def _differs(last: KnownProblem, listed: ListedProblem) -> bool:
    fresh = _known(listed, 0.0)
    if fresh.ranks != last.ranks:
        return True
    if listed.problem.kind == "standstill" or not fresh.lost_ns or not last.lost_ns:
        return False  # The cost of a standstill grows as time passes.
    return not 1 / _FACTOR < fresh.lost_ns / last.lost_ns < _FACTOR


def _known(listed: ListedProblem, at: float) -> KnownProblem:
    problem = listed.problem
    cost = problem.cost
    text = problem_text(problem)
    title = text.headline
    return KnownProblem(
        run_id=problem.run_id,
        title=title[:_LONGEST_TITLE],
        is_ongoing=listed.status in ("ongoing", "returned"),
        ranks=blake2b(json.dumps(problem.ranks).encode(), digest_size=8).hexdigest(),
        lost_ns=None if cost is None else cost.lost_ns / max(1, cost.steps),
        at=at,
        window=problem.latest_window,
    )


def _bounded(known: dict[str, KnownProblem]) -> dict[str, KnownProblem]:
    """Return the problems that are found and, up to ``MAX_KNOWN`` in all, those that were found last.

    One that is found and dropped would be reported again at each look.
    """
    if len(known) <= MAX_KNOWN:
        return known

    def age(name: str) -> float:
        since = known[name].missing_since
        return float("-inf") if since is None else -since

    newest = sorted(known, key=age)
    found = sum(each.missing_since is None for each in known.values())
    return {name: known[name] for name in newest[: max(MAX_KNOWN, found)]}
