"""The stages behind a change in step time, as the end of a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from sfapp.views import format

OUTWEIGHED = 1.5
"""Multiple of the total change from which the stage that offsets a larger change is named too."""


def where_it_lies(total_ns: float, delta_ns: Mapping[str, float], main: str | None = None) -> str:
    """Return the stages of a change as the end of a sentence: ``, all of it in data`` and the like.

    Args:
        total_ns: sum of ``delta_ns``; not 0.
        main: the stage to name first; None for the one that changed most in the direction of the total.
    """
    main = main or main_stage(total_ns, delta_ns)
    short = format.short_stages(list(delta_ns))
    part = delta_ns[main] / total_ns
    if 0.95 <= part <= 1.05:
        return f", all of it {format.in_short(short[main])}"
    if part > OUTWEIGHED:
        against = main_stage(-total_ns, delta_ns)
        parts = [f"{short[stage]} {format.change(delta_ns[stage])}" for stage in (main, against)]
        return f": {', '.join(parts)}"
    if part > 1.05:
        others = "faster" if total_ns > 0 else "slower"
        return f": {short[main]} {format.change(delta_ns[main])}, other stages slightly {others}"
    rest = sorted((stage for stage in delta_ns if stage != main), key=lambda s: -delta_ns[s] / total_ns)
    grown = [main, *(stage for stage in rest if delta_ns[stage] / total_ns > 0.1)]
    return f": {format.listed([f'{short[stage]} {format.change(delta_ns[stage])}' for stage in grown])}"


def main_stage(total_ns: float, delta_ns: Mapping[str, float]) -> str:
    """Return the stage that changed most in the direction of the total."""
    sign = -1 if total_ns < 0 else 1
    return max(delta_ns, key=lambda stage: sign * delta_ns[stage])
