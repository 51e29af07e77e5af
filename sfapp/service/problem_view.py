"""One problem with the verdict on its latest window, for its page and for assistants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfapp.errors import SfappError
from sfapp.model import ALL_RANKS, Diagnosis
from sfapp.model.problems import Problem
from sfapp.model.view import ViewState, WindowKey
from sfapp.operators import Agreement, agreement
from sfapp.service.judging import JudgedWindow
from sfapp.service.missing_rows import missing_rows_note
from sfapp.service.workspace import Workspace
from sfapp.store import WindowQuery
from sfapp.views.text.problems import is_about


@dataclass(frozen=True, slots=True)
class ProblemView:
    """A problem as its page shows it.

    Attributes:
        judged: its latest window; None if that cannot be read, for the ``reason`` given.
        missing_rows: which rows of it were thinned, and the verdict on all of them, in words; empty if none.
        rows: windows of its run.
        notices: on a group that its latest window lacks.
        agreement: of the verdict with the findings in operators, where these were examined already.
    """

    generation: int
    problem: Problem
    judged: JudgedWindow | None
    reason: str
    rows: list[dict[str, Any]]
    missing_rows: str = ""
    agreement: Agreement | None = None
    notices: Sequence[str] = ()

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The verdict on its latest window, if that can be read."""
        return None if self.judged is None else self.judged.diagnosis

    @property
    def diagnosis_about(self) -> Diagnosis | None:
        """The same if it is about this problem: a larger one may hide it."""
        found = self.diagnosis
        return found if found is not None and is_about(found, self.problem) else None

    @classmethod
    def of(
        cls, workspace: Workspace, problem_id: str, run_id: str | None, group: str = ALL_RANKS
    ) -> ProblemView:
        """Read the problem from the store. Blocking.

        Args:
            group: the ranks that its latest window is judged by; all where the window lacks it.

        Raises:
            WindowNotFoundError: there is no such problem.
        """
        generation = workspace.store.generation
        problem = workspace.problem(problem_id, run_id)
        key = latest_key(problem)
        judged, reason, missing_rows, notices = None, "", "", list[str]()
        if key is not None:
            try:
                source = workspace.source(key)
                window = workspace.window(source)
                view, notices = ViewState(group=group).fitted(window)
                missing_rows = missing_rows_note(workspace.store_of(key.run_id), window)
                judged = workspace.judge(source, view)
            except SfappError as error:
                reason = str(error)
        rows = workspace.timeline(WindowQuery(problem.run_id))
        agreed = _known_agreement(workspace, judged)
        return cls(generation, problem, judged, reason, rows, missing_rows, agreed, notices)


def _known_agreement(workspace: Workspace, judged: JudgedWindow | None) -> Agreement | None:
    examined = None if judged is None else workspace.cached_findings(judged)
    if judged is None or examined is None or examined.findings is None:
        return None
    return agreement(judged.diagnosis, examined.findings, judged.measures.window)


def latest_key(problem: Problem) -> WindowKey | None:
    """Return the latest window of a problem; None for a standstill."""
    return None if problem.latest_window is None else WindowKey(problem.run_id, problem.latest_window)
