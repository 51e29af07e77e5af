"""Cells of a CSV file: no text of a packet is a formula of a spreadsheet."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.service.csv_table import csv_cell, csv_text

FORMULA_STARTS = "=+-@＝＋－＠"
SEPARATORS = ";\t\n\v\f\r\x85\u2028\u2029"


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\n=1+1", "'\n'=1+1"),
        ("\x85=1+1", "'\x85'=1+1"),
        ("\tname", "'\tname"),
        (";=1+1", "';'=1+1"),
        ("rank;=1+1", "rank;'=1+1"),
        ("rank; =1+1", "rank;' =1+1"),
        (" =1+1", "' =1+1"),
        ("＝1+1", "'＝1+1"),
        ("a\r－1", "a\r'－1"),
        (Path("=1+1"), "'=1+1"),
    ],
)
def test_a_text_that_could_be_a_formula_is_quoted(text: object, cell: str) -> None:
    assert csv_cell(text) == cell


@pytest.mark.parametrize(
    "value", ["host-7", "labels;reasons", "a+b", "2 = 1 + 1", "", -5, -0.5, True, None, "run\nof two lines"]
)
def test_other_values_stay_as_they_are(value: object) -> None:
    assert csv_cell(value) == value


@given(st.lists(st.text(st.sampled_from(f"{FORMULA_STARTS}{SEPARATORS}ab ,\"'")), min_size=1))
def test_no_separator_makes_a_cell_begin_with_a_formula(texts: list[str]) -> None:
    table = csv_text([{"name": text} for text in texts])
    for delimiter in ",;\t":
        for row in csv.reader(io.StringIO(table, newline=""), delimiter=delimiter):
            for cell in row:
                for part in cell.split("\x85"):
                    assert not part.strip().startswith(tuple(FORMULA_STARTS)), (delimiter, cell)
