"""Rows for the table of gates: the distance of each from a value with another verdict."""

from __future__ import annotations

import math

from sfapp.accounting import Measures, nearest_changes
from sfapp.model import GATE_DOCS, Diagnosis
from sfapp.model.gates import GATE_BY_NAME, GateDoc
from sfapp.views.table_columns import Row, TableColumn
from sfapp.views.text import changes
from sfapp.views.text.gate_values import gate_value

GATE_COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("symbol", "gate"),
    TableColumn("title", "meaning"),
    TableColumn("value", "now", text="value_text"),
    TableColumn(
        "distance",
        "distance",
        "from the current value to the nearest one with another verdict",
        "distance_text",
    ),
    TableColumn("becomes", "change there"),
)


def gate_rows(measures: Measures, diagnosis: Diagnosis) -> list[Row]:
    """Return every numeric gate with the distance to its next change of verdict, the nearest first.

    The distance is None if no value of the gate changes the verdict.
    """
    found = nearest_changes(measures, diagnosis, tuple(doc.name for doc in GATE_DOCS))
    lines = changes(found, diagnosis)
    rows = []
    for doc in GATE_DOCS:
        value = getattr(diagnosis.gates, doc.name)
        distance = min((abs(change.value - value) for change in found[doc.name]), default=None)
        rows.append(
            {
                "gate": doc.name,
                "symbol": doc.symbol,
                "title": doc.title,
                "value": value,
                "value_text": gate_value(doc, value),
                "distance": distance,
                "distance_text": "none" if distance is None else gate_value(doc, distance),
                "becomes": lines[doc.name],
            }
        )
    return sorted(rows, key=lambda row: _reach(row["distance"], row["value"], GATE_BY_NAME[row["gate"]]))


def _reach(distance: float | None, value: float, doc: GateDoc) -> float:
    """Return a distance relative to the gate's range or, for counts and times without an upper end, to their
    value."""
    if distance is None:
        return math.inf
    return distance / max(value, 1) if doc.whole else distance / (doc.high - doc.low)
