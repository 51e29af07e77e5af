"""Tables: one element each, sortable in the browser, text only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nicegui import ui

from sfapp.app.theme import box, text
from sfapp.model import Diagnosis
from sfapp.views import tables
from sfapp.views.tables import Column

# Quasar has no tooltip for column titles of its own.
_HEADER_CELL = '<q-th :props="props"><span :title="props.col.help">{{ props.col.label }}</span></q-th>'


@contextmanager
def titled(title: str, subtitle: str = "") -> Iterator[None]:
    """A card with a title."""
    with box("card", "section"):
        text(title, "h2")
        if subtitle:
            text(subtitle, "div", "subtitle")
        yield


def data_table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], key: str) -> ui.table:
    """Rows sorted by value and shown as text."""
    table = ui.table(
        columns=[_column(column, rows) for column in columns],
        rows=[_needed(row, columns, key) for row in rows],
        row_key=key,
        pagination=0,
    ).classes("table-data")
    table.props("flat dense hide-bottom binary-state-sort separator=horizontal")
    table.add_slot("header-cell", _HEADER_CELL)
    return table


def _column(column: Column, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # Numbers with a unit line up on the right; identities (rank, step) read from the left.
    measured = column.text and any(isinstance(row.get(column.field), int | float) for row in rows)
    shown: dict[str, Any] = {
        "name": column.field,
        "label": column.title,
        "field": column.field,
        "align": "right" if measured else "left",
        "help": column.help,
        "sortable": True,
    }
    if column.shown != column.field:
        shown[":format"] = f"(_, row) => row[{column.shown!r}]"
    return shown


def _needed(row: Mapping[str, Any], columns: Sequence[Column], key: str) -> dict[str, Any]:
    names = {key, *(column.field for column in columns), *(column.shown for column in columns)}
    return {name: row[name] for name in sorted(names) if name in row}


def evidence_table(diagnosis: Diagnosis) -> None:
    """Every piece of evidence with its mark."""
    data_table(tables.EVIDENCE_COLUMNS, tables.evidence_rows(diagnosis), "name")


LABEL_COLUMNS = (
    Column("label", "label"),
    Column("state", "state"),
    Column("meaning", "what it claims"),
    Column("reasons_text", "because"),
)


def label_table(diagnosis: Diagnosis) -> None:
    """Labels that hold and labels that were withheld."""
    data_table(LABEL_COLUMNS, tables.label_rows(diagnosis), "label")
