"""Messages at the top of a page, each of which can be dismissed."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request

from sfapp.app.known_options import TOKEN
from sfapp.app.theme import box, label_text, with_keys
from sfapp.views import format

MAX_NOTICES = 8
"""Messages that are shown of a list. An address of 60 kB has thousands of parts that mean nothing; elements
for all of them would keep the event loop busy for seconds."""


def ignored_options(request: Request, *known: str) -> list[str]:
    """Return a message for each part of a query that a page without a parser of its own does not read."""
    unknown = dict.fromkeys(name for name in request.query_params if name not in (*known, TOKEN))
    return [ignored_option(name) for name in unknown]


def ignored_option(name: str) -> str:
    """Return the message for an option of a link that its page does not have."""
    return f"The link's {format.clip(name)!r} is not an option of this page; it is ignored."


def notices(messages: Sequence[str]) -> None:
    """Add messages on invalid parts of a request: the first ones, and how many others there are."""
    shown = list(messages[:MAX_NOTICES])
    if further := len(messages) - len(shown):
        shown.append(f"{further:,} more like these are not shown.")
    with box("notices"):
        for message in shown:
            with box("notice") as element:
                element.props["role"] = "status"
                label_text(message, "span")
                button = with_keys(label_text("×", "button", "plain"), label="Dismiss")
                button.on("click", element.delete)
