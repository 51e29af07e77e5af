"""The sides of a comparison as one frozen value and as a URL query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from sfapp.errors import ParseError
from sfapp.model.parameters import Parameter
from sfapp.model.parse import is_run_window, parse_run_window
from sfapp.model.view import LONGEST_QUOTE, ViewState, parse_query
from sfapp.terminal import quoted


@dataclass(frozen=True, slots=True)
class SideKey:
    """A window or a whole run; as text ``RUN/WINDOW`` or ``RUN``.

    A run id that looks like ``RUN/WINDOW`` or ends in a slash is written with an extra slash at the end.
    """

    run_id: str
    window: int | None = None

    def __str__(self) -> str:
        if self.window is not None:
            return f"{self.run_id}/{self.window}"
        if self.run_id.endswith("/") or is_run_window(self.run_id):
            return f"{self.run_id}/"
        return self.run_id

    @classmethod
    def parse(cls, text: str) -> SideKey:
        """Parse ``RUN/WINDOW`` or ``RUN``; the run id may hold slashes.

        Raises:
            ParseError: the text names no run.
        """
        if is_run_window(text):
            return cls(*parse_run_window(text))
        run_id = text.removesuffix("/")
        if not run_id:
            raise ParseError("must be RUN or RUN/WINDOW")
        return cls(run_id)


SIDE = Parameter(SideKey.parse, {"type": "string", "pattern": "[^/]"})
"""One side in a query. A text of slashes names no run, or one that no packet has."""

SIDES = ("a", "b", "c")

_OTHERS = {item.name for item in fields(ViewState)} - {"gates", "frontier", "baseline", "group", "reference"}
"""Parameters of a window's page that a comparison does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareState:
    """The state of the comparison page: up to three sides, and how they are judged.

    Attributes:
        view: gates, frontier, baseline, group and reference as on a window's page; other fields are not used.
    """

    a: SideKey | None = None
    b: SideKey | None = None
    c: SideKey | None = None
    view: ViewState = field(default_factory=ViewState)

    @property
    def sides(self) -> tuple[SideKey, ...]:
        """The named sides, in order."""
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
        """Return ``path`` with this comparison."""
        return f"{path}?{self.query}" if self.query else path

    def swapped(self) -> CompareState:
        """Return the comparison with A and B exchanged."""
        return replace(self, a=self.b, b=self.a)


def parse_compare(query: str | Iterable[tuple[str, str]]) -> tuple[CompareState, list[str]]:
    """Return the sides of a query, and a notice for each part that is not understood."""
    pairs = dict(parse_qsl(query, keep_blank_values=True) if isinstance(query, str) else query)
    values: dict[str, Any] = {}
    notices: list[str] = []
    for name in SIDES:
        text = pairs.pop(name, None)
        if not text:
            continue
        try:
            values[name] = SIDE.parse(text)
        except ValueError as error:
            notices.append(f"In the link, {name} {error}, not {quoted(text, LONGEST_QUOTE)}; pick one.")
    for name in sorted(_OTHERS & pairs.keys()):
        del pairs[name]
        notices.append(f"The link's {name!r} belongs to a window's page; it is ignored.")
    view, more = parse_query(pairs.items())
    return CompareState(**values, view=view.judging), [*notices, *more]
