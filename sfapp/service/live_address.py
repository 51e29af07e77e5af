"""The view of a live page, encoded in its address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import quote, urlencode

from sfapp.accounting import ROLLING_STEPS
from sfapp.model.parse import whole_number
from sfapp.model.view import OVERVIEW
from sfapp.views import format
from sfapp.views.address import live_page

SPANS: Mapping[int, str] = {60: "1 min", 300: "5 min", 1800: "30 min", 7200: "2 h"}
"""Spans of a page: seconds and label."""

LEAST_STEPS, MOST_STEPS = 5, 64
"""Range of the number of steps in a rolling verdict: fewer show no noise, more are not kept."""

_DIGITS = 10
LATEST = 10**_DIGITS - 1
"""Latest end of a span that an address can name, seconds since 1970."""


@dataclass(frozen=True, slots=True)
class LiveState:
    """The state of a live page, encoded in its address.

    Attributes:
        tab: ``overview`` or ``node:K``.
        span: length in seconds, one of ``SPANS``.
        until: end of the span, seconds since 1970; None to follow the newest.
        steps: number of steps in the rolling verdict.
    """

    tab: str = OVERVIEW
    span: int = 300
    until: int | None = None
    steps: int = ROLLING_STEPS

    @property
    def node(self) -> int | None:
        """Return the node whose tab is open."""
        kind, _, number = self.tab.partition(":")
        return int(number) if kind == "node" else None

    def href(self, run_id: str, page: str = "") -> str:
        """Return the address of a run's page in this state, or of another ``page``."""
        pairs = [(item.name, getattr(self, item.name)) for item in fields(self)]
        asked = [(name, value) for name, value in pairs if value != getattr(LiveState(), name)]
        query = urlencode(asked, quote_via=quote, safe=":")
        address = page or live_page(run_id)
        return f"{address}?{query}" if query else address


def parse_live(pairs: Iterable[tuple[str, str]]) -> tuple[LiveState, list[str]]:
    """Parse a query; return the state and a notice for every parameter that is ignored."""
    found: dict[str, Any] = {}
    notices: list[str] = []
    for name, value in dict(pairs).items():
        digits = value.removeprefix("node:") if name == "tab" else value
        number = whole_number(digits, _DIGITS)
        if name == "tab" and (value == OVERVIEW or (number is not None and digits != value)):
            found[name] = value if value == OVERVIEW else f"node:{number}"
        elif number is not None and _is_allowed(name, number):
            found[name] = number
        else:
            asked = f"{format.clip(name)}={format.clip(value)}"
            notices.append(f"The link's {asked!r} is not an option of this page; it is ignored.")
    return LiveState(**found), notices


def _is_allowed(name: str, number: int) -> bool:
    if name == "steps":
        return LEAST_STEPS <= number <= MOST_STEPS
    return name == "until" or (name == "span" and number in SPANS)
