"""What ``/compare`` was asked for, as its address; and the comparison that answers it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from sfapp.accounting import Comparison, compare
from sfapp.app.workspace import Workspace
from sfapp.errors import ComparisonError
from sfapp.model import Diagnosis
from sfapp.model.sides import SideKey
from sfapp.model.view import ViewState, WindowKey, parse_query
from sfapp.views import format

SIDES = ("a", "b", "c")

_OTHERS = {item.name for item in fields(ViewState)} - {"gates", "frontier", "baseline", "group", "reference"}
"""What a window's page has in its address and a comparison has not."""

MOST_JUDGED = 400
"""Windows of a run that are read again for another view of them; under the defaults none has to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareState:
    """What the page shows: up to three sides, and how they are judged.

    Attributes:
        view: gates, frontier, baseline, group and reference, as on a window's page; the rest is not used.
    """

    a: SideKey | None = None
    b: SideKey | None = None
    c: SideKey | None = None
    view: ViewState = field(default_factory=ViewState)

    @property
    def sides(self) -> tuple[SideKey, ...]:
        """The sides that were named, in order."""
        return tuple(side for side in (self.a, self.b, self.c) if side is not None)

    @property
    def is_whole(self) -> bool:
        """Whether there is something to compare."""
        return self.a is not None and self.b is not None

    @property
    def query(self) -> str:
        """The URL query without ``?``."""
        named = [(name, str(getattr(self, name))) for name in SIDES if getattr(self, name) is not None]
        parts = [urlencode(named, quote_via=quote, safe="/"), self.view.judging.query]
        return "&".join(part for part in parts if part)

    def href(self, path: str = "/compare") -> str:
        """``path`` with this comparison."""
        return f"{path}?{self.query}" if self.query else path

    def swapped(self) -> CompareState:
        """B against A."""
        return replace(self, a=self.b, b=self.a)


def parse_compare(query: str | Iterable[tuple[str, str]]) -> tuple[CompareState, list[str]]:
    """What a query asks for, and a notice for everything in it that was not understood."""
    pairs = dict(parse_qsl(query, keep_blank_values=True) if isinstance(query, str) else query)
    values: dict[str, Any] = {}
    told: list[str] = []
    for name in SIDES:
        text = pairs.pop(name, None)
        if not text:
            continue
        try:
            values[name] = SideKey.parse(text)
        except ValueError as error:
            told.append(f"In the link, {name} {error}, not {format.clip(text)!r}; pick one.")
    for name in sorted(_OTHERS & pairs.keys()):
        del pairs[name]
        told.append(f"The link's {name!r} belongs to a window's page; it is ignored.")
    view, more = parse_query(pairs.items())
    return CompareState(**values, view=view.judging), [*told, *more]


def compared(workspace: Workspace, state: CompareState) -> Comparison:
    """The comparison that was asked for. Blocking.

    Stored diagnoses serve under the defaults; another view of a window is judged as its page judges it.

    Raises:
        WindowNotFoundError: no such run, window or group.
        ComparisonError: the sides cannot be compared, or a run is too long to be judged again.
        WindowError: the baseline is ``reference`` and a run has none.
    """
    a, b, *more = (_diagnosed(workspace, side, state.view) for side in state.sides)
    return compare(a, b, *more)


def _diagnosed(workspace: Workspace, side: SideKey, view: ViewState) -> Diagnosis | list[Diagnosis]:
    store = workspace.store_of(side.run_id)
    if side.window is not None:
        if view == ViewState():
            return store.diagnosis(side.run_id, side.window)
        return _judged(workspace, WindowKey(side.run_id, side.window), view)
    stored = store.diagnoses(side.run_id)
    if view == ViewState():
        return stored
    if len(stored) > MOST_JUDGED:
        raise ComparisonError(
            f"run {side.run_id!r} has {format.count(len(stored))} windows, too many to read again for other "
            "gates or groups here: compare it under the defaults, compare single windows, or use "
            "sfapp compare on the command line"
        )
    return [_judged(workspace, WindowKey(side.run_id, found.window), view) for found in stored]


def _judged(workspace: Workspace, key: WindowKey, view: ViewState) -> Diagnosis:
    return workspace.judge(workspace.source(key), view).diagnosis
