"""What became of a note or an incident: its edits in order, and what was written at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sfapp.app.theme import box, label_text
from sfapp.incidents import IncidentState, Revision
from sfapp.model.incidents import Overwritten
from sfapp.views import text

TOLD = ("text", "title", "severity", "status", "summary")
"""The fields whose values people write."""


def history(book: IncidentState, target: str) -> None:
    """Every edit of a note or an incident, the first one first; undone ones are struck through."""
    with box("history", "ol"):
        for revision in book.history(target):
            with box("" if revision.stands else "undone", "li"):
                label_text(text.signed(revision.stamp), "span", "muted")
                label_text(
                    "; ".join(_said(revision)) + ("" if revision.stands else " (undone)"), "span", "said"
                )


def _said(revision: Revision) -> Iterator[str]:
    for name, value in revision.fields.items():
        if name in TOLD:
            yield f"{'wrote' if name == 'text' else name}: {value}"
        elif name == "removed":
            yield "removed it" if value else "brought it back"


def at_the_same_time(
    lost: Sequence[Overwritten], take: Callable[[Overwritten], Any], keep: Callable[[Overwritten], Any]
) -> None:
    """What others wrote that lost out, with a way to take it or to let it go; nothing where nobody did."""
    for one in lost:
        if one.field in TOLD:
            _lost(one, take, keep)


def _lost(one: Overwritten, take: Callable[[Overwritten], Any], keep: Callable[[Overwritten], Any]) -> None:
    with box("overwritten") as element:
        element.props["role"] = "note"
        what = "wrote" if one.field == "text" else f"set the {one.field}"
        label_text(f"{text.signed(one.stamp)}, {what} at the same time:", "span", "muted")
        label_text(one.value, "span", "said")
        with box("actions"):
            label_text("take this", "button", "plain").mark("take-theirs").on("click", lambda: take(one))
            label_text("keep what stands", "button", "plain").mark("keep-mine").on("click", lambda: keep(one))
