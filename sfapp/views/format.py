"""Format numbers as text, the same way on every surface.

Durations are nanoseconds, shares are fractions. ``None`` and NaN become ``n/a``, never 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sfapp.model import BETWEEN, DEFAULT_STAGES, broad_stage, stage_category
from sfapp.model.diagnosis import HEALTHY_SEVERITY
from sfapp.model.parse import whole_number

ABSENT = "n/a"
_MINUS = "−"
_BETWEEN = "between steps"
_SHORT_DEFAULT = {BETWEEN: _BETWEEN} | {stage: stage_category(stage) for stage in DEFAULT_STAGES}


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of one axis; ``ns`` is its length in nanoseconds."""

    name: str
    ns: float


_UNITS = (Unit("s", 1e9), Unit("ms", 1e6), Unit("µs", 1e3), Unit("ns", 1.0))


def unit_for(largest_ns: float) -> Unit:
    """Return the unit of an axis up to this value; milliseconds up to ten seconds, the range of step
    times."""
    if largest_ns >= 1e10:
        return _UNITS[0]
    return _UNITS[1] if largest_ns >= 1e5 or largest_ns <= 0 else _UNITS[2]


def duration(ns: float | None) -> str:
    """Return ``149.9 ms``, ``8.20 s``, ``3.42 ms``, ``640 µs``."""
    if ns is None or not math.isfinite(ns):
        return ABSENT
    sign = _MINUS if ns < 0 else ""
    size = abs(ns)
    if size == 0:
        return "0 ms"
    unit = next((unit for unit in _UNITS if size >= 0.99995 * unit.ns), _UNITS[-1])
    value = size / unit.ns
    if unit.name == "ms":
        text = f"{value:.2f}" if value < 9.995 else f"{value:.1f}"
    elif unit.name == "s":
        text = f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"
    else:
        text = f"{value:.0f}"
    return f"{sign}{text} {unit.name}"


def change(ns: float | None) -> str:
    """Return a difference of durations with sign and two digits: ``+59 ms``, ``−1.5 ms``, ``±0 ms``."""
    if ns is None or not math.isfinite(ns):
        return ABSENT
    size = abs(ns)
    if size < 500:
        return "±0 ms"
    unit = _UNITS[0] if size >= 0.9995e9 else _UNITS[1] if size >= 9.95e4 else _UNITS[2]
    value = size / unit.ns
    digits = 0 if value >= 9.95 or unit.name == "µs" else 1
    return f"{_MINUS if ns < 0 else '+'}{value:,.{digits}f} {unit.name}"


def per_step_unit(largest_ns: float | Fraction) -> Unit:
    """Return the unit of a table of times per step: milliseconds, or microseconds if all are below 0.1 ms."""
    return _UNITS[1] if largest_ns >= 1e5 or not largest_ns else _UNITS[2]


def adding_up(
    parts_ns: Mapping[str, Fraction], unit: Unit, *, signed: bool = True
) -> tuple[dict[str, str], str]:
    """Return times whose printed values add up: ``{"data": "+77.52", …}`` and their sum, two digits each.

    The rounding remainder goes to the parts that rounding changed most, so each error stays below the last
    digit.

    Args:
        parts_ns: exact, by name.
        signed: write a plus sign before positive values.
    """
    exact = {name: part / Fraction(unit.ns) * 100 for name, part in parts_ns.items()}
    floors = {name: math.floor(value) for name, value in exact.items()}
    total = round(sum(exact.values(), Fraction()))
    most_cut = sorted(exact, key=lambda name: floors[name] - exact[name])
    raised = set(most_cut[: total - sum(floors.values())])
    texts = {name: _hundredths(floors[name] + (name in raised), signed) for name in exact}
    return texts, _hundredths(total, signed)


def _hundredths(value: int, signed: bool) -> str:
    sign = _MINUS if value < 0 else "+" if signed and value > 0 else "±" if signed else ""
    return f"{sign}{abs(value) / 100:,.2f}"


def percent(fraction: float | None, digits: int = 0) -> str:
    """Return ``41 %``; a positive value that rounds to 0 is ``<1 %``, a negative one ``≈ 0 %``."""
    if fraction is None or not math.isfinite(fraction):
        return ABSENT
    value = 100 * fraction
    least = 10.0**-digits
    if 0 < abs(value) < least / 2:
        return f"<{least:g} %" if value > 0 else "≈ 0 %"
    return f"{_MINUS if round(value, digits) < 0 else ''}{abs(value):,.{digits}f} %"


def chance(value: float) -> str:
    """Return a probability as ``1.3 %``; ``below 0.1 %`` if it rounds to that or less."""
    return "below 0.1 %" if value < 0.0005 else percent(value, 1)


def percent_interval(fraction: float, low: float, high: float) -> str:
    """Return ``38.0 % (36.1–40.2 %)``: a fraction with its interval, unless this has no width."""
    if low == high:
        return percent(fraction, 1)
    return f"{percent(fraction, 1)} ({100 * low:.1f}–{100 * high:.1f} %)"


def severity(fraction: float | None) -> str:
    """Return a percentage near the threshold of 5 %: ``<5 %`` if it would round up to the threshold."""
    text = percent(fraction)
    is_below = fraction is not None and fraction < HEALTHY_SEVERITY
    return f"<{text}" if is_below and text == percent(HEALTHY_SEVERITY) else text


def percent_change(fraction: float | None) -> str:
    """Return ``+58 %``, ``−3 %``."""
    if fraction is None or not math.isfinite(fraction):
        return ABSENT
    value = round(100 * fraction)
    return f"{_MINUS if value < 0 else '+' if value > 0 else '±'}{abs(value):,} %"


def offset(ns: float | None, uncertainty_ns: float | None) -> str:
    """Return a clock offset with its uncertainty: ``+3.42 ms ± 40 µs``."""
    if ns is None or uncertainty_ns is None or not (math.isfinite(ns) and math.isfinite(uncertainty_ns)):
        return ABSENT
    return f"{_MINUS if ns < 0 else '+'}{duration(abs(ns))} ± {duration(uncertainty_ns)}"


def share(fraction: float | None) -> str:
    """Return a share in the notation of gates: ``0.41``."""
    if fraction is None or not math.isfinite(fraction):
        return ABSENT
    text = f"{abs(fraction):.2f}"
    return f"{_MINUS if fraction < 0 and float(text) else ''}{text}"


def slope(value: float | None, se: float | None) -> str:
    """Return ``0.92 ± 0.03``."""
    if value is None or se is None or not (math.isfinite(value) and math.isfinite(se)):
        return ABSENT
    return f"{share(value)} ± {se:.2f}"


def factor(value: float | None) -> str:
    """Return ``×1.4``."""
    return ABSENT if value is None or not math.isfinite(value) else f"×{value:.2f}"


def count(number: int) -> str:
    """Return ``16,384``."""
    return f"{number:,}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 rank``, ``8 ranks``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``13th``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def listed(parts: Sequence[str], limit: int = 4, conjunction: str = "and") -> str:
    """Return ``a``, ``a and b``, ``a, b and 12 more``."""
    shown = list(parts[:limit])
    if len(parts) > limit:
        shown.append(f"{len(parts) - limit:,} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} {conjunction} {shown[-1]}"


def ranges(numbers: Iterable[int], limit: int = 4) -> str:
    """Return ``0–3, 7``: runs of whole numbers, shortened."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return listed([str(a) if a == b else f"{a}–{b}" for a, b in runs], limit)


def steps(which: str | Sequence[int]) -> str:
    """Return the suspect's steps: ``every step``, ``every 10th step``, ``step 403``, ``steps 403 and
    417``."""
    if isinstance(which, str):
        if which == "all":
            return "every step"
        kind, _, spacing = which.partition(" ")
        number = whole_number(spacing) if kind == "every" else None
        if number is not None:
            return "every other step" if number == 2 else f"every {ordinal(number)} step"
        return which
    if not which:
        return "no step"
    return f"step{'s' if len(which) > 1 else ''} {listed([str(step) for step in which])}"


def age(seconds: float | None) -> str:
    """Return an age: ``4 s ago``, ``3 min ago``, ``2 h ago``, ``5 d ago``."""
    if seconds is None or not math.isfinite(seconds):
        return "never"
    seconds = max(0.0, seconds)
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:,.0f} {name} ago"
    return "just now" if seconds < 1 else f"{seconds:.0f} s ago"


def lasting(seconds: float | None) -> str:
    """Return a length of time: ``34 s``, ``3 min``, ``2 h``, ``5 d``."""
    if seconds is None or not math.isfinite(seconds):
        return ABSENT
    for length, name in ((86_400, "d"), (3_600, "h"), (120, "min")):
        if seconds >= length:
            return f"{seconds // (60 if name == 'min' else length):,.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"


def size(number: int | None) -> str:
    """Return a number of bytes: ``29 kB``, ``1.2 MB``."""
    if number is None:
        return ABSENT
    value = float(number)
    for name in ("B", "kB", "MB", "GB"):
        if value < 999.5 or name == "GB":
            break
        value /= 1000
    return f"{value:.0f} {name}" if name == "B" or value >= 9.95 else f"{value:.1f} {name}"


def measured(field: str, value: float | None) -> str:
    """Return a sampled value with the unit in its field's name: ``87 %``, ``512 W``, ``1.2 GB/s``, ``149.9
    ms``."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if field.endswith("_per_s"):
        return f"{size(round(value))}/s"
    if field.endswith("_bytes"):
        return size(round(value))
    if field.endswith("_ns"):
        return duration(value)
    unit = unit_of(field)
    number = f"{value:,.0f}" if value >= 9.95 or value == round(value) else f"{value:,.1f}"
    return f"{number} {unit}" if unit else number


_FIELD_UNITS = {"percent": "%", "celsius": "°C", "watts": "W", "mhz": "MHz", "bytes": "B", "ns": "ns"}


def unit_of(field: str) -> str:
    """Return the unit at the end of a sampled field's name; empty for counts."""
    return "B/s" if field.endswith("_per_s") else _FIELD_UNITS.get(field.rpartition("_")[2], "")


def clip(text: str, limit: int = 40) -> str:
    """Return a name on one line, cut to a length that fits labels."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def short_stage(stage: str) -> str:
    """Return ``between steps, data, forward, backward, callbacks, optimizer, other``.

    Refined stages keep their last parts. A micro-step stays visible: ``model.backward_cpu_wall[1]`` is
    ``backward[1]``.
    """
    broad = broad_stage(stage)
    micro = stage[len(broad) :]
    if broad in _SHORT_DEFAULT:
        return _SHORT_DEFAULT[broad] + micro
    name = broad.removesuffix("_cpu_wall").removesuffix(".cpu_wall")
    parts = [part for part in name.split(".") if part] or [broad]
    if len(parts) > 2 or parts[0] == "model":
        parts = parts[-2:] if parts[0] != "model" or len(parts) > 3 else parts[1:]
    return clip(".".join(parts), 28) + micro


def in_stage(stage: str, preposition: str = "in") -> str:
    """Return a stage as a place: ``in backward``, ``between steps``."""
    return in_short(short_stage(stage), preposition)


def in_short(short: str, preposition: str = "in") -> str:
    """Return a stage as a place, from its short name."""
    return short if short == _BETWEEN else f"{preposition} {short}"


def short_stages(stages: Sequence[str]) -> dict[str, str]:
    """Return short names of several stages; the full name if two short names are equal."""
    short = {stage: short_stage(stage) for stage in stages}
    taken = Counter(short.values())
    return {stage: name if taken[name] == 1 else clip(stage, 48) for stage, name in short.items()}
