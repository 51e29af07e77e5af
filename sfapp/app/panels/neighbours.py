"""Links from a window to the previous and next one and to a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui.elements.mixins.text_element import TextElement

from sfapp.app.panels.view_model import TabViewModel
from sfapp.app.theme import link, set_address
from sfapp.model.sides import CompareState, SideKey
from sfapp.model.view import WindowKey
from sfapp.views.address import window_page


class NeighbourLinks:
    """The links in the header of a window page; they keep the view."""

    def __init__(self) -> None:
        """Build inside the current container."""
        self._links: tuple[TextElement, ...] = (
            link("‹", "", "key", "k ArrowUp", "Previous window").mark("previous"),
            link("›", "", "key", "j ArrowDown", "Next window").mark("next"),
        )
        for element, title in zip(self._links, ("Previous window: k", "Next window: j"), strict=True):
            element.props["title"] = title
        self._compare = link("Compare with…", "", "key").mark("compare")

    def show(self, model: TabViewModel, windows: Sequence[int]) -> None:
        """Point the links at the neighbours of the shown window.

        Args:
            windows: the numbers of the run's windows, ascending.
        """
        key = model.judged.source.key
        previous = max((number for number in windows if number < key.window), default=None)
        following = min((number for number in windows if number > key.window), default=None)
        for element, number in zip(self._links, (previous, following), strict=True):
            element.set_visibility(number is not None)
            if number is not None:
                path = window_page(WindowKey(key.run_id, number))
                set_address(element, model.view.for_next_window().href(path))
        set_address(self._compare, _comparison(model, previous).href())


def _comparison(model: TabViewModel, previous: int | None) -> CompareState:
    """Return the comparison with the verdict's reference window, else with the previous window."""
    key, reference = model.judged.source.key, model.judged.reference
    other = None if previous is None else SideKey(key.run_id, previous)
    if reference is not None and (reference.run_id, reference.window) != (key.run_id, key.window):
        other = SideKey(reference.run_id, reference.window)
    return CompareState(a=other, b=SideKey(key.run_id, key.window), view=model.view.judging)
