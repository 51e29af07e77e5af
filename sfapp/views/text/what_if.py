"""Describe the saving by fixing a part of a window: a sentence for a terminal, lines for a page."""

from __future__ import annotations

from dataclasses import dataclass

from sfapp.accounting import WhatIf, suspect_fix
from sfapp.model import Diagnosis, Fix, RankTable, broad_stage
from sfapp.model.reasons import reason_sentence
from sfapp.views import format
from sfapp.views.text.findings import healthy_windows

HOURS_A_WEEK = 168

_NOTABLE = 0.02
"""Part of the step, or of the largest possible saving, below which a saving has no number."""


@dataclass(frozen=True, slots=True)
class WhatIfText:
    """A what-if in words; plain text throughout.

    Attributes:
        fix: ``Make rank 3 typical in data``.
        change: ``167.1 ms → 89.3 ms per step``; a range where there is no replay; empty if nothing is
            known.
        error: ``±2.1 ms``; empty without a replay.
        worth: ``Saves 77.8 ms per step: 628 rank-hours a week on 8 ranks.``
        notes: why nothing is predicted, and the basis of the numbers.
    """

    fix: str
    change: str = ""
    error: str = ""
    worth: str = ""
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """All of it on one line, for reports."""
        error = f" ({self.error})" if self.error else ""
        first = f"{self.fix}: {self.change}{error}." if self.change else f"{self.fix}?"
        return " ".join(part for part in (first, self.worth, *self.notes) if part)


def what_if_text(found: WhatIf, diagnosis: Diagnosis, ranks: RankTable | None = None) -> WhatIfText:
    """Return a what-if of a window in words.

    Args:
        ranks: the window's rank table, for the host of a node.
    """
    title = f"Make {_what(found.fix, ranks)}"
    before = format.duration(found.step_ns)
    if found.predicted_ns is not None and found.saved_ns is not None and found.error is not None:
        return WhatIfText(
            title,
            f"{before} → {format.duration(found.predicted_ns)} per step",
            f"±{format.change(found.error * found.step_ns)[1:]}",
            _worth(found.saved_ns, found, diagnosis),
            _notes_on_replay(found, diagnosis),
        )
    if found.least_ns is None or found.most_ns is None:
        return WhatIfText(title, notes=(_why_nothing(found),))
    return WhatIfText(
        title,
        f"{before} → {_between(found.least_ns, found.most_ns)} per step",
        "",
        _worth_between(found, diagnosis),
        (_why_nothing(found), *_notes_on_range(found, diagnosis)),
    )


def what_if_sentence(found: WhatIf) -> str:
    """Return ``With backward on rank 2 as fast as on a typical rank, …``, or why nothing is predicted and the
    range that the step would lie in."""
    if found.predicted_ns is None or found.saved_ns is None:
        why = reason_sentence(found.reason or "")
        stage = "every stage" if found.stage is None else format.short_stage(found.stage)
        text = f"No prediction for {stage}: {why[0].lower()}{why[1:]}"
        if found.least_ns is None or found.most_ns is None:
            return text
        after, before = _between(found.least_ns, found.most_ns), format.duration(found.step_ns)
        if after == before:
            return f"{text} A step would still take {before}."
        return f"{text} A step would take {after} instead of {before}."
    return (
        f"With {_where(found.fix)} as fast as on a typical rank, a step would take "
        f"{format.duration(found.predicted_ns)} instead of {format.duration(found.step_ns)} (replay error "
        f"{format.percent(found.error, 1)})."
    )


def fix_place(fix: Fix, ranks: RankTable | None = None) -> str:
    """Return ``rank 3``, ``host node-0`` or ``every rank``."""
    if fix.rank is not None:
        return f"rank {fix.rank}"
    if fix.node is None:
        return "every rank"
    if ranks is None or fix.node not in ranks.node_rank:
        return f"node {fix.node}"
    return f"host {format.clip(ranks.hostname[ranks.node_rank.index(fix.node)], 32)}"


def _between(least_ns: float, most_ns: float) -> str:
    """Return ``88.7–167.1 ms``."""
    least, most = format.duration(least_ns), format.duration(most_ns)
    if least == most:
        return least
    number, _, unit = least.partition(" ")
    return f"{number}–{most}" if most.endswith(f" {unit}") else f"{least} to {most}"


def _what(fix: Fix, ranks: RankTable | None) -> str:
    if fix.stage is None:
        return f"{fix_place(fix, ranks)} typical in every stage"
    return f"{fix_place(fix, ranks)} typical {format.in_stage(fix.stage)}"


def _where(fix: Fix) -> str:
    stage = "every stage" if fix.stage is None else format.short_stage(fix.stage)
    return f"{stage} on {fix_place(fix)}"


def _worth(saved_ns: float, found: WhatIf, diagnosis: Diagnosis) -> str:
    if round(saved_ns / found.step_ns, 4) <= 0:
        return "Saves nothing measurable."
    return (
        f"Saves {format.duration(saved_ns)} per step: {_week(saved_ns, found, diagnosis)} rank-hours a week "
        f"on {format.counted(diagnosis.ranks, 'rank')}."
    )


def _worth_between(found: WhatIf, diagnosis: Diagnosis) -> str:
    most = found.step_ns - (found.least_ns or 0.0)
    least = found.step_ns - (found.most_ns or 0.0)
    if round(most / found.step_ns, 4) <= 0:
        return "Saves nothing measurable."
    low, high = _week(least, found, diagnosis), _week(most, found, diagnosis)
    hours = high if low == high else f"{low}–{high}" if least >= _NOTABLE * most else f"up to {high}"
    return (
        f"Saves up to {format.duration(most)} per step: {hours} rank-hours a week on "
        f"{format.counted(diagnosis.ranks, 'rank')}."
    )


def _week(saved_ns: float, found: WhatIf, diagnosis: Diagnosis) -> str:
    """Return the rank-hours saved per week of this job."""
    hours = HOURS_A_WEEK * diagnosis.ranks * max(0.0, saved_ns) / found.step_ns
    return f"{hours:,.0f}" if hours >= 9.95 or not hours else f"{hours:.1f}"


def _why_nothing(found: WhatIf) -> str:
    why = reason_sentence(found.reason or "")
    hint = " Recorder.watch_waits(model) records them." if found.reason == "no_waits_recorded" else ""
    return f"No replay: {why[0].lower()}{why[1:]}{hint}"


def _notes_on_replay(found: WhatIf, diagnosis: Diagnosis) -> tuple[str, ...]:
    notes = [f"From a replay of the window, which misses its step time by {format.percent(found.error, 1)}."]
    saved, error = found.saved_ns or 0.0, (found.error or 0.0) * found.step_ns
    if 0 < saved <= error:
        notes.append("The saving is within the error of the replay.")
    if saved < _NOTABLE * found.step_ns:
        notes += _grown_on_all(found, diagnosis)
    return tuple(notes)


def _notes_on_range(found: WhatIf, diagnosis: Diagnosis) -> tuple[str, ...]:
    saved = found.step_ns - (found.least_ns or found.step_ns)
    if saved < _NOTABLE * found.step_ns:
        return tuple(_grown_on_all(found, diagnosis))
    notes = ["The range is [G, X]: from no rank waiting for this time to all of them waiting for it."]
    if diagnosis.sync_boundary is not None and diagnosis.wait_stages:
        wait = format.in_stage(broad_stage(diagnosis.sync_boundary))
        notes.append(
            f"By the inferred waits, ranks wait for each other {wait}, so expect about the shorter step."
        )
    return tuple(notes)


def _grown_on_all(found: WhatIf, diagnosis: Diagnosis) -> list[str]:
    """Return that no rank stands out, and by how much the stage grew if it is the likely cause."""
    aim, reference = diagnosis.aim, diagnosis.reference
    if aim is None or aim.rank_reason != "all_ranks" or diagnosis.is_healthy:
        return []
    if found.fix != suspect_fix(diagnosis):
        return []
    text = f"All ranks are equally slow {format.in_stage(aim.stage)}, so a typical rank is no faster."
    grown = (diagnosis.delta_ns or {}).get(aim.stage, 0.0)
    if reference is not None and grown > 0:
        since = healthy_windows(reference)
        text += f" The stage grew by {format.duration(grown)} per step since {since}."
    return [text]
