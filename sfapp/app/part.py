"""Parts of a page that the browser renders apart from each other."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from sfapp.assets import assets

PART_TAGS = ("aside", "header", "section")
"""Tags of HTML that are parts of a page."""


class Part(ui.element, component=assets() / "part.js"):
    """A container that the browser renders by itself, only when something in it changes."""

    def __init__(self, tag: str) -> None:
        """Add an element with a tag of HTML."""
        super().__init__()
        self.props["as"] = tag

    def _to_dict(self) -> dict[str, Any]:
        sent: dict[str, Any] = super()._to_dict()
        # The browser renders it again when it receives another list of children.
        return sent | {"props": {**sent["props"], "children": sent.get("children", [])}}
