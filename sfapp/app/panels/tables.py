"""Tables that are sorted in the browser and show text only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nicegui import events, ui

from sfapp.app.address import rooted
from sfapp.app.definitions import defined
from sfapp.app.theme import box
from sfapp.views.address import term_page
from sfapp.views.table_columns import TableColumn
from sfapp.views.text.terms import definitions_in


@contextmanager
def titled(title: str, subtitle: str = "") -> Iterator[None]:
    """Build a card with a title; the content goes into the body of ``with``."""
    with box("card", "section"):
        defined(title, "h2")
        if subtitle:
            defined(subtitle, "div", "subtitle")
        yield


def data_table(
    columns: Sequence[TableColumn],
    rows: Sequence[Mapping[str, Any]],
    key: str,
    glossary: tuple[str, str] | None = None,
) -> ui.table:
    """Build a table whose rows are sorted by value and shown as text.

    Args:
        glossary: the kind of the glossary's terms, and the column whose cells link to the term ``row[key]``.
    """
    table = ui.table(
        columns=[_column(column, rows) for column in columns],
        rows=_shown(columns, rows, key, glossary),
        row_key=key,
        pagination=0,
    ).classes("table-data")
    table.props("flat dense hide-bottom binary-state-sort separator=horizontal")
    # Quasar has no tooltips for column titles, and identifies a header cell by its key.
    with table.add_slot("header-cell"), ui.element("q-th").props(":props=props :key=undefined :id=undefined"):
        ui.element("span").props(":title=props.col.help :textContent=props.col.label :id=undefined")
    if glossary is not None:
        # The link is built from our own glossary, so it needs no escaping.
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
    """Build a table in which a click on a row, or on the button in its column ``label``, chooses the row.

    ``show_choice`` marks the chosen row.

    Args:
        key: a column of whole numbers that identifies a row.
        choose: called with the key of the clicked row.
    """
    table = data_table(columns, rows, key)
    table.classes("table-choice")
    table.props(":table-row-class-fn=\"row => row.chosen ? 'chosen' : ''\"")
    button = _in_cells(table, label, "button", ":aria-pressed=props.row.chosen===true")
    button.classes("plain")

    def clicked(event: events.GenericEventArguments) -> None:
        if isinstance(event.args, int):
            choose(event.args)

    # The button is inside the row, so a click on it is also a click on the row.
    return table.on("rowClick", clicked, js_handler=f"(event, row) => emit(row.{key})")


def show_choice(table: ui.table, key: str, chosen: int) -> None:
    """Mark the chosen row of a ``choice_table`` in place."""
    rows = [{**row, "chosen": row[key] == chosen} for row in table.rows]
    if rows != table.rows:
        table.rows = rows


def refill(
    table: ui.table,
    columns: Sequence[TableColumn],
    rows: Sequence[Mapping[str, Any]],
    key: str,
    glossary: tuple[str, str] | None = None,
) -> None:
    """Replace the rows of a ``data_table`` in place; its sort order is kept. Equal rows are not sent."""
    described = [_column(column, rows) for column in columns]
    if described != table.columns:
        table.columns = described
    shown = _shown(columns, rows, key, glossary)
    if shown != table.rows:
        table.rows = shown


def _shown(
    columns: Sequence[TableColumn],
    rows: Sequence[Mapping[str, Any]],
    key: str,
    glossary: tuple[str, str] | None,
) -> list[dict[str, Any]]:
    """Return the rows with the fields that the browser needs, and their links to the glossary."""
    shown = [_needed(row, columns, key) for row in rows]
    if glossary is not None:
        shown = [{**row, "term": rooted(term_page(glossary[0], row[key]))} for row in shown]
    return shown


def _in_cells(table: ui.table, column: str, tag: str, props: str) -> ui.element:
    """Wrap the text of each cell of a column in an element; in ``props``, ``props`` is the cell's context.

    This is a slot with elements because NiceGUI renders template slots again with every change of the page,
    which would take the keyboard focus from the element.
    """
    with table.add_slot(f"body-cell-{column}"), ui.element("q-td").props(":props=props :id=undefined"):
        return ui.element(tag).props(f":textContent=props.value :id=undefined {props}")


def _column(column: TableColumn, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # Numbers with a unit are aligned right; identities (rank, step) are aligned left.
    measured = column.text and any(isinstance(row.get(column.field), int | float) for row in rows)
    shown: dict[str, Any] = {
        "name": column.field,
        "label": _sentence_case(column.title),
        "field": column.field,
        "align": "right" if measured else "left",
        "help": column.help or definitions_in(column.title),
        "sortable": True,
    }
    if column.shown != column.field:
        shown[":format"] = f"(_, row) => row[{column.shown!r}]"
    return shown


def _sentence_case(title: str) -> str:
    """Return a column title with a capital first letter, except for symbols such as ``p50``."""
    first = title.split(" ")[0].rstrip(",")
    return title[:1].upper() + title[1:] if len(first) > 2 and first.isalpha() else title


def _needed(row: Mapping[str, Any], columns: Sequence[TableColumn], key: str) -> dict[str, Any]:
    names = {key, *(column.field for column in columns), *(column.shown for column in columns)}
    return {name: row[name] for name in sorted(names) if name in row}
