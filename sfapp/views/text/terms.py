"""Technical terms on screen and their definitions, which every surface shows one hover away."""

from __future__ import annotations

import re
from collections.abc import Mapping

ACCOUNTING_TERMS: Mapping[str, tuple[str, str]] = {
    "exposed": (
        "exposed time",
        "Time that lengthens the step: while the slowest rank is in a stage. What other ranks do in the "
        "meantime does not count.",
    ),
    "frontier": (
        "frontier",
        "For each stage boundary, the elapsed time of the slowest rank. Its rise over a stage is the stage's "
        "exposed time. Carry-over follows delays into the next step; step-aligned starts every step at zero.",
    ),
    "advance": ("advance", "The rise of the frontier over a stage: the stage's exposed time."),
    "share": ("share", "The exposed time of a stage as a part of the step."),
    "severity": (
        "severity",
        "The part of the step that is lost: the larger of imbalance and growth against healthy windows. "
        "Windows are sorted by it.",
    ),
    "imbalance": (
        "imbalance",
        "The part of the step that would be saved with every rank as fast as a typical one in every stage.",
    ),
    "routing_set": (
        "routing set",
        "The fewest stages that together hold at least τC of the exposed time: where to look.",
    ),
    "slack": ("slack", "Time by which a rank enters a stage before the last rank does."),
    "lag": ("lag", "Time by which a rank leaves a stage after the median rank does."),
    "lead": ("lead", "Time by which the slowest rank is behind the second slowest at the end of a stage."),
    "static_gain": ("static gain", "The time saved if one stage alone were clipped to its baseline."),
    "ambiguity": ("ambiguity", "Stages whose shares or gains are too close to tell which one matters more."),
    "straggler": ("straggler", "A rank that delays the others."),
    "mean_step": (
        "mean step",
        "The exposed time of a step, averaged over the window, on the carry-over frontier where it is known.",
    ),
    "onset": ("onset", "The step at which an effect began, with its 95 % interval."),
}
"""By machine name: the words on screen, and what they mean."""

_FORMS: Mapping[str, str] = {
    "exposed": r"exposed",
    "frontier": r"frontiers?",
    "advance": r"advances?",
    "severity": r"severity",
    "imbalance": r"imbalance",
    "routing_set": r"routing sets?",
    "slack": r"slack",
    "lag": r"lag",
    "static_gain": r"static gains?",
    "ambiguity": r"ambiguity|ambiguous",
    "straggler": r"stragglers?",
    "mean_step": r"mean step",
    "onset": r"onsets?",
}
"""How the terms are written in titles; words that everyone knows are left out."""

_TERM = re.compile("|".join(rf"(?P<{name}>\b(?:{form})\b)" for name, form in _FORMS.items()), re.IGNORECASE)


def definitions_in(text: str) -> str:
    """Return the definitions of the technical terms in a title, for its tooltip; empty where it has none."""
    names = dict.fromkeys(match.lastgroup for match in _TERM.finditer(text))
    found = [ACCOUNTING_TERMS[name] for name in names if name is not None]
    return "\n".join(f"{words[:1].upper()}{words[1:]}: {meaning}" for words, meaning in found)
