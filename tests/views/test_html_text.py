"""Text from outside becomes text of HTML and SVG, nothing more."""

from __future__ import annotations

from xml.etree import ElementTree

from sfapp.views.html_text import html_text

HOSTILE = "<script>alert('1')</script> & \"quoted\" $x^2$ \x00\x1b[0m \ud800"


def test_text_comes_back_from_elements_and_attributes() -> None:
    element = ElementTree.fromstring(f'<a b="{html_text(HOSTILE)}">{html_text(HOSTILE)}</a>')
    shown = HOSTILE.translate({0x00: "\ufffd", 0x1B: "\ufffd", 0xD800: "\ufffd"})
    assert element.text == element.attrib["b"] == shown
    assert len(element) == 0


def test_nothing_is_left_for_a_notebook_to_typeset() -> None:
    assert "$" not in html_text(HOSTILE)
