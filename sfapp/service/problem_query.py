"""Lists of problems as a user asks for them: filtered by run and words, in an order; as table rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sfapp.service.problems import ListedProblem
from sfapp.views.text.problems import matches, problem_text

_NEVER = datetime.min.replace(tzinfo=UTC)

ORDERS: Mapping[str, str] = {
    "cost": "Most costly first",
    "newest": "Newest first",
    "oldest": "Oldest first",
    "run": "By run",
}
"""Orders of problems, and their words. In the first, which is the default, missing data come before all."""

_KEYS: Mapping[str, Callable[[ListedProblem], Any]] = {
    "newest": lambda one: -one.problem.began_at.timestamp() if one.problem.began_at else 0.0,
    "oldest": lambda one: (one.problem.began_at is None, one.problem.began_at or _NEVER),
    "run": lambda one: (one.problem.run_id, *one.problem.windows[:1]),
}


@dataclass(frozen=True, slots=True)
class ProblemQuery:
    """Which problems are listed, and how.

    Attributes:
        run: only those of this run. text: only those whose row shows all words of it.
        ongoing: only those that the latest window of their run has.
        sort: one of ``ORDERS``; None for the first.
    """

    run: str | None = None
    text: str | None = None
    ongoing: bool = False
    sort: str | None = None

    @property
    def is_filtered(self) -> bool:
        """Whether problems of the run may be left out."""
        return self.text is not None or self.ongoing

    def select(self, problems: Iterable[ListedProblem]) -> list[ListedProblem]:
        """Return the problems that match, in order.

        Args:
            problems: those that cost most first.
        """
        found = [one for one in problems if self._is_asked(one)]
        key = None if self.sort is None else _KEYS.get(self.sort)
        return found if key is None else sorted(found, key=key)

    def _is_asked(self, one: ListedProblem) -> bool:
        if self.run is not None and one.problem.run_id != self.run:
            return False
        if self.ongoing and one.status not in ("ongoing", "returned"):
            return False
        return self.text is None or matches(one.problem, self.text, one.status, one.mark)


def problem_row(one: ListedProblem) -> dict[str, Any]:
    """Return a problem as a row of a table; times in UTC, durations in nanoseconds."""
    problem, cost, ended = one.problem, one.problem.cost, one.problem.ended
    return {
        "id": problem.id,
        "run_id": problem.run_id,
        "status": one.status,
        "title": problem_text(problem).title,
        "kind": problem.kind,
        "stage": problem.stage,
        "ranks": problem.ranks,
        "hostname": problem.hostname,
        "windows": problem.windows,
        "began_step": problem.began.step,
        "began_low": problem.began.low,
        "began_high": problem.began.high,
        "began_at": problem.began_at,
        "ended_step": None if ended is None else ended.step,
        "ended_at": problem.ended_at,
        "lost_ns_per_step": None if cost is None else cost.lost_ns / max(1, cost.steps),
        "share": None if cost is None else cost.share,
        "share_low": None if cost is None else cost.interval[0],
        "share_high": None if cost is None else cost.interval[1],
        "rank_hours": None if cost is None else cost.rank_hours,
    }
