"""Links from a window to the previous and next one and to a comparison."""

from __future__ import annotations

from nicegui.elements.mixins.text_element import TextElement

from sfapp.app.panels.view_model import TabViewModel
from sfapp.app.theme import link, set_address
from sfapp.model.sides import CompareState, SideKey
from sfapp.model.view import WindowKey
from sfapp.views.address import window_page

Neighbours = tuple[int | None, int | None]
"""The numbers of the previous and the next window; None at the ends of the run."""


class NeighbourLinks:
    """The links in the header of a window page; they keep the view."""

    def __init__(self) -> None:
        """Build inside the current container."""
        self._links: tuple[TextElement, ...] = (
            link("‹", "", "key", "k ArrowUp", "Previous window"),
            link("›", "", "key", "j ArrowDown", "Next window"),
        )
        for element, title in zip(self._links, ("Previous window: k", "Next window: j"), strict=True):
            element.props["title"] = title
        self._compare = link("Compare with…", "", "key").mark("compare")

    def show(self, model: TabViewModel, neighbours: Neighbours) -> None:
        """Point the links at the neighbours of the shown window."""
        key = model.judged.source.key
        for element, number in zip(self._links, neighbours, strict=True):
            element.set_visibility(number is not None)
            if number is not None:
                path = window_page(WindowKey(key.run_id, number))
                set_address(element, model.view.for_next_window().href(path))
        set_address(self._compare, _comparison(model, neighbours[0]).href())


def _comparison(model: TabViewModel, previous: int | None) -> CompareState:
    """Return the comparison with the verdict's reference window, else with the previous window."""
    key, reference = model.judged.source.key, model.judged.reference
    other = None if previous is None else SideKey(key.run_id, previous)
    if reference is not None and (reference.run_id, reference.window) != (key.run_id, key.window):
        other = SideKey(reference.run_id, reference.window)
    return CompareState(a=other, b=SideKey(key.run_id, key.window), view=model.view.judging)
