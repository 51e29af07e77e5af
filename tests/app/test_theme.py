"""Which theme a page is drawn in."""

from __future__ import annotations

import pytest
from fastapi import Request

from sfapp.app.theme import is_dark


@pytest.mark.parametrize(
    ("cookies", "dark"),
    [
        ("", False),
        ("sfapp-system=light", False),
        ("sfapp-system=dark", True),
        ("sfapp-system=dark; sfapp-dark=0", False),
        ("sfapp-system=light; sfapp-dark=1", True),
        ("sfapp-system=whatever", False),
    ],
)
def test_what_was_chosen_here_counts_before_what_the_system_prefers(cookies: str, dark: bool) -> None:
    assert is_dark(Request({"type": "http", "headers": [(b"cookie", cookies.encode())]})) is dark
