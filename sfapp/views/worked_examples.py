"""What each built-in example teaches, and its numbers by plain summaries, by the frontier, by the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sfapp.accounting import Measures
from sfapp.model import Diagnosis, Gates
from sfapp.model.examples import CROSSINGS, DISPLACED, NS, TWO_RANKS, Example
from sfapp.model.view import ViewState
from sfapp.views import format

Row = dict[str, Any]

COLUMNS = (
    ("stage", "stage"),
    ("mean", "mean over ranks"),
    ("maximum", "maximum over ranks"),
    ("paper_maximum", "the paper's"),
    ("frontier", "frontier"),
    ("paper_frontier", "the paper's"),
)
"""Columns of ``lesson_rows``: field and title."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What an example teaches.

    Attributes:
        story: paragraphs of plain text.
        looks: what to look at next: words, and the view that shows it.
    """

    title: str
    story: tuple[str, ...]
    looks: tuple[tuple[str, ViewState], ...]


_STEP = ViewState(tab="frontier")
_RULES = ViewState(tab="rules")
_WAITS = ViewState(gates=Gates(model_fit="on"))

LESSONS: Mapping[str, Lesson] = {
    DISPLACED.run_id: Lesson(
        "One late rank, seen three ways",
        (
            "Rank 0 is 5 s late with its data. Ranks 1 and 2 come early to where ranks meet, inside "
            "backward, and wait there: their timers show 5 s of backward that nobody computed.",
            "The mean blames backward: two waiting ranks outvote the late one. The maxima find data, then "
            "count the same 5 s again as backward, and add up to 13.2 s in a step of 8.2 s.",
            "The frontier asks at every boundary how far the last rank is. While ranks 1 and 2 wait, rank 0 "
            "is still in data and forward, and those seconds are charged there; at the end of backward only "
            "1.2 s are new. Each second is charged once, so the stages add up to the step.",
            "Durations alone cannot prove that ranks 1 and 2 waited, hence co_critical. Once it is declared "
            "that ranks wait for each other, it becomes likely_sync_wait.",
        ),
        (
            ("the step, rise by rise", _STEP),
            ("simpler rules on the same numbers", _RULES),
            ("the verdict once waiting is declared", _WAITS),
        ),
    ),
    TWO_RANKS.run_id: Lesson(
        "One matrix, two stories",
        (
            "Rank 0 spends 10 s in data, rank 1 spends 10 s in backward, and both are done after 10 s. "
            "Either rank 1 waited for rank 0, or each was busy with work of its own: the durations are the "
            "same.",
            "The mean sees two equal stages. The maxima add up to 20 s in a step of 10 s. The frontier "
            "charges the 10 s once, to data, where they are exposed first: at the end of backward nothing is "
            "new.",
            "What to mend is another question. To shorten one of the stages gains nothing, since the other "
            "rank still takes 10 s. So the label is co_critical, and both stages stay in question.",
        ),
        (
            ("share against gain", ViewState(tab="ambiguity")),
            ("simpler rules on the same numbers", _RULES),
            ("the verdict once waiting is declared", _WAITS),
        ),
    ),
    CROSSINGS.run_id: Lesson(
        "Another rank last at every boundary",
        (
            "Rank 0 is last at the end of data, rank 1 at the end of forward, rank 2 at the end of backward. "
            "Where the lines of two ranks cross, one takes over from the other as the last.",
            "Each rise is charged once, to the stage in which it happens and to the rank that reaches the "
            "new height: 4.0, 2.0 and 2.5 s add up to 8.5 s. The maxima add up to 11.5 s: 3 s of them passed "
            "while another rank was further behind, and held nobody up.",
            "A total per rank would show rank 2 alone, with 8.5 s, and hide that ranks 0 and 1 set the pace "
            "for the first 6 s.",
        ),
        (
            ("the crossings, and who takes over", _STEP),
            ("simpler rules on the same numbers", _RULES),
        ),
    ),
}
"""By the example's run."""


def lesson_rows(example: Example, measures: Measures, diagnosis: Diagnosis) -> list[Row]:
    """One row a stage and one for their sum: as text, and in ns (None where the paper prints nothing)."""
    means = measures.by_broad(measures.mean_SN.sum(axis=1))
    maxima = measures.by_broad(measures.max_SN.sum(axis=1))
    frontier = [diagnosis.advances_ns[stage] for stage in measures.broad]
    printed = [_nanoseconds(value) for value in example.maximum_s]
    paper_maxima = printed or [None] * len(measures.broad)
    paper_frontier = [_nanoseconds(value) for value in example.advance_s]
    stages = [format.short_stage(stage) for stage in measures.broad]
    columns = zip(stages, means, maxima, paper_maxima, frontier, paper_frontier, strict=True)
    return [
        *(_row(*values) for values in columns),
        _row(
            "together",
            float(sum(means)),
            float(sum(maxima)),
            _nanoseconds(example.maxima_s),
            diagnosis.exposed_makespan_ns,
            _nanoseconds(example.exposed_s),
        ),
    ]


def _row(stage: str, *values: float | None) -> Row:
    names = [name for name, _ in COLUMNS[1:]]
    row: Row = {"stage": stage, "stage_text": stage}
    for name, value in zip(names, values, strict=True):
        row[name] = value
        row[f"{name}_text"] = format.duration(value)
    return row


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * NS)
