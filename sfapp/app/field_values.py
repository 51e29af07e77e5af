"""Check what a page sends as the value of a field or the state of a table, which NiceGUI and the page take
without a check."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Never

import msgspec
from nicegui import events, json, ui
from nicegui.element import Element
from nicegui.elements.choice_element import ChoiceElement
from nicegui.elements.mixins.value_element import ValueElement
from nicegui.helpers import event_type_to_camel_case

LONGEST_LINE = 64 << 10
"""Maximum number of characters of a field of one line. No address holds more, and a page keeps earlier values
to undo changes."""

_TYPES: Mapping[type[ValueElement[Any]], tuple[type, ...]] = {
    ui.input: (str,),  # and text areas
    ui.slider: (int, float),
    ui.checkbox: (bool,),
    ui.switch: (bool,),
    ui.dialog: (bool,),
    ui.tabs: (str,),
}
"""Types of values by kind of field, where NiceGUI does not convert them."""

_NEVER_EMPTY = (ui.slider, ui.checkbox, ui.switch, ui.dialog, ChoiceElement)
"""Fields that have a value unless they can be cleared."""


class _Pagination(msgspec.Struct, forbid_unknown_fields=True):
    """Order and page of a table, as Quasar sends them."""

    sortBy: str | None = None
    descending: bool | None = None
    page: int | None = None
    rowsPerPage: int | None = None
    rowsNumber: int | None = None


_OF_TABLES: Mapping[str, Any] = {
    "update:pagination": _Pagination,
    "update:fullscreen": bool,
    "selection": Never,  # No table lets rows be selected; NiceGUI would keep every row that is sent.
}
"""Types of the arguments of a table's events."""

_CANNOT_BE_CONVERTED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def is_possible(element: Element, listener_id: str, arguments: Sequence[str | None]) -> bool:
    """Return whether a field can have the value, or a table the state, that an event gives it; True for other
    events.

    Args:
        listener_id: a listener of the element.
        arguments: of the event, each as JSON.
    """
    event_type = element._event_listeners[listener_id].type
    if isinstance(element, ui.table) and event_type in _OF_TABLES:
        return len(arguments) == 1 and _is_of_type(arguments[0], _OF_TABLES[event_type])
    if isinstance(element, ValueElement) and event_type == _event_of_value(element):
        return len(arguments) == 1 and _is_value_of(element, arguments[0])
    return True


def _is_of_type(argument: str | None, kind: Any) -> bool:
    if argument is None or kind is Never:
        return False
    try:
        msgspec.json.decode(argument, type=kind)
    except msgspec.DecodeError:  # of which a ValidationError is one
        return False
    return True


def _is_value_of(field: ValueElement[Any], argument: str | None) -> bool:
    sent = None if argument is None else json.loads(argument)
    if sent is None and isinstance(field, _NEVER_EMPTY) and "clearable" not in field.props:
        return False
    types = next((types for kind, types in _TYPES.items() if isinstance(field, kind)), (object,))
    if sent is not None and not isinstance(sent, types):
        return False
    is_one_line = isinstance(field, ui.input) and not isinstance(field, ui.textarea)
    if is_one_line and isinstance(sent, str) and len(sent) > LONGEST_LINE:
        return False
    event = events.GenericEventArguments(sender=field, client=field.client, args=sent)
    try:
        value = field._event_args_to_value(event)
    except _CANNOT_BE_CONVERTED:
        return False
    return not isinstance(value, float) or math.isfinite(value)


def _event_of_value(element: ValueElement[Any]) -> str:
    return event_type_to_camel_case(f"update:{element.VALUE_PROP}")
