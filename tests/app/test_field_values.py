"""A field takes only values that it can have, whatever a page sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nicegui import Client, json, ui
from nicegui.elements.mixins.value_element import ValueElement

from sfapp.app.field_values import is_possible

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
        (ui.input, ["text", "", None], [1, [], {"a": 1}, True]),
        (ui.textarea, ["text"], [2.5, {}]),
        (ui.number, ["2.5", 3, None], ["two", [1], {"a": 1}, "nan", "1e999"]),
        (lambda: ui.slider(min=0, max=1), [0.5, 1], ["0.5", [0.5]]),
        (ui.checkbox, [True, False], ["true", 1, []]),
        (ui.switch, [True], [{}]),
        (choice, [{"value": 1, "label": "B"}, None], [{"value": 2}, {}, 7, [0]]),
        (lambda: ui.toggle(["a", "b"]), [1, None], [2, "1", {}]),
    ],
    ids=["input", "text area", "number", "slider", "checkbox", "switch", "select", "toggle"],
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
