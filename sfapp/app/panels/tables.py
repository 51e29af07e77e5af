"""Tables: one element each, sortable in the browser, text only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nicegui import events, ui

from sfapp.accounting import Measures
from sfapp.app.theme import box, label_text
from sfapp.model import Diagnosis
from sfapp.views import tables
from sfapp.views.address import term_page
from sfapp.views.tables import TableColumn


@contextmanager
def titled(title: str, subtitle: str = "") -> Iterator[None]:
    """A card with a title."""
    with box("card", "section"):
        label_text(title, "h2")
        if subtitle:
            label_text(subtitle, "div", "subtitle")
        yield


def data_table(
    columns: Sequence[TableColumn],
    rows: Sequence[Mapping[str, Any]],
    key: str,
    glossary: tuple[str, str] | None = None,
) -> ui.table:
    """Rows sorted by value and shown as text.

    Args:
        glossary: the kind under which it has every ``key``, and the column that leads there.
    """
    shown = [_needed(row, columns, key) for row in rows]
    if glossary is not None:
        shown = [{**row, "term": term_page(glossary[0], row[key])} for row in shown]
    table = ui.table(
        columns=[_column(column, rows) for column in columns],
        rows=shown,
        row_key=key,
        pagination=0,
    ).classes("table-data")
    table.props("flat dense hide-bottom binary-state-sort separator=horizontal")
    # Quasar has no tooltip for column titles of its own. It knows a header cell by its key.
    with table.add_slot("header-cell"), ui.element("q-th").props(":props=props :key=undefined :id=undefined"):
        ui.element("span").props(":title=props.col.help :textContent=props.col.label :id=undefined")
    if glossary is not None:
        # an address of our own
        term = _in_cells(table, glossary[1], "a", ":href=props.row.term target=_blank rel=noopener")
        term.classes("term-link")
    return table


def choice_table(
    columns: Sequence[TableColumn],
    rows: Sequence[Mapping[str, Any]],
    key: str,
    choose: Callable[[int], Any],
    label: str,
) -> ui.table:
    """A table one row of which is chosen, by a click on it or on the button in its cell ``label``;
    ``show_choice`` says which.

    Args:
        key: a column of whole numbers.
    """
    table = data_table(columns, rows, key)
    table.classes("table-choice")
    table.props(":table-row-class-fn=\"row => row.chosen ? 'chosen' : ''\"")
    button = _in_cells(table, label, "button", ":aria-pressed=props.row.chosen===true")
    button.classes("plain")

    def clicked(event: events.GenericEventArguments) -> None:
        if isinstance(event.args, int):
            choose(event.args)

    # The button is in the row, so that its click is one on the row as well.
    return table.on("rowClick", clicked, js_handler=f"(event, row) => emit(row.{key})")


def show_choice(table: ui.table, key: str, chosen: int) -> None:
    """Show which row of a ``choice_table`` is chosen, in place."""
    rows = [{**row, "chosen": row[key] == chosen} for row in table.rows]
    if rows != table.rows:
        table.rows = rows


def refill(
    table: ui.table, columns: Sequence[TableColumn], rows: Sequence[Mapping[str, Any]], key: str
) -> None:
    """Show other rows in a table of ``data_table`` without a glossary; it stays sorted as it is."""
    table.columns = [_column(column, rows) for column in columns]
    table.rows = [_needed(row, columns, key) for row in rows]


def _in_cells(table: ui.table, column: str, tag: str, props: str) -> ui.element:
    """An element round the text of each cell of a column; in ``props``, ``props`` is the cell's context.

    Not a template: NiceGUI makes those anew with every change of the page, and what had the keyboard's focus
    is gone then.
    """
    with table.add_slot(f"body-cell-{column}"), ui.element("q-td").props(":props=props :id=undefined"):
        return ui.element(tag).props(f":textContent=props.value :id=undefined {props}")


def _column(column: TableColumn, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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


def _needed(row: Mapping[str, Any], columns: Sequence[TableColumn], key: str) -> dict[str, Any]:
    names = {key, *(column.field for column in columns), *(column.shown for column in columns)}
    return {name: row[name] for name in sorted(names) if name in row}


def evidence_table(diagnosis: Diagnosis) -> None:
    """Every piece of evidence with its mark."""
    data_table(tables.EVIDENCE_COLUMNS, tables.evidence_rows(diagnosis), "name", ("evidence", "title"))


LABEL_COLUMNS = (
    TableColumn("words", "label"),
    TableColumn("state", "state"),
    TableColumn("meaning", "what it claims"),
    TableColumn("reasons_text", "because"),
)


def label_table(diagnosis: Diagnosis) -> None:
    """Labels that hold and labels that were withheld."""
    data_table(LABEL_COLUMNS, tables.label_rows(diagnosis), "label", ("label", "words"))


def gate_table(measures: Measures, diagnosis: Diagnosis) -> None:
    """Every gate with the distance to its nearest change of verdict."""
    data_table(tables.GATE_COLUMNS, tables.gate_rows(measures, diagnosis), "gate", ("gate", "symbol"))
