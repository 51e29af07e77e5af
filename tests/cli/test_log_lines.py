"""The log of a command: a bounded number of messages, and how many were left out."""

from __future__ import annotations

import logging

from sfapp.cli.log_lines import MOST_MESSAGES, PERIOD_SECONDS, MessageLimit


def message(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("sfapp", logging.WARNING, __file__, 1, text, arguments, None)


def test_messages_beyond_the_limit_are_counted_and_the_next_period_states_it() -> None:
    now = [0.0]
    limit = MessageLimit(lambda: now[0])

    written = [limit.filter(message("again")) for _ in range(MOST_MESSAGES + 30)]
    now[0] = PERIOD_SECONDS
    later = [message("rank %d is %s", 3, "late"), message("again")]

    assert sum(written) == MOST_MESSAGES
    assert all(limit.filter(record) for record in later)
    assert later[0].getMessage() == "[30 messages were left out] rank 3 is late"
    assert later[1].getMessage() == "again"
