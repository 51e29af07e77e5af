"""Colours: stages, themes, severity. Colour never carries meaning alone; figures add text and patterns.

The seven stage colours are checked against three colour-vision simulations (smallest ΔE 16). Refined stages
of one family are shades of its colour; the colour of a stage without a known family depends on its name.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from sfapp.model import RESIDUAL, broad_stage, stage_category

_STAGE = {
    "between": "#9933FF",
    "data": "#E69F00",
    "forward": "#56B4E9",
    "backward": "#0072B2",
    "callbacks": "#CC79A7",
    "optimizer": "#009E73",
    "other": "#595959",
}
_OTHER_DARK = "#CCCCCC"
_FALLBACK = ("#D55E00", "#8B6FC0", "#A6761D", "#2AA5A0", "#B5C327", "#E377C2", "#7A9E5B", "#9C6B5A")
_SHADES = (0.0, 0.38, -0.28, 0.62, -0.48, 0.2)

_CATEGORY = {
    "data": "#E69F00",
    "host": "#56B4E9",
    "autograd": "#0072B2",
    "kernel": "#009E73",
    "collective": "#D55E00",
    "copy": "#CC79A7",
    "runtime": "#F0E442",
}
_CATEGORY_LIGHT = {"stage": "#C3CBD4", "other": "#595959"}
SeverityLevel = Literal["unknown", "quiet", "warn", "alarm"]

_CATEGORY_DARK = {"stage": "#5F6B7A", "other": "#CCCCCC"}


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of one theme, as hex."""

    dark: bool
    ink: str
    muted: str
    grid: str
    axis: str
    surface: str
    accent: str
    alarm: str
    warn: str
    good: str
    quiet: str
    rank: str


LIGHT = Theme(
    dark=False, ink="#17202E", muted="#5A6675", grid="#E6EAEF", axis="#B9C2CC", surface="#FFFFFF",
    accent="#0B63A5", alarm="#C62828", warn="#B35C00", good="#1B7F4B", quiet="#C3CBD4", rank="#7F95AD",
)  # fmt: skip
DARK = Theme(
    dark=True, ink="#E8EDF4", muted="#A3AFBD", grid="#2B3542", axis="#4A5666", surface="#161C25",
    accent="#6CB8F0", alarm="#FF7B72", warn="#F0A04B", good="#5CC98F", quiet="#4A5666", rank="#7E92A9",
)  # fmt: skip


def theme(dark: bool) -> Theme:
    """Return the light or the dark theme."""
    return DARK if dark else LIGHT


def stage_colours(stages: Sequence[str], dark: bool = False) -> dict[str, str]:
    """Return a distinct colour for each stage of one ordered list; micro-steps share their broad stage's.

    Up to six stages of one family and eight of none have distinct colours; beyond that, colours repeat.
    """
    colours: dict[str, str] = {}
    family_size: dict[str, int] = {}
    taken: set[int] = set()
    for broad in dict.fromkeys(broad_stage(stage) for stage in stages):
        category = stage_category(broad)
        if category == "other" and broad != RESIDUAL:
            colours[broad] = _FALLBACK[_free_slot(broad, taken)]
            continue
        place = family_size.get(category, 0)
        family_size[category] = place + 1
        base = _OTHER_DARK if category == "other" and dark else _STAGE[category]
        amount = _SHADES[place % len(_SHADES)]
        colours[broad] = mix(base, "#FFFFFF" if amount > 0 else "#000000", abs(amount))
    return {stage: colours[broad_stage(stage)] for stage in stages}


def category_colours(dark: bool = False) -> dict[str, str]:
    """Return a colour for each category of operator events (smallest ΔE in the three simulations 14)."""
    return _CATEGORY | (_CATEGORY_DARK if dark else _CATEGORY_LIGHT)


def severity_level(needs_attention: bool | None, severity: float | None) -> SeverityLevel:
    """Return the level of a window: an alarm needs attention and has a severity of 20 % or more."""
    if severity is None:
        return "unknown"
    if not needs_attention:
        return "quiet"
    return "warn" if severity < 0.20 else "alarm"


def severity_colour(needs_attention: bool | None, severity: float | None, palette: Theme) -> str:
    """Return the colour of ``severity_level``."""
    return level_colour(severity_level(needs_attention, severity), palette)


def level_colour(level: SeverityLevel, palette: Theme) -> str:
    """Return the colour of a level."""
    return {"warn": palette.warn, "alarm": palette.alarm}.get(level, palette.quiet)


def mix(colour: str, other: str, amount: float) -> str:
    """Return the colour at the part ``amount`` of the way from one hex colour to another."""
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * amount):02X}" for a, b in pairs)


def alpha(colour: str, opacity: float) -> str:
    """Return a hex colour as ``rgba(…)``."""
    red, green, blue = _channels(colour)
    return f"rgba({red},{green},{blue},{opacity:g})"


def readable_on(colour: str) -> str:
    """Return near-black or white, whichever stands out more on a colour (WCAG contrast)."""
    luminance = _luminance(colour)
    return "#101720" if (luminance + 0.05) / 0.058 > 1.05 / (luminance + 0.05) else "#FFFFFF"


def contrast(colour: str, other: str) -> float:
    """Return the WCAG 2 contrast ratio of two hex colours, 1 to 21."""
    brighter, darker = sorted((_luminance(colour), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def scale(colour: str, palette: Theme) -> list[list[float | str]]:
    """Return a sequential colour scale from the surface over a stage's colour to its deep end."""
    low = mix(palette.surface, colour, 0.06 if palette.dark else 0.07)
    high = mix(colour, "#FFFFFF", 0.3) if palette.dark else mix(colour, "#000000", 0.15)
    return [[0.0, low], [0.3, mix(low, colour, 0.42)], [0.85, colour], [1.0, high]]


def at(colours: list[list[float | str]], part: float) -> str:
    """Return the colour of a scale at a fraction of its range."""
    part = min(1.0, max(0.0, part))
    for (low, first), (high, second) in pairwise(colours):
        if part <= float(high):
            span = float(high) - float(low)
            return mix(str(first), str(second), (part - float(low)) / span if span else 0.0)
    return str(colours[-1][1])


def diverging(palette: Theme) -> list[list[float | str]]:
    """Return a diverging colour scale, from ahead (blue) over none to behind (vermilion)."""
    middle = mix(palette.surface, palette.muted, 0.06)
    return [[0.0, "#0072B2"], [0.5, middle], [1.0, "#D55E00"]]


def _free_slot(name: str, taken: set[int]) -> int:
    first = zlib.crc32(name.encode()) % len(_FALLBACK)
    slots = [(first + step) % len(_FALLBACK) for step in range(len(_FALLBACK))]
    slot = next((slot for slot in slots if slot not in taken), first)
    taken.add(slot)
    return slot


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    def linear(channel: int) -> float:
        value = channel / 255
        return float(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)

    red, green, blue = (linear(channel) for channel in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
