"""Columns and rows of tables, for every surface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """Column of a table, sorted by ``field`` and shown as the field ``text`` or, if that is empty,
    ``field``."""

    field: str
    title: str
    help: str = ""
    text: str = ""

    @property
    def shown(self) -> str:
        """The field with the text to show."""
        return self.text or self.field
