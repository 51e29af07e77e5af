"""Buttons that judge the ranks of one role by themselves, where a window has several roles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from sfapp.app.theme import box, label_text, link
from sfapp.model import ALL_RANKS, RankTable
from sfapp.views import format

MOST_ROLES = 8
"""Roles that have a button; of more, the chooser of groups offers the others."""


def role_groups(ranks: RankTable) -> tuple[str, ...]:
    """Return the groups to choose from: all ranks, then each role; none where there are not several roles."""
    roles = ranks.roles
    if len(roles) < 2:
        return ()
    return (ALL_RANKS, *(f"role:{role}" for role in roles[:MOST_ROLES]))


class RoleButtons:
    """The buttons of a window's page."""

    def __init__(self, ranks: RankTable, choose: Callable[[str], Any]) -> None:
        """Build inside the current container; nothing is shown where ranks have one role or none.

        Args:
            choose: called with the group that was chosen.
        """
        self._buttons: dict[str, ui.element] = {}
        groups = role_groups(ranks)
        if not groups:
            return
        with _row():
            for group in groups:
                button = label_text(_name(group), "button", "badge").mark(f"group-{group}")
                button.on("click", lambda group=group: choose(group))
                self._buttons[group] = button

    def show(self, group: str) -> None:
        """Mark the group that is judged."""
        for name, button in self._buttons.items():
            _mark(button, name == group)


def role_links(ranks: RankTable, group: str, href: Callable[[str], str]) -> None:
    """Build the same as links, with the judged group marked."""
    groups: Sequence[str] = role_groups(ranks)
    if groups:
        with _row():
            for each in groups:
                _mark(link(_name(each), href(each), "badge").mark(f"group-{each}"), each == group)


def _row() -> ui.element:
    row = box("toolbar roles")
    row.props["role"] = "group"
    row.props["aria-label"] = "Ranks that are judged"
    with row:
        label_text("Judge", "span", "muted")
    return row


def _mark(element: ui.element, is_chosen: bool) -> None:
    element.classes(add="brushed" if is_chosen else "", remove="" if is_chosen else "brushed")
    if element.tag == "a":
        element.props["aria-current"] = "true" if is_chosen else "false"
    else:
        element.props["aria-pressed"] = "true" if is_chosen else "false"


def _name(group: str) -> str:
    return "All ranks" if group == ALL_RANKS else format.clip(group.partition(":")[2], 28)
