"""Notifications of the services as NiceGUI events, from which pages unsubscribe when they are closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from nicegui import Event, ui

from sfapp.service.subscribers import Subscribers

Value = TypeVar("Value")

_EVENTS: WeakKeyDictionary[Subscribers[Any], Event[Any]] = WeakKeyDictionary()


def follow(
    subscribers: Subscribers[Value], callback: Callable[[Value], object] | Callable[[], object]
) -> None:
    """Call back with every value while the page is open. A page that was closed meanwhile is not subscribed:
    it would stay subscribed forever.
    """
    if not ui.context.client.is_deleted:
        event_of(subscribers).subscribe(callback)


def event_of(subscribers: Subscribers[Value]) -> Event[Value]:
    """Return the event that is emitted at every notification; one for each source."""
    event: Event[Value] | None = _EVENTS.get(subscribers)
    if event is None:
        event = Event()
        _EVENTS[subscribers] = event
        subscribers.subscribe(event.emit)
    return event
