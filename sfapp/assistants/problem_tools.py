"""Tools about problems: their list, and one with its evidence and advice."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sfapp.assistants.bounded_answer import AnswerRows, ToolAnswer
from sfapp.assistants.run_tools import run_named
from sfapp.assistants.tool_arguments import ProblemArguments, ProblemsArguments
from sfapp.service.problem_query import ProblemQuery
from sfapp.service.problem_view import ProblemView, latest_key
from sfapp.service.problems import ListedProblem, listed
from sfapp.service.workspace import Workspace
from sfapp.views.text.problem_evidence import problem_sources, sources_summary
from sfapp.views.text.problems import problem_action, problem_explanation, problem_facts, problem_text

THINNED = (
    "Rows of the problem's latest window were thinned: explanation, advice, facts and evidence are from the "
    "steps that were kept; `problem` is from all."
)

_OMITTED = ("other_ids", "windows", "episodes", "roll_call", "began", "ended")
"""Fields of a problem that a list leaves out."""


def list_problems(workspace: Workspace, asked: ProblemsArguments) -> ToolAnswer:
    """Return the problems of one run or of all."""
    run_id = None if asked.run is None else run_named(workspace, asked.run)
    query = ProblemQuery(run_id, asked.text or None, asked.ongoing, asked.sort)
    marks = workspace.incident_log.state()
    found = query.select(listed(workspace.problems(run_id, locates=False), marks))
    page = found[asked.offset :][: asked.limit]
    return ToolAnswer({}, AnswerRows("problems", [_row(one) for one in page], len(found), asked.offset))


def _row(one: ListedProblem) -> dict[str, Any]:
    text = problem_text(one.problem, one.status, one.mark)
    document = {name: value for name, value in one.document().items() if name not in _OMITTED}
    return {"sentence": text.sentence, **document}


def get_problem(workspace: Workspace, asked: ProblemArguments) -> ToolAnswer:
    """Return one problem as its page shows it."""
    view = ProblemView.of(workspace, asked.id, None)
    (one,) = listed([view.problem], workspace.incident_log.state())
    problem = one.problem
    text = problem_text(problem, one.status, one.mark)
    sources = problem_sources(problem, view.diagnosis_about, view.agreement)
    latest = latest_key(problem)
    data = {
        **asdict(text),
        "explanation": problem_explanation(problem, view.diagnosis),
        "advice": problem_action(problem, view.diagnosis),
        "facts": problem_facts(problem, view.diagnosis),
        "evidence": {"summary": sources_summary(sources), "sources": sources},
        "latest_window": None if latest is None else {"run": latest.run_id, "window": latest.window},
        "latest_window_unreadable": view.reason or None,
        "problem": one.document(),
    }
    return ToolAnswer(data, notes=(THINNED,) if view.missing_rows else ())
