"""Tools about runs: their list, their windows, the fleet."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from sfapp.assistants.bounded_answer import AnswerRows, ToolAnswer, shown_text
from sfapp.assistants.tool_arguments import FleetArguments, RunsArguments, WindowsArguments
from sfapp.errors import WindowNotFoundError
from sfapp.service.fleet import FleetQuery, fleet_document
from sfapp.service.problems import ListedProblem, listed
from sfapp.service.workspace import Workspace
from sfapp.store import WORST_FIRST, WindowQuery
from sfapp.terminal import quoted
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.text.fleet import fleet_headline, host_advice, host_sentence
from sfapp.views.text.problems import problem_title
from sfapp.views.text.trends import trends_headline

_ORDERS = {
    "worst": WORST_FIRST,
    "latest": (("started_at", "desc"), ("window", "desc")),
    "first": (("started_at", "asc"), ("window", "asc")),
}


def run_named(workspace: Workspace, name: str) -> str:
    """Return the run id that an answer shows as ``name``: answers escape and cut ids.

    Raises:
        WindowNotFoundError: no run in the given folders has this name, or several do.
    """
    known = [run.run_id for run in workspace.store.runs()]
    known += [run["run_id"] for run in workspace.store.live_runs()]
    if name in known:
        return name
    matches = {run_id for run_id in known if shown_text(run_id) == name}
    if len(matches) == 1:
        return matches.pop()
    why = "several runs are shown as" if matches else "no run in the given folders is named"
    raise WindowNotFoundError(f"{why} {quoted(name)}; list_runs lists the runs")


def list_runs(workspace: Workspace, asked: RunsArguments) -> ToolAnswer:
    """Return the runs, those that need attention first."""
    fleet = FleetQuery(asked.text).select(workspace.fleet())
    runs = [run for run in fleet.runs if asked.state in (None, run.state)]
    problems: dict[str, list[ListedProblem]] = defaultdict(list)
    for one in listed(workspace.problems(locates=False), workspace.incident_log.state()):
        problems[one.problem.run_id].append(one)
    page = runs[asked.offset :][: asked.limit]
    rows = [msgspec.to_builtins(run) | _problems_of(problems[run.run_id]) for run in page]
    quarantined = len(workspace.store.quarantine())
    refused = f"{format.counted(quarantined, 'packet file')} refused; `sfapp validate` prints why"
    return ToolAnswer(
        {}, AnswerRows("runs", rows, len(runs), asked.offset), notes=(refused,) if quarantined else ()
    )


def _problems_of(problems: list[ListedProblem]) -> dict[str, Any]:
    first = problems[0] if problems else None
    return {
        "problems": len(problems),
        "ongoing_problems": sum(one.status in ("ongoing", "returned") for one in problems),
        "first_problem": None
        if first is None
        else {"id": first.problem.id, "title": problem_title(first.problem)},
    }


def list_windows(workspace: Workspace, asked: WindowsArguments) -> ToolAnswer:
    """Return the windows of a run, each with its verdict in one line."""
    run_id = run_named(workspace, asked.run)
    query = WindowQuery(
        run=run_id,
        needs_attention=asked.needs_attention,
        sort=_ORDERS[asked.order],
        offset=asked.offset,
        limit=asked.limit,
    )
    found = workspace.store.windows(query)
    rows = [_window_row(workspace, row) for row in found.rows]
    return ToolAnswer({"run_id": run_id}, AnswerRows("windows", rows, found.total, asked.offset))


def _window_row(workspace: Workspace, row: dict[str, Any]) -> dict[str, Any]:
    diagnosis = workspace.store.diagnosis(row["run_id"], row["window"])
    return {
        "window": row["window"],
        "summary": words.summary(diagnosis),
        "needs_attention": diagnosis.needs_attention,
        "lacks_data": diagnosis.lacks_data,
        "severity": diagnosis.severity,
        "change": diagnosis.change,
        "step_time_mean_ns": diagnosis.step_time.mean_ns,
        "first_step": diagnosis.first_step,
        "last_step": diagnosis.last_step,
        "started_at": row["started_at"],
        "labels": diagnosis.label_names,
    }


def show_fleet(workspace: Workspace, asked: FleetArguments) -> ToolAnswer:
    """Return what the runs show together."""
    fleet = FleetQuery(asked.text).select(workspace.fleet())
    findings = [
        {"hostname": host.hostname, "finding": host_sentence(host), "advice": host_advice(host)}
        for host in fleet.suspects
    ]
    trends = workspace.trends(asked.by)
    document = fleet_document(fleet, asked.limit, trends)
    hosts, runs = len(fleet.hosts), len(fleet.runs)
    left_out = [
        f"{name}: {total - asked.limit:,} more"
        for name, total in (("hosts", hosts), ("runs", runs))
        if total > asked.limit
    ]
    headlines = {"headline": fleet_headline(fleet), "trends_headline": trends_headline(trends)}
    data = {**headlines, "findings": findings, **document}
    return ToolAnswer(data, left_out=tuple(left_out))
