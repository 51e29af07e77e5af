"""A field takes only values that it can have, and a table only states, whatever a page sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nicegui import Client, json, ui
from nicegui.elements.mixins.value_element import ValueElement

from sfapp.app.field_values import LONGEST_LINE, is_possible

Field = ValueElement[Any]


def possible(make: Callable[[], Field], *sent: object) -> bool:
    """Return whether a field takes an event with these arguments."""
    with Client(ui.page("/"), request=None):
        field = make()
    (listener,) = (each for each in field._event_listeners.values() if each.type.startswith("update:"))
    return is_possible(field, listener.id, [json.dumps(each) for each in sent])


def choice() -> Field:
    return ui.select({"a": "A", "b": "B"}, value="a")


@pytest.mark.parametrize(
    ("make", "good", "bad"),
    [
        (ui.input, ["text", "", None], [1, [], {"a": 1}, True, "x" * (LONGEST_LINE + 1)]),
        (ui.textarea, ["text", "x" * (LONGEST_LINE + 1)], [2.5, {}]),
        (ui.number, ["2.5", 3, None], ["two", [1], {"a": 1}, "nan", "1e999"]),
        (lambda: ui.slider(min=0, max=1), [0.5, 1], ["0.5", [0.5], None]),
        (ui.checkbox, [True, False], ["true", 1, [], None]),
        (ui.switch, [True], [{}, None]),
        (choice, [{"value": 1, "label": "B"}], [{"value": 2}, {}, 7, [0], None]),
        (lambda: choice().props("clearable"), [{"value": 1, "label": "B"}, None], [{"value": 2}]),
        (lambda: ui.toggle(["a", "b"]), [1], [2, "1", {}, None]),
        (lambda: ui.toggle(["a", "b"], clearable=True), [1, None], [2]),
        (ui.tabs, ["data", None], [1, True, [], {"a": 1}]),
        (ui.dialog, [True, False], ["true", 1, {}, None]),
    ],
    ids=[
        "input",
        "text area",
        "number",
        "slider",
        "checkbox",
        "switch",
        "select",
        "select that can be cleared",
        "toggle",
        "toggle that can be cleared",
        "tabs",
        "dialog",
    ],
)
async def test_values_that_a_field_cannot_have_are_not_possible(
    make: Callable[[], Field], good: list[object], bad: list[object]
) -> None:
    assert [value for value in good if not possible(make, value)] == []
    assert [value for value in bad if possible(make, value)] == []
    assert not possible(make, "one", "more")


async def test_other_events_of_a_field_are_possible() -> None:
    with Client(ui.page("/"), request=None):
        field = ui.input().on("keydown.enter", lambda: None)
    (listener,) = (each for each in field._event_listeners.values() if each.type == "keydown.enter")
    assert is_possible(field, listener.id, [])


@pytest.mark.parametrize(
    ("event", "good", "bad"),
    [
        (
            "update:pagination",
            [{"sortBy": "rank", "descending": True, "page": 1, "rowsPerPage": 0}, {"sortBy": None}],
            [None, 5, [], {"page": "x"}, {"other": 1}],
        ),
        ("update:fullscreen", [True, False], [None, 1, [[]]]),
        ("selection", [], [{"added": True, "rows": [[]], "keys": []}, {}, True, None]),
    ],
)
async def test_states_that_a_table_cannot_have_are_not_possible(
    event: str, good: list[object], bad: list[object]
) -> None:
    with Client(ui.page("/"), request=None):
        table = ui.table(columns=[{"name": "rank", "label": "rank", "field": "rank"}], rows=[])
    (listener,) = (each for each in table._event_listeners.values() if each.type == event)
    assert [sent for sent in good if not is_possible(table, listener.id, [json.dumps(sent)])] == []
    assert [sent for sent in bad if is_possible(table, listener.id, [json.dumps(sent)])] == []
    assert not is_possible(table, listener.id, [])


async def test_an_event_without_a_value_is_none_of_a_table() -> None:
    with Client(ui.page("/"), request=None):
        table = ui.table(rows=[{"rank": 1}])
    (listener,) = (each for each in table._event_listeners.values() if each.type == "selection")
    assert not is_possible(table, listener.id, [None])
