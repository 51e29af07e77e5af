"""The list of windows as its address holds it: filters, order and the axis of its timeline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from sfapp.app.notices import ignored_option
from sfapp.app.panels.windows_timeline import AXES
from sfapp.errors import StoreError
from sfapp.model import LABELS
from sfapp.model.parameters import parsed_number
from sfapp.model.view import WindowKey
from sfapp.store import SORTABLE, WORST_FIRST, WindowQuery
from sfapp.views import format

MOST_SORTED = 8
"""Columns that a list is sorted by at most."""

_TERM = f"(?:{'|'.join(SORTABLE)})(?::(?:asc|desc)?)?"
SORT = re.compile(f"(?:{_TERM}(?:,{_TERM})*)?")
"""An order such as ``severity:desc,window:asc``."""


@dataclass(frozen=True, slots=True)
class ListState:
    """View of the page of windows, in its address and, but for the axis, in the query of ``/windows.json``.

    Attributes:
        run, label, stage: only windows of this run, with this label, pointing at this stage.
        text: only windows whose row shows all words of it.
        min_severity: only windows at least this severe.
        needs_attention: only windows that need attention or lack data.
        first, last: only windows from one to another, in the order of the timeline.
        sort: ``COLUMN:DIRECTION,…``, most important first; None for the worst first.
        axis: of the timeline, one of ``AXES``; None for the first of them.
    """

    run: str | None = None
    label: str | None = None
    stage: str | None = None
    text: str | None = None
    min_severity: float | None = None
    needs_attention: bool | None = None
    first: WindowKey | None = None
    last: WindowKey | None = None
    sort: str | None = None
    axis: str | None = None

    @property
    def query(self) -> str:
        """Return the query of the listed windows without ``?``; what is not set is left out."""
        return _query(self, ("axis",))

    @property
    def unsorted_query(self) -> str:
        """Return the same without the order."""
        return _query(self, ("axis", "sort"))

    @property
    def asked(self) -> WindowQuery:
        """Return what is asked of the store."""
        first, last = (None if key is None else (key.run_id, key.window) for key in (self.first, self.last))
        return WindowQuery(
            self.run, self.label, self.stage, self.text, self.min_severity, self.needs_attention,
            first, last, parse_sort(self.sort or ""),
        )  # fmt: skip

    @property
    def is_filtered(self) -> bool:
        """Whether other filters than the run and the brushed range apply."""
        filters = (self.label, self.stage, self.text, self.min_severity, self.needs_attention)
        return any(value is not None for value in filters)

    @property
    def href(self) -> str:
        """Return the address of the page of windows in this view."""
        query = _query(self)
        return f"/windows?{query}" if query else "/windows"

    @property
    def brushed(self) -> str:
        """Return the listed range of windows as text; empty if all are listed."""
        if self.first is None and self.last is None:
            return ""
        ends = [f"{format.clip(key.run_id)}/{key.window}" if key else "…" for key in (self.first, self.last)]
        if self.first and self.last and self.first.run_id == self.last.run_id:
            ends[1] = str(self.last.window)
        return f"Windows {ends[0]} to {ends[1]}"

    @property
    def leaves_out_healthy(self) -> bool:
        """Return whether healthy windows are left out."""
        return bool(self.needs_attention) or self.min_severity is not None


def _query(state: ListState, left_out: Sequence[str] = ()) -> str:
    pairs = [(item.name, getattr(state, item.name)) for item in fields(state) if item.name not in left_out]
    return urlencode(
        [
            (name, str(value).lower() if value is True else value)
            for name, value in pairs
            if value is not None
        ],
        quote_via=quote,
        safe="/:,",
    )


def parse_list(query: str | Iterable[tuple[str, str]]) -> tuple[ListState, list[str]]:
    """Parse a query; return the filters and a notice for every parameter that is ignored."""
    pairs = parse_qsl(query) if isinstance(query, str) else query
    values: dict[str, Any] = {}
    notices: list[str] = []
    known = {item.name for item in fields(ListState)}
    for name, value in dict(pairs).items():
        if name not in known:
            notices.append(ignored_option(name))
        elif name == "min_severity":
            try:
                values[name] = _severity(value)
            except ValueError as error:
                notices.append(f"In the link, {name} {error}, not {format.clip(value)!r}; showing all.")
        elif name == "needs_attention" and value.lower() in ("true", "1"):
            values[name] = True
        elif name == "needs_attention":
            notices.append(f"In the link, {name} must be true, not {format.clip(value)!r}; showing all.")
        elif name in ("first", "last"):
            try:
                values[name] = WindowKey.parse(value)
            except ValueError as error:
                notices.append(f"In the link, {name} {error}, not {format.clip(value)!r}; showing all.")
        elif name == "sort":
            try:
                values[name] = value if value and parse_sort(value) else None
            except StoreError as error:
                notices.append(f"In the link, {error}; showing the worst first.")
        elif name == "axis" and value not in AXES:
            notices.append(f"In the link, there is no axis {format.clip(value)!r}; showing them in order.")
        elif name == "label" and value not in LABELS:
            notices.append(f"In the link, there is no label {format.clip(value)!r}; showing all.")
        elif value:
            values[name] = value
    return ListState(**values), notices


def _severity(text: str) -> float:
    found = parsed_number(text)
    if not found >= 0:  # not a number, either
        raise ValueError("must be 0 or more")
    return found


def parse_sort(text: str) -> tuple[tuple[str, str], ...]:
    """Parse an order such as ``severity:desc,window:asc`` for the store.

    Raises:
        StoreError: a column or direction that does not exist.
    """
    terms = []
    for part in [term for term in text.split(",") if term][:MOST_SORTED]:
        column, _, direction = part.partition(":")
        if not re.fullmatch(_TERM, part):
            raise StoreError(
                f"cannot sort by {format.clip(part)!r}: COLUMN:asc or COLUMN:desc of {', '.join(SORTABLE)}"
            )
        terms.append((column, direction or "asc"))
    return tuple(terms) or WORST_FIRST
