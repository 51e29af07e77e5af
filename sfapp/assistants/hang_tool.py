"""Tool about a stalled job: from its Flight Recorder dumps, or from the newest standstill of its run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sfapp.assistants.bounded_answer import ToolAnswer
from sfapp.assistants.run_tools import run_named
from sfapp.assistants.tool_arguments import HangArguments
from sfapp.errors import ParseError, WindowNotFoundError
from sfapp.service.hang import analyze_dumps
from sfapp.service.standstills import present_standstill, standstills
from sfapp.service.workspace import Workspace
from sfapp.storage import local_paths
from sfapp.terminal import quoted
from sfapp.views.text.hang import hang_text


def analyze_hang(workspace: Workspace, asked: HangArguments) -> ToolAnswer:
    """Return which ranks block a job."""
    if (asked.run is None) == (asked.dumps is None):
        raise ParseError("name either `run` or `dumps`")
    if asked.dumps is not None:
        return _of_dumps(local_paths(workspace.store.roots), asked.dumps)
    run_id = run_named(workspace, asked.run or "")
    found = standstills(workspace.store_of(run_id), run_id)
    if not found:
        raise WindowNotFoundError(
            "no standstill of this run is recorded: only streamed runs (`sfapp run --live`) report them. If "
            "the job stands still, let `dumps` name the folder of its Flight Recorder dumps"
        )
    newest = present_standstill(found, datetime.now(UTC)) or found[-1]
    return ToolAnswer({"run_id": run_id, "standstills": len(found), "newest": newest.document()})


def _of_dumps(roots: Sequence[Path], text: str) -> ToolAnswer:
    analysis = analyze_dumps([path_within(roots, text)])
    lines = [line for _, line in hang_text(analysis.found)]
    return ToolAnswer({"text": lines, **analysis.document()})


def path_within(roots: Sequence[Path], text: str) -> Path:
    """Return the file or folder below one of the roots that a text names, without links.

    Args:
        roots: absolute. text: relative paths begin at a root.

    Raises:
        ParseError: there is none; the message does not say whether it exists elsewhere.
    """
    for root in roots:
        try:
            path = (root / text).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            continue
        if any(path.is_relative_to(each) for each in roots) and not _leads_out(path, roots):
            return path
    raise ParseError(
        f"{quoted(text)} is no file or folder below the folders that the server was started with"
    )


def _leads_out(path: Path, roots: Sequence[Path]) -> bool:
    """Return whether a folder holds a link to a place outside of the roots."""
    if not path.is_dir():
        return False
    # A folder that is removed meanwhile has no links.
    below = (Path(place, name) for place, folders, names in os.walk(path) for name in (*folders, *names))
    links = (each for each in below if each.is_symlink())
    targets = (Path(os.path.realpath(each)) for each in links)  # ``resolve`` raises where links form a loop
    return any(not any(target.is_relative_to(root) for root in roots) for target in targets)
