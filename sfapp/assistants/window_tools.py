"""Tools about windows: the verdict on one, and the comparison of two or three."""

from __future__ import annotations

from dataclasses import replace

from sfapp.assistants.bounded_answer import ToolAnswer
from sfapp.assistants.run_tools import run_named
from sfapp.assistants.tool_arguments import CompareArguments, WindowArguments
from sfapp.errors import ParseError
from sfapp.model.diagnosis import Diagnosis
from sfapp.model.sides import CompareState, SideKey
from sfapp.model.view import ViewState, WindowKey
from sfapp.service.compare import compare_sides
from sfapp.service.missing_rows import verdict_on_all_rows
from sfapp.service.workspace import Workspace
from sfapp.terminal import quoted
from sfapp.views import text as words
from sfapp.views.text.verdict import extent, extent_of_verdict

FIELDS = (
    *(
        "run_id",
        "window",
        "group",
        "stages",
        "ranks",
        "nodes",
        "steps",
        "first_step",
        "last_step",
        "step_time",
    ),
    *(
        "shares",
        "carry_over_shares",
        "excess",
        "carry_over_excess",
        "exposed_imbalance",
        "change",
        "severity",
    ),
    *(
        "needs_attention",
        "findings",
        "resolution",
        "aim",
        "culprit",
        "culprit_detail",
        "routing_set",
        "labels",
    ),
    *("suppressed", "missing_ranks", "gather_ok", "explanations", "shared", "periods"),
)
"""Fields of a window that an answer has if none are named."""


def get_window(workspace: Workspace, asked: WindowArguments) -> ToolAnswer:
    """Return the verdict on one window: in words, and the fields of docs/json.md.

    If not all rows are here, the window without a group is answered by the stored verdict, as docs/json.md
    says.
    """
    key, view = WindowKey(run_named(workspace, asked.run), asked.window), ViewState(group=asked.group)
    stored = verdict_on_all_rows(workspace, key)
    if stored is None or view != ViewState():
        judged = workspace.judge(workspace.source(key), view)
        diagnosis, ranks, covered = judged.diagnosis, judged.window.ranks, extent(judged.window)
    else:
        diagnosis, ranks, covered = stored, None, extent_of_verdict(stored)
    document = diagnosis.document()
    unknown = [name for name in asked.fields if name not in document]
    if unknown:
        raise ParseError(
            f"this window has no field {quoted(unknown[0])}; it has: {', '.join(sorted(document))}"
        )
    chosen = asked.fields or FIELDS
    others = sorted(set(document) - set(chosen))
    left_out = f"fields of the window: {', '.join(others)}; name them in `fields`"
    text = words.verdict(diagnosis, ranks)
    verdict = {
        "sentence": text.sentence,
        "extent": covered,
        "explanation": text.explanation,
        "reasons": text.reasons,
        "advice": text.action,
        "numbers": text.numbers,
        "evidence": [f"{line.mark} {line.title}: {line.text}" for line in text.evidence],
        "evidence_summary": text.evidence_summary,
        "dissent": text.dissent,
        "labels": [{"label": chip.text, "meaning": chip.meaning} for chip in text.chips],
        "limitations": text.unknown,
    }
    data = {"verdict": verdict, "window": {name: document[name] for name in chosen if name in document}}
    return ToolAnswer(
        data,
        left_out=(left_out,) if others else (),
        notes=() if stored is None else (_missing(stored, view),),
    )


def _missing(stored: Diagnosis, view: ViewState) -> str:
    if view == ViewState():
        return "Not all rows of this window are kept; this is the verdict that was made from all of them."
    return (
        f"Not all rows of this window are kept, of {stored.steps} steps; this verdict is on those that are."
    )


def compare(workspace: Workspace, asked: CompareArguments) -> ToolAnswer:
    """Return how much slower B is than A, in which stages, and whether C recovers it."""
    named = {"a": asked.a, "b": asked.b} | ({} if asked.c is None else {"c": asked.c})
    sides = {name: _side(workspace, name, text) for name, text in named.items()}
    found = compare_sides(workspace, CompareState(**sides, view=ViewState(group=asked.group)))
    text = words.comparison(found)
    data = {
        "headline": text.headline,
        "recovery": text.rest,
        "explanation": text.explanation,
        "caveats": text.caveats,
        "numbers": text.numbers,
        "comparison": found.document(),
    }
    return ToolAnswer(data)


def _side(workspace: Workspace, name: str, text: str) -> SideKey:
    try:
        side = SideKey.parse(text)
    except ParseError as error:
        raise ParseError(f"{name} {error}, not {quoted(text)}") from error
    return replace(side, run_id=run_named(workspace, side.run_id))
