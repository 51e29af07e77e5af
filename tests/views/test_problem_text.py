"""Problems in words: their cost, and whether they are ongoing."""

from __future__ import annotations

import pytest

from sfapp.views.text.problems import rank_time


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 rank-seconds"),
        (1, "1 rank-second"),
        (1.4, "1 rank-second"),
        (-1, "−1 rank-second"),
        (25, "25 rank-seconds"),
        (186, "3.1 rank-minutes"),
        (14_400, "4.0 rank-hours"),
    ],
)
def test_lost_time_is_singular_for_one(seconds: float, text: str) -> None:
    assert rank_time(seconds / 3600) == text
