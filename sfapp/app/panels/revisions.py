"""The edit history of a note or an incident, and the edits that conflict with the current one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sfapp.app.theme import box, label_text, left_out
from sfapp.incidents import IncidentState, Revision
from sfapp.model.incidents import Overwritten
from sfapp.views import text

EDITED_FIELDS = ("text", "title", "severity", "status", "summary")
"""Fields whose values users write."""

MOST_REVISIONS, MOST_CONFLICTS = 200, 20
"""Newest edits and conflicting edits that are listed: an import may hold any number."""


def history(state: IncidentState, target: str) -> None:
    """List every edit of a note or an incident, oldest first; undone edits are struck through."""
    revisions = state.history(target)
    if len(revisions) > MOST_REVISIONS:
        left_out(MOST_REVISIONS, len(revisions), "edits")
    with box("history", "ol"):
        for revision in revisions[-MOST_REVISIONS:]:
            with box("" if revision.stands else "undone", "li"):
                label_text(text.signed(revision.stamp), "span", "muted")
                label_text(
                    "; ".join(_changes(revision)) + ("" if revision.stands else " (undone)"), "span", "quote"
                )


def _changes(revision: Revision) -> Iterator[str]:
    for name, value in revision.fields.items():
        if name in EDITED_FIELDS:
            yield f"{'wrote' if name == 'text' else name}: {value}"
        elif name == "removed":
            yield "removed" if value else "restored"


def conflicting_edits(
    lost: Sequence[Overwritten], take: Callable[[Overwritten], Any], keep: Callable[[Overwritten], Any]
) -> None:
    """List edits made at the same time that were overwritten, each with buttons to use or dismiss it."""
    found = [one for one in lost if one.field in EDITED_FIELDS]
    for one in found[-MOST_CONFLICTS:]:
        _conflict(one, take, keep)
    if len(found) > MOST_CONFLICTS:
        left_out(MOST_CONFLICTS, len(found), "edits that were made at the same time")


def _conflict(
    one: Overwritten, take: Callable[[Overwritten], Any], keep: Callable[[Overwritten], Any]
) -> None:
    with box("overwritten") as element:
        element.props["role"] = "note"
        what = "wrote" if one.field == "text" else f"set the {one.field}"
        label_text(f"{text.signed(one.stamp)} {what} at the same time:", "span", "muted")
        label_text(one.value, "span", "quote")
        with box("actions"):
            label_text("Use this version", "button", "plain").mark("take-theirs").on(
                "click", lambda: take(one)
            )
            label_text("Keep the current one", "button", "plain").mark("keep-mine").on(
                "click", lambda: keep(one)
            )
