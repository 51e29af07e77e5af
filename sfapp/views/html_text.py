"""Escape text from packets, traces and users for HTML and SVG."""

from __future__ import annotations

import html
import re

from sfapp.terminal import without_controls

_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def html_text(text: str) -> str:
    """Escape text for elements and quoted attributes of HTML and SVG.

    Control characters and those that XML does not allow become U+FFFD. Dollar signs are escaped for programs
    that look for mathematics in the source; for those that look in the page, notebooks mark what they show.
    """
    return html.escape(_NOT_IN_XML.sub("\ufffd", without_controls(text)), quote=True).replace("$", "&#36;")
