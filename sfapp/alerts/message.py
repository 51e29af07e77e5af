"""Put changes of problems into one message: words for people, and an object for programs.

Names come from packets, which anyone may have written. In words they can neither steer a terminal nor mention
users of a chat, nor make a link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec

from sfapp.alerts.changes import ChangeKind, ProblemChange
from sfapp.terminal import printable
from sfapp.views import format
from sfapp.views.address import problem_page
from sfapp.views.text.problems import problem_text

MESSAGE_VERSION = 1

MAX_CHANGES = 20
"""Largest number of changes that a message describes; it counts the others."""

MAX_BYTES = 256 << 10
"""Size limit of a message as JSON: above it, problems are left out and only their words are sent."""

_MAX_LINE = 400

_WORDS: dict[ChangeKind, str] = {
    "began": "Began",
    "changed": "Changed",
    "ended": "Ended",
    "returned": "Returned",
    "removed": "Not found any more",
}
_COUNTED: dict[ChangeKind, str] = {
    "began": "began",
    "changed": "changed",
    "ended": "ended",
    "returned": "returned",
    "removed": "not found any more",
}

_HARMLESS = str.maketrans("@#~|<>`*[]", "＠＃∼¦‹›'∗()")
"""Characters with which a chat begins a mention, a link or a format, and what is shown instead."""


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """A message about some changes.

    Attributes:
        id: derived from its content, so that a receiver can ignore a repetition.
        title: one line. text: title and details, plain text.
        needs_attention: whether something began, changed or returned.
        body: the same as JSON, at most ``MAX_BYTES``.
    """

    id: str
    title: str
    text: str
    needs_attention: bool
    body: bytes


def message_of(changes: Sequence[ProblemChange], now: datetime, link_base: str | None = None) -> AlertMessage:
    """Return the message about some changes, at least one.

    Args:
        link_base: address of the app that shows the problems; None for messages without links.
    """
    shown = changes[:MAX_CHANGES]
    title = _title(changes)
    blocks = [_block(change, link_base) for change in shown]
    if len(changes) > len(shown):
        blocks.append(f"and {format.count(len(changes) - len(shown))} more")
    rows = [_row(change, link_base) for change in shown]
    return _assembled(title, "\n\n".join((title, *blocks)), rows, len(changes), now, _is_urgent(changes))


def trial_message(now: datetime) -> AlertMessage:
    """Return the message of ``--test``."""
    title = "sfapp: this is a test"
    text = f"{title}\n\nMessages about problems of your jobs will arrive here."
    return _assembled(title, text, [], 0, now, False)


def plain(text: str, limit: int = _MAX_LINE) -> str:
    """Return untrusted text on one line that no terminal or chat reads as more than text."""
    return printable(text, limit).translate(_HARMLESS).replace("://", ": //")


def _assembled(
    title: str, text: str, rows: list[dict[str, Any]], count: int, now: datetime, urgent: bool
) -> AlertMessage:
    content = {"version": MESSAGE_VERSION, "title": title, "text": text, "count": count, "changes": rows}
    digest = blake2b(msgspec.json.encode([text, now]), digest_size=12).hexdigest()
    head = {"id": digest, "sent_at": now.astimezone(UTC).isoformat(timespec="seconds")}
    body = msgspec.json.encode(head | content)
    if len(body) > MAX_BYTES:
        for row in rows:
            row["problem"] = None
        body = msgspec.json.encode(head | content)
    return AlertMessage(digest, title, text, urgent, body)


def _title(changes: Sequence[ProblemChange]) -> str:
    if len(changes) == 1:
        (change,) = changes
        return f"sfapp: {_WORDS[change.kind].lower()}: {plain(change.title)} ({plain(change.run_id, 80)})"
    counts = Counter(change.kind for change in changes)
    parts = [f"{counts[kind]} {words}" for kind, words in _COUNTED.items() if counts[kind]]
    return f"sfapp: {format.counted(len(changes), 'problem')}: {', '.join(parts)}"


def _block(change: ProblemChange, link_base: str | None) -> str:
    lines = [f"{_WORDS[change.kind]}: {plain(change.title)}"]
    if change.listed is not None:
        text = problem_text(change.listed.problem, change.listed.status, change.listed.mark)
        facts = ((text.cost, text.total), (text.where, text.since, text.until))
        lines += [plain(" · ".join(filter(None, line))) for line in facts]
    else:
        lines.append(f"run {plain(change.run_id, 80)}: its windows were removed or judged again")
    if (link := _link(change, link_base)) is not None:
        lines.append(link)
    return "\n  ".join(lines)


def _row(change: ProblemChange, link_base: str | None) -> dict[str, Any]:
    return {
        "change": change.kind,
        "id": change.id,
        "run_id": change.run_id,
        "title": change.title,
        "link": _link(change, link_base),
        "problem": None if change.listed is None else change.listed.document(),
    }


def _link(change: ProblemChange, link_base: str | None) -> str | None:
    if link_base is None or change.listed is None:
        return None
    return f"{link_base.rstrip('/')}{problem_page(change.listed.problem)}"


def _is_urgent(changes: Sequence[ProblemChange]) -> bool:
    return any(change.kind in ("began", "changed", "returned") for change in changes)
