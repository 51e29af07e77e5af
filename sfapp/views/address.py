"""Addresses of the app's pages, with any run id as one segment of the path."""

from __future__ import annotations

from urllib.parse import quote, unquote

from sfapp.model.examples import EXAMPLES, Example
from sfapp.model.problems import Problem
from sfapp.model.view import WindowKey


def path_segment(run_id: str) -> str:
    """Return a run id as one path segment; any character is allowed, including ``/`` and ``%``.

    ``~`` is put before ids that a browser would read as a relative path, and after those that would be read
    as an address of data. Ids that a reverse proxy would read as another path, such as ``a//b``, follow a
    ``~`` with ``~1`` for ``/`` and ``~0`` for ``~``, because a proxy may decode ``%2F``.
    """
    before = "~" if _is_relative(run_id) else ""
    name = _marked(run_id) if _is_marked(run_id) else run_id
    after = "~" if _reads_as_data(name) else ""
    return quote(f"{before}{name}{after}", safe="")


def run_from_segment(segment: str) -> str:
    """Return the run id of an undecoded path segment: the inverse of ``path_segment``."""
    text = unquote(segment)
    if text.startswith("~") and _is_relative(text):
        return text[1:]
    text = text[:-1] if text.endswith("~") and _reads_as_data(text) else text
    run_id = text[1:].replace("~1", "/").replace("~0", "~")
    return run_id if _is_marked(run_id) and _marked(run_id) == text else text


def _is_relative(run_id: str) -> bool:
    return run_id.lstrip("~") in ("", ".", "..")


def _is_marked(run_id: str) -> bool:
    parts = run_id.split("/")
    is_changed = len(parts) > 1 and any(part in ("", ".", "..") for part in parts)
    # Ids that read as such a mark are marked too.
    return is_changed or (run_id.startswith("~") and ("~0" in run_id or "~1" in run_id))


def _marked(run_id: str) -> str:
    return "~" + run_id.replace("~", "~0").replace("/", "~1")


def _reads_as_data(run_id: str) -> bool:
    # Routes ignore a line break at the end of a path.
    return run_id.rstrip("~\n").endswith((".json", ".csv"))


def run_page(run_id: str) -> str:
    """Return the page of a run's history."""
    return f"/runs/{path_segment(run_id)}"


def live_page(run_id: str) -> str:
    """Return the live page of a run."""
    return f"/live/{path_segment(run_id)}"


def window_page(key: WindowKey) -> str:
    """Return the page of one window."""
    return f"/w/{path_segment(key.run_id)}/{key.window}"


def example_page(example: Example) -> str:
    """Return the page of a built-in example, which is that of its window."""
    return window_page(WindowKey(example.run_id, 0))


def problem_page(problem: Problem) -> str:
    """Return the page of one problem. For a built-in example it names the run, which is not in the store."""
    page = f"/problems/{quote(problem.id, safe='')}"
    return f"{page}?run={quote(problem.run_id, safe='')}" if problem.run_id in EXAMPLES else page


def fleet_page(text: str = "", by: str = "") -> str:
    """Return the page of all runs, filtered by a search and grouped by a field."""
    pairs = [f"{name}={quote(value, safe='')}" for name, value in (("text", text), ("by", by)) if value]
    return f"/fleet?{'&'.join(pairs)}" if pairs else "/fleet"


def incident_page(incident_id: str) -> str:
    """Return the page of one incident."""
    return f"/incident/{quote(incident_id, safe='')}"


def term_page(kind: str, name: str) -> str:
    """Return the place in the glossary that explains a term of a verdict."""
    return f"/glossary#{kind}-{name}"
