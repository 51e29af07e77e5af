"""Titles with the definitions of their technical terms one hover away."""

from __future__ import annotations

from nicegui.elements.mixins.text_element import TextElement

from sfapp.app.theme import label_text
from sfapp.views.text.terms import definitions_in


def defined(content: str, tag: str = "div", classes: str = "") -> TextElement:
    """Add text with the definitions of its technical terms as its tooltip."""
    element = label_text(content, tag, classes)
    show_definitions(element)
    return element


def show_definitions(element: TextElement) -> None:
    """Set the tooltip of a text to the definitions of the technical terms in it."""
    meaning = definitions_in(element.text)
    element.props["title"] = meaning
    element.classes(add="defined" if meaning else "", remove="" if meaning else "defined")
