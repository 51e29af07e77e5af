"""Check what a page sends as the value of a field, which NiceGUI and the page take without a check."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import events, json, ui
from nicegui.element import Element
from nicegui.elements.mixins.value_element import ValueElement
from nicegui.helpers import event_type_to_camel_case

_TYPES: Mapping[type[ValueElement[Any]], tuple[type, ...]] = {
    ui.input: (str,),  # and text areas
    ui.slider: (int, float),
    ui.checkbox: (bool,),
    ui.switch: (bool,),
}
"""Types of values by kind of field, where NiceGUI does not convert them."""

_CANNOT_BE_CONVERTED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def is_possible(element: Element, listener_id: str, arguments: Sequence[str | None]) -> bool:
    """Return whether a field can have the value that an event gives it; True for other events.

    Args:
        listener_id: a listener of the element.
        arguments: of the event, each as JSON.
    """
    listener = element._event_listeners[listener_id]
    if not isinstance(element, ValueElement) or listener.type != _event_of_value(element):
        return True
    if len(arguments) != 1:
        return False
    sent = None if arguments[0] is None else json.loads(arguments[0])
    types = next((types for kind, types in _TYPES.items() if isinstance(element, kind)), (object,))
    if sent is not None and not isinstance(sent, types):
        return False
    event = events.GenericEventArguments(sender=element, client=element.client, args=sent)
    try:
        value = element._event_args_to_value(event)
    except _CANNOT_BE_CONVERTED:
        return False
    return not isinstance(value, float) or math.isfinite(value)


def _event_of_value(element: ValueElement[Any]) -> str:
    return event_type_to_camel_case(f"update:{element.VALUE_PROP}")
