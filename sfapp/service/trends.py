"""Whether runs became slower: the groups of a store's runs (accounting.md §23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from sfapp.accounting.trends import trend_groups
from sfapp.model.trends import BY_DAY, Trends

if TYPE_CHECKING:
    from sfapp.store import Store

MOST_GROUPS = 14
"""Groups that are shown."""


def trends_of(store: Store, by: str = BY_DAY) -> Trends:
    """Return the groups of a store's runs by a field. Reads no packets.

    A field that no run states is none: there are no groups then.
    """
    rows = store.trends(by, MOST_GROUPS)
    return Trends(
        by=by,
        fields=rows.fields,
        groups=trend_groups(rows.parts, in_order=by == BY_DAY),
        total_groups=rows.total_values,
        runs=rows.runs,
        unstated_runs=rows.unstated_runs,
    )


def trends_document(trends: Trends) -> dict[str, Any]:
    """Return trends as plain data for JSON (docs/json.md), times as RFC 3339."""
    groups = [
        msgspec.to_builtins(group)
        | {
            name: None if found is None else msgspec.to_builtins(found) | {"verdict": found.verdict}
            for name, found in (("step", group.step), ("lost", group.lost))
        }
        for group in trends.groups
    ]
    document: dict[str, Any] = msgspec.to_builtins(trends)
    return document | {"groups": groups}
