"""Messages at the top of a page, each of which can be dismissed."""

from __future__ import annotations

from collections.abc import Sequence

from sfapp.app.theme import box, label_text, with_keys

MAX_NOTICES = 8
"""Messages that are shown of a list. An address of 60 kB has thousands of parts that mean nothing; elements
for all of them would keep the event loop busy for seconds."""


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
