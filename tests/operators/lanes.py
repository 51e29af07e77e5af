"""Operator events written down by hand, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfapp.model import CATEGORIES, Lane, Operators

US = 1_000
Event = tuple[int, str, str, str, float, float, dict[str, Any]]


def event(rank: int, lane: str, name: str, start: float, end: float, **more: Any) -> Event:
    """One event in µs; ``more``: category, step, correlation, group, sequence, autograd."""
    return rank, lane, name, more.pop("category", "host"), start, end, more


def operators(events: Sequence[Event]) -> Operators:
    """These events; a lane called stream… is a device's, a step that is not given is 0."""
    lanes = list(dict.fromkeys((rank, lane) for rank, lane, *_ in events))
    names = list(dict.fromkeys(name for _, _, name, *_ in events))
    groups = list(dict.fromkeys(more["group"] for *_, more in events if "group" in more))
    return Operators.of(
        names=names,
        name_E=[names.index(name) for _, _, name, *_ in events],
        category_E=[CATEGORIES.index(category) for _, _, _, category, *_ in events],
        lanes=[Lane(rank, lane, lane.startswith("stream")) for rank, lane in lanes],
        lane_E=[lanes.index((rank, lane)) for rank, lane, *_ in events],
        start_ns_E=[round(start * US) for *_, start, _, _ in events],
        end_ns_E=[round(end * US) for *_, end, _ in events],
        step_E=[more.get("step", 0) for *_, more in events],
        correlation_E=[more.get("correlation", -1) for *_, more in events],
        groups=groups,
        group_E=[groups.index(more["group"]) if "group" in more else -1 for *_, more in events],
        sequence_E=[more.get("sequence", -1) for *_, more in events],
        sequence_number_E=[more.get("autograd", -1) for *_, more in events],
    )
