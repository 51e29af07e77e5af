"""Finding and using the elements of a simulated page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nicegui import ui
from nicegui.testing import User, UserInteraction


async def until(holds: Callable[[], bool]) -> None:
    """Wait until this holds, at most 10 s: a page follows what others do once its browser is connected."""
    for _ in range(200):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not hold within 10 s")


def one(user: User, kind: type[ui.element], marker: str) -> Any:
    """The only element of this kind with this mark."""
    (element,) = user.find(kind=kind, marker=marker).elements
    return element


def hidden(user: User, marker: str) -> Any:
    """The only element with this mark on the page, shown or not."""
    assert user.client is not None
    (element,) = (each for each in user.client.elements.values() if marker in each._markers)
    return element


def slider(user: User, gate: str) -> ui.slider:
    """A gate's slider."""
    found: ui.slider = one(user, ui.slider, gate)
    return found


def number(user: User, gate: str) -> ui.number:
    """A gate's number field."""
    found: ui.number = one(user, ui.number, f"number-{gate}")
    return found


def chooser(user: User, name: str) -> Any:
    """A select or toggle."""
    return one(user, ui.element, name)


def href(user: User, marker: str) -> str:
    """Where a link leads."""
    return str(one(user, ui.element, marker).props["href"])


def plot(user: User, title: str) -> ui.plotly:
    """The plot of this title."""
    (found,) = (
        element
        for element in user.find(kind=ui.plotly).elements
        if element.figure["layout"]["meta"]["title"] == title
    )
    return found


def fire(user: User, element: ui.element, name: str, arguments: dict[str, Any]) -> None:
    """Let an element's event happen, as the browser would report it."""
    UserInteraction(user, {element}, None).trigger(name, arguments)
