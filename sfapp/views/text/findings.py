"""Describe effects with their intervals, and the smallest effects that a window could show (accounting.md
§17)."""

from __future__ import annotations

from collections.abc import Collection

from sfapp.model import Diagnosis, Reference
from sfapp.model.findings import Finding
from sfapp.views import format

_MOST_RANKS = 4

_NOTABLE = 0.05
"""Part of the step from which jitter is mentioned in the headline."""


def healthy_windows(reference: Reference) -> str:
    """Return ``healthy window 3``, or ``8 healthy windows`` if the reference is their mean."""
    if len(reference.windows) > 1:
        return f"{len(reference.windows)} healthy windows"
    return f"healthy window {reference.window}"


def attention_count(slow: int, windows: int, incomplete: int) -> str:
    """Return ``3 of 21 windows need attention``, or ``All healthy: 21 windows``.

    Args:
        incomplete: number of windows that lack data (ranks are missing or the gather failed) and are not
            called healthy: ``No straggler found in 2 windows; data are missing in 1``.
    """
    total = format.counted(windows, "window")
    if slow:
        text = f"{format.count(slow)} of {total} {'needs' if slow == 1 else 'need'} attention"
    else:
        text = f"No straggler found in {total}" if incomplete else f"All healthy: {total}"
    return f"{text}; data are missing in {format.count(incomplete)}" if incomplete else text


def attention_by_chance(windows: int, alpha: float) -> str:
    """Return the meaning of alpha for some windows: ``by chance in a healthy run: at most 0.2 of 21``."""
    expected = windows * alpha
    most = format.count(round(expected)) if expected >= 1 else f"{expected:.1g}"
    return f"by chance in a healthy run: at most {most} of {format.count(windows)}"


def interval(finding: Finding) -> str:
    """Return ``38 % (36–40 %)``: the effect as a part of the step, with its 95 % interval."""
    return format.percent_interval(finding.effect, finding.low, finding.high)


def chance(finding: Finding) -> str:
    """Return how likely a healthy window shows such an effect; empty if it was not tested."""
    if finding.chance is None:
        return ""
    if finding.chance < 0.0005:
        return "chance of a false alarm below 0.1 %"
    return f"chance of a false alarm {format.percent(finding.chance, 1)}"


def place(finding: Finding) -> str:
    """Return ``data on rank 3``, ``backward on ranks 3, 4 and 12 others`` or ``backward``."""
    stage = format.short_stage(finding.stage)
    if not finding.ranks:
        return stage
    named = ", ".join(map(str, finding.ranks[:_MOST_RANKS]))
    others = len(finding.ranks) - _MOST_RANKS
    if others > 0:
        named += f" and {format.counted(others, 'other')}"
    return f"{stage} on {'rank' if len(finding.ranks) == 1 else 'ranks'} {named}"


def finding_sentence(finding: Finding, late: Collection[int] = ()) -> str:
    """Return one finding as a sentence.

    Args:
        late: ranks that other findings of the window name; jitter is lost besides what they cost.
    """
    size = f"{interval(finding)} of the step"
    if finding.kind == "jitter" and late:
        named = f"rank{'s' if len(late) > 1 else ''} {format.ranges(sorted(late), _MOST_RANKS)}"
        return f"Besides {named}, jitter costs {size}, mostly in {place(finding)}: no other rank stands out."
    if finding.kind == "jitter":
        return f"Jitter costs {size}, mostly in {place(finding)}: the slowest rank changes, none is at fault."
    if finding.kind == "growth":
        return f"The step grew by {size}, mostly in {place(finding)}; {chance(finding)}."
    return f"Late in {place(finding)}: {size}; {chance(finding)}."


def other_findings(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the findings besides the one that the verdict names, each as a sentence."""
    shown = [found for found in diagnosis.findings if found.needs_attention or found.kind == "jitter"]
    late = {rank for finding in diagnosis.findings if finding.needs_attention for rank in finding.ranks}
    return tuple(
        finding_sentence(finding, late) for finding in shown if finding is not diagnosis.main_finding
    )


def effect_sentence(diagnosis: Diagnosis) -> str:
    """Return size, interval and chance of the effect that the verdict names; empty if there is none."""
    main = diagnosis.main_finding
    if main is None:
        return ""
    return f"Effect: {interval(main)} of the step; {chance(main)}."


def effect_cell(diagnosis: Diagnosis) -> str:
    """Return the effect for a table: ``38 % (36–40 %)``; for a healthy window ``none above 2.5 %``, the
    largest effect that could be missed; if noise is unknown, the severity.
    """
    if diagnosis.main_finding is not None:
        return interval(diagnosis.main_finding)
    resolution = diagnosis.resolution
    if not diagnosis.knows_noise or resolution is None:
        return format.ABSENT if diagnosis.severity is None else format.severity(diagnosis.severity)
    known = [*resolution.rank.values(), *(() if resolution.growth is None else (resolution.growth,))]
    return f"none above {format.percent(max(known), 1)}" if known else format.ABSENT


def jitter_words(diagnosis: Diagnosis) -> str:
    """Return ``(jitter costs 14 % of the step, mostly in backward)``; empty if it costs little."""
    jitter = next((found for found in diagnosis.findings if found.kind == "jitter"), None)
    if jitter is None or jitter.effect < _NOTABLE:
        return ""
    return f"(jitter costs {format.percent(jitter.effect)} of the step, mostly in {place(jitter)})"


def resolution_sentence(diagnosis: Diagnosis) -> str:
    """Return the smallest effects that the window could show; empty if noise is not known."""
    resolution = diagnosis.resolution
    if resolution is None or not diagnosis.knows_noise:
        return ""
    parts = []
    if resolution.growth is not None:
        parts.append(f"growth of {format.percent(resolution.growth, 1)}")
    if resolution.rank:
        smallest, largest = min(resolution.rank.values()), max(resolution.rank.values())
        late = f"one rank that is late by {format.percent(smallest, 1)} of the step"
        if largest > 1.2 * smallest:
            span = f"{100 * smallest:.1f}–{format.percent(largest, 1)}"
            late = f"one rank that is late by {span} of the step, depending on the stage"
        parts.append(late)
    if not parts:
        return ""
    return f"This window would have shown {' or '.join(parts)} (95 % power)."
