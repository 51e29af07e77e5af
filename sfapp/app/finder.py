"""``/find.json``: search of runs, windows, ranks and hosts by words, for the finder of every page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query

from sfapp.app.routes import PAGES
from sfapp.errors import SfappError
from sfapp.model.view import ViewState, WindowKey, parse_query
from sfapp.service.workspace import Workspace
from sfapp.store import WindowQuery
from sfapp.views import format
from sfapp.views.address import run_from_segment, run_page, window_page
from sfapp.views.window_list_rows import window_row

MOST_OF_A_KIND = 6
"""Maximum number of entries of one kind; the page of windows finds more."""

_NUMBER = re.compile(r"(?:(?P<what>rank|window)s?\s*)?(?P<number>\d{1,9})", re.IGNORECASE)
_WINDOW_PAGE = re.compile(r"/w/(?P<run>[^/]+)/(?P<window>\d{1,9})")

Words = Annotated[str, Query(max_length=200, description="what to find")]
Path = Annotated[
    str, Query(max_length=4000, description="of the page that asks: its ranks and hosts are found, too")
]
View = Annotated[str, Query(max_length=4000, description="query string of that page")]


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """One entry of the finder.

    Attributes:
        kind: ``run``, ``window``, ``rank``, ``host`` or ``page``.
        text, detail: its name, and details that distinguish it.
        href: its address.
    """

    kind: str
    text: str
    detail: str
    href: str


def build(routes: APIRouter, workspace: Workspace) -> None:
    """Add the route."""

    @routes.get("/find.json", summary="Runs, windows, ranks and hosts by a few words", description="")
    def find_json(text: Words = "", path: Path = "", view: View = "") -> dict[str, Any]:
        here = _WINDOW_PAGE.fullmatch(path)
        key = None if here is None else WindowKey(run_from_segment(here["run"]), int(here["window"]))
        return {"found": [asdict(each) for each in find(workspace, text, key, parse_query(view)[0])]}


def find(workspace: Workspace, text: str, here: WindowKey | None, view: ViewState) -> list[FoundPlace]:
    """Return the matches of the words, at most a few of a kind; ranks and hosts of the open window come
    first.

    Args:
        here: the window of the requesting page; None on other pages.
        view: its view, which is kept in links to the same run.
    """
    words = " ".join(text.split()).lower()
    found: list[FoundPlace] = []
    if here is not None and words:
        found += _in_window(workspace, words, here, view)
    runs = (run for run in workspace.store.runs() if words in run.run_id.lower())
    for run in islice(runs, MOST_OF_A_KIND):
        size = f"{format.counted(run.windows, 'window')} · {format.counted(run.ranks, 'rank')}"
        found.append(FoundPlace("run", format.clip(run.run_id), size, run_page(run.run_id)))
    if words:
        found += _windows(workspace, words)
    pages = [page for page in PAGES if page.title and words in page.title.lower()]
    return found + [FoundPlace("page", page.title, "", page.paths[0]) for page in pages]


def _in_window(workspace: Workspace, words: str, here: WindowKey, view: ViewState) -> Iterator[FoundPlace]:
    """Find windows of the open window's run by number, and its ranks and hosts."""
    try:
        ranks = workspace.window(workspace.source(here)).ranks
    except SfappError:  # It is gone, which the page reports itself.
        return
    numbered = _NUMBER.fullmatch(words)
    number = None if numbered is None else int(numbered["number"])
    what = None if numbered is None else numbered["what"]
    if number is not None and what != "window" and number in ranks.rank:
        host = ranks.hostname[ranks.rank.index(number)]
        shown = replace(view, tab="ranks", ranks=(number,))
        href = shown.href(window_page(here))
        yield FoundPlace("rank", f"rank {number}", f"on {format.clip(host, 40)}, this window", href)
    if number is not None and what != "rank":
        key = WindowKey(here.run_id, number)
        if workspace.has(key):
            href = view.for_next_window().href(window_page(key))
            yield FoundPlace("window", f"window {number}", format.clip(here.run_id, 40), href)
    nodes = dict(zip(ranks.hostname, ranks.node_rank, strict=True))
    for host in islice((host for host in nodes if words in host.lower()), MOST_OF_A_KIND):
        href = replace(view, tab=f"node:{nodes[host]}").href(window_page(here))
        yield FoundPlace("host", format.clip(host), f"node {nodes[host]}, this window", href)


def _windows(workspace: Workspace, words: str) -> Iterator[FoundPlace]:
    """Find windows as the page of windows does, the most severe first."""
    for row in workspace.windows(WindowQuery(text=words, limit=MOST_OF_A_KIND)).rows:
        shown = window_row(row)
        detail = f"{format.clip(row['run_id'], 40)} · {shown['aim']} · {shown['time']}"
        yield FoundPlace("window", shown["name"], detail, shown["href"])
