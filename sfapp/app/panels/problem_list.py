"""Problems as rows, the costliest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sfapp.app.theme import box, label_text, link
from sfapp.model.problems import shown_status
from sfapp.service.problems import ListedProblem
from sfapp.views.address import problem_page
from sfapp.views.text.problems import problem_text

SHOWN = 20
"""Number of problems listed at first, and added at each request for more."""

CLOCK_S = 15.0
"""Seconds after which a page looks whether time changed a status: recording stopped, or a mute ended."""


class ProblemList:
    """A list that grows on demand, so that a page stays small with many problems."""

    def __init__(self) -> None:
        """Build an empty list inside the current container."""
        self._listed: Sequence[ListedProblem] = ()
        self._limit = SHOWN
        self._rows = box("problems", "ol").mark("problems")
        self._more = label_text("", "button", "badge").mark("more-problems")
        self._more.on("click", self._show_more)

    def show(self, problems: Sequence[ListedProblem]) -> None:
        """Show these problems in their order."""
        if problems == self._listed:
            return
        self._listed = problems
        self._build()

    def _show_more(self) -> None:
        self._limit += SHOWN
        self._build()

    def _build(self) -> None:
        self._rows.clear()
        with self._rows:
            for one in self._listed[: self._limit]:
                _row(one)
        left = len(self._listed) - self._limit
        self._more.text = f"Show {min(left, SHOWN)} more of {left}"
        self._more.set_visibility(left > 0)


def _row(one: ListedProblem) -> None:
    """Build one problem as a link with its effect, onset and cost."""
    text = problem_text(one.problem, one.status, one.mark)
    shade = shown_status(one.problem, one.status, datetime.now(UTC))
    with box(f"problem problem-{shade}", "li"), link("", problem_page(one.problem)).mark("problem"):
        with box("problem-what"):
            label_text(text.title, "strong")
            label_text(text.steps, "span", "muted")
            label_text(text.status, "span", "problem-status")
        label_text(" · ".join((text.where, text.since, text.until)), "span", "muted")
        with box("problem-cost"):
            label_text(text.cost, "strong")
            label_text(text.total, "span", "muted")
