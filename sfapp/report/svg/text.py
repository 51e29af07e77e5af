"""Measure and draw text with Plotly's tags, escaped for XML."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sfapp.views.figures.base import FONT
from sfapp.views.html_text import html_text

Anchor = Literal["start", "middle", "end"]

LINE = 1.3
"""Height of a line, in font sizes."""

BASELINE = 0.36
"""Distance from the middle of a line to its baseline, in font sizes."""

# Advance widths of Inter, space to tilde, in thousandths of the font size. Inter is the widest font in which
# a drawing may be shown, so text that fits here fits everywhere.
_WIDTHS = (
    "281 288 466 633 642 982 644 300 365 365 501 662 288 460 288 360 631 407 610 618 646 593 620 566 619 620 "
    "288 302 662 662 662 511 966 690 654 730 722 601 590 746 743 269 571 672 565 903 753 765 639 765 644 642 "
    "646 744 690 985 682 679 629 365 360 365 471 456 323 562 612 571 612 583 370 613 591 242 242 549 242 876 "
    "591 600 612 612 376 528 327 591 562 818 546 562 552 426 333 426 662"
)
_REGULAR = tuple(map(int, _WIDTHS.split()))
_WIDER_BOLD = 1.06
_SYMBOL = 0.62
_WIDE = 1.0
_FIRST_WIDE = 0x1100
"""First code point of letters that are about as wide as high, like arrows and shapes."""

_TAG = re.compile(r"<(/?)(b|i|sub|br)\s*/?>")


@dataclass(frozen=True, slots=True)
class TextRun:
    """Letters of one style."""

    text: str
    bold: bool = False
    lowered: bool = False


@dataclass(frozen=True, slots=True)
class Style:
    """Style of a text; size in pixels, colour as CSS."""

    size: float
    colour: str

    @classmethod
    def of(cls, font: Mapping[str, Any] | None, size: float = 12, colour: str = "#17202E") -> Style:
        """Return the style of a Plotly font with defaults."""
        font = font or {}
        return cls(float(font.get("size", size)), str(font.get("color", colour)))


def lines_of(text: str) -> list[list[TextRun]]:
    """Parse text with Plotly's tags and entities into lines of runs."""
    lines: list[list[TextRun]] = [[]]
    bold = lowered = False
    at = 0
    for tag in _TAG.finditer(text):
        _put(lines, text[at : tag.start()], bold, lowered)
        at = tag.end()
        opens, name = not tag[1], tag[2]
        if name == "br":
            lines.append([])
        elif name == "b":
            bold = opens
        elif name == "sub":
            lowered = opens
    _put(lines, text[at:], bold, lowered)
    return lines


def _put(lines: list[list[TextRun]], text: str, bold: bool, lowered: bool) -> None:
    if text:
        lines[-1].append(TextRun(html.unescape(text), bold, lowered))


def width(text: str, size: float) -> float:
    """Return the width of the longest line, pixels."""
    return max(_line_width(line) for line in lines_of(text)) * size


def height(text: str, size: float) -> float:
    """Return the height of all lines, pixels."""
    return len(lines_of(text)) * LINE * size


def _line_width(line: list[TextRun]) -> float:
    total = 0.0
    for run in line:
        scale = (_WIDER_BOLD if run.bold else 1.0) * (0.7 if run.lowered else 1.0)
        total += scale * sum(map(_letter_width, run.text))
    return total


def _letter_width(letter: str) -> float:
    code = ord(letter)
    if 32 <= code < 127:
        return _REGULAR[code - 32] / 1000
    return _WIDE if code >= _FIRST_WIDE and not 0x2000 <= code < 0x2070 else _SYMBOL


def draw(
    text: str, x: float, middle: float, style: Style, anchor: Anchor = "start", turn: float = 0.0
) -> str:
    """Draw lines of text centred at a height, rotated about (x, middle) by degrees."""
    lines = lines_of(text)
    pitch = LINE * style.size
    first = middle + BASELINE * style.size - pitch * (len(lines) - 1) / 2
    shared = f'font-size="{number(style.size)}" {paint("fill", style.colour)}'
    if anchor != "start":
        shared += f' text-anchor="{anchor}"'
    if turn:
        shared += f' transform="rotate({number(turn)} {number(x)} {number(middle)})"'
    return "".join(
        f'<text x="{number(x)}" y="{number(first + place * pitch)}" {shared}>{_runs(line, style.size)}</text>'
        for place, line in enumerate(lines)
        if line
    )


def _runs(line: list[TextRun], size: float) -> str:
    if len(line) == 1 and not line[0].bold and not line[0].lowered:
        return html_text(line[0].text)
    parts = []
    for place, run in enumerate(line):
        look = ' font-weight="700"' if run.bold else ""
        if run.lowered:
            look += f' font-size="{number(0.7 * size)}" dy="{number(0.25 * size)}"'
        elif place and line[place - 1].lowered:
            look += f' dy="{number(-0.25 * size)}"'
        parts.append(f"<tspan{look}>{html_text(run.text)}</tspan>")
    return "".join(parts)


def number(value: float) -> str:
    """Format a coordinate to a hundredth of a pixel."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def paint(what: str, colour: str) -> str:
    """Return ``fill="#0072b2"`` with a separate opacity, because some SVG readers do not support
    ``rgba()``."""
    shade, opacity = split(colour)
    return f'{what}="{shade}"' + ("" if opacity == 1 else f' {what}-opacity="{opacity:g}"')


def split(colour: str) -> tuple[str, float]:
    """Split a colour, hex or ``rgba(…)``, into hex and opacity."""
    found = re.fullmatch(r"rgba?\(([^)]*)\)", colour)
    if not found:
        return html_text(colour), 1.0
    red, green, blue, *rest = (float(part) for part in found[1].split(","))
    return f"#{round(red):02X}{round(green):02X}{round(blue):02X}", rest[0] if rest else 1.0


FAMILY = html_text(FONT)
