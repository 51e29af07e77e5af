"""Tables of a window's verdict: evidence, labels, gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from sfapp.app.panels.tables import data_table, refill
from sfapp.model import Diagnosis
from sfapp.views import gate_tables, tables
from sfapp.views.table_columns import TableColumn


def evidence_table(diagnosis: Diagnosis) -> None:
    """Build the table of all evidence."""
    data_table(tables.EVIDENCE_COLUMNS, tables.evidence_rows(diagnosis), "name", ("evidence", "title"))


LABEL_COLUMNS = (
    TableColumn("words", "Label"),
    TableColumn("state", "State"),
    TableColumn("meaning", "Meaning"),
    TableColumn("reasons_text", "Reasons"),
)


def label_table(diagnosis: Diagnosis) -> None:
    """Build the table of labels that apply and labels that were suppressed."""
    data_table(LABEL_COLUMNS, tables.label_rows(diagnosis), "label", ("label", "words"))


GATE_GLOSSARY = ("gate", "symbol")


def gate_table(rows: Sequence[Mapping[str, Any]]) -> ui.table:
    """Build the table of every gate with the distance to its nearest change of verdict.

    Args:
        rows: of ``gate_rows``.
    """
    return data_table(gate_tables.GATE_COLUMNS, rows, "gate", GATE_GLOSSARY)


def refill_gates(table: ui.table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace the rows of a ``gate_table`` in place."""
    refill(table, gate_tables.GATE_COLUMNS, rows, "gate", GATE_GLOSSARY)
