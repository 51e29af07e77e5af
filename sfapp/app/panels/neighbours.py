"""From one window to those beside it, and to what it is compared with."""

from __future__ import annotations

from nicegui.elements.mixins.text_element import TextElement

from sfapp.app.panels.view_model import TabViewModel
from sfapp.app.theme import link
from sfapp.model.sides import CompareState, SideKey
from sfapp.model.view import WindowKey
from sfapp.views.address import window_page

Neighbours = tuple[int | None, int | None]
"""The numbers of the windows before and after one; None at the ends of the run."""


class NeighbourLinks:
    """The links in the head of a window page; they take the view along."""

    def __init__(self) -> None:
        """Build inside the current container."""
        self._links: tuple[TextElement, ...] = (
            link("‹ k", "", "key", "k ArrowUp", "previous window"),
            link("j ›", "", "key", "j ArrowDown", "next window"),
        )
        self._compare = link("compare with…", "", "key").mark("compare")

    def show(self, scene: TabViewModel, beside: Neighbours) -> None:
        """Point the links at the neighbours of the shown window."""
        key = scene.judged.source.key
        for element, number in zip(self._links, beside, strict=True):
            element.set_visibility(number is not None)
            if number is not None:
                path = window_page(WindowKey(key.run_id, number))
                element.props["href"] = scene.view.for_next_window().href(path)
        self._compare.props["href"] = _comparison(scene, beside[0]).href()


def _comparison(scene: TabViewModel, before: int | None) -> CompareState:
    """This window against the one that its verdict compares it with, else against the one before it."""
    key, reference = scene.judged.source.key, scene.judged.reference
    other = None if before is None else SideKey(key.run_id, before)
    if reference is not None and (reference.run_id, reference.window) != (key.run_id, key.window):
        other = SideKey(reference.run_id, reference.window)
    return CompareState(a=other, b=SideKey(key.run_id, key.window), view=scene.view.judging)
