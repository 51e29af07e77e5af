"""Untrusted text is shown, never executed by a terminal, and bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.errors import describe_error
from sfapp.terminal import first_line, printable, quoted, without_controls


@given(st.text())
def test_nothing_that_a_terminal_executes_is_left(text: str) -> None:
    for shown in (printable(text), quoted(text), first_line(text), describe_error(ValueError(text))):
        assert shown.isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("forward", "forward"),
        ("Zürich 東京", "Zürich 東京"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\nb\tc", r"a\nb\tc"),
        ("right\u202eleft", r"right\u202eleft"),
    ],
)
def test_control_characters_become_escape_sequences(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_long_text_is_cut() -> None:
    assert printable("x" * 5_000) == "x" * 3_999 + "…"
    assert len(printable("\x1b" * 5_000)) == 4_000
    assert quoted("x" * 100) == f"'{'x' * 80}'…"
    assert describe_error(OSError("x" * 1_000)) == "OSError: " + "x" * 490 + "…"


def test_messages_of_other_libraries_become_one_line() -> None:
    assert first_line("\n  no such column\nIn file x.cc, line 3\n") == "no such column"
    assert describe_error(ValueError("first\n  second")) == "ValueError: first second"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zürich 東京\tשלום\n", "Zürich 東京\tשלום\n"),
        ("one\r\ntwo\rthree", "one\ntwo\ufffdthree"),
        ("a\x1b[2J\x9b31m\x00", "a\ufffd[2J\ufffd31m\ufffd"),
        ("right\u202eleft\u2066", "right\ufffdleft\ufffd"),
    ],
)
def test_a_document_has_no_control_characters(text: str, shown: str) -> None:
    assert without_controls(text) == shown
