"""Lessons of the built-in examples: texts, and numbers by simple summaries, the frontier and the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sfapp.accounting import Measures
from sfapp.model import Diagnosis, Gates
from sfapp.model.examples import CROSSINGS, DISPLACED, HIDDEN, MEASURED, NS, TWO_RANKS, Example
from sfapp.model.stages import BACKWARD
from sfapp.model.view import ViewState
from sfapp.views import format

Row = dict[str, Any]

COLUMNS = (
    ("stage", "stage"),
    ("mean", "mean over ranks"),
    ("maximum", "maximum over ranks"),
    ("paper_maximum", "paper's maximum"),
    ("frontier", "frontier"),
    ("paper_frontier", "paper's frontier"),
)
"""Columns of ``lesson_rows``: field and title."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Lesson of an example.

    Attributes:
        story: paragraphs of plain text.
        looks: suggested next views: link text and view.
    """

    title: str
    story: tuple[str, ...]
    looks: tuple[tuple[str, ViewState], ...]


_STEP = ViewState(tab="frontier")
_RULES = ViewState(tab="rules")
_WAITS = ViewState(gates=Gates(model_fit="on"))

LESSONS: Mapping[str, Lesson] = {
    DISPLACED.run_id: Lesson(
        "One late rank, three summaries",
        (
            "Rank 0 is 5 s late with its data. Ranks 1 and 2 reach the synchronisation inside backward early "
            "and wait there: their timers show 5 s of backward without any computation.",
            "The mean points to backward, because two ranks wait and one is late. The maxima find data, but "
            "count the same 5 s again in backward and add up to 13.2 s in a step of 8.2 s.",
            "The frontier takes the slowest rank's position at every boundary. While ranks 1 and 2 wait, "
            "rank 0 "
            "is still in data and forward, so those seconds are charged there; backward adds only 1.2 s. "
            "Each "
            "second is charged once, so the stages add up to the step.",
            "Durations alone cannot prove that ranks 1 and 2 waited, so the label is “stages or ranks tied”. "
            "Once waiting is declared, the label becomes “waits for other ranks”.",
        ),
        (
            ("the step in detail", _STEP),
            ("simpler rules on the same numbers", _RULES),
            ("the verdict once waiting is declared", _WAITS),
        ),
    ),
    TWO_RANKS.run_id: Lesson(
        "One matrix, two explanations",
        (
            "Rank 0 spends 10 s in data, rank 1 spends 10 s in backward, and both are done after 10 s. "
            "Either rank 1 waited for rank 0, or both worked independently: the durations are the same.",
            "The mean shows two equal stages. The maxima add up to 20 s in a step of 10 s. The frontier "
            "charges the 10 s once, to data, where they are exposed first; backward adds nothing.",
            "The frontier does not show which stage to fix. Shortening one stage alone gains nothing, "
            "since the "
            "other rank still takes 10 s. The label is “stages or ranks tied”: both stages stay suspects.",
        ),
        (
            ("share vs gain", ViewState(tab="ambiguity")),
            ("simpler rules on the same numbers", _RULES),
            ("the verdict once waiting is declared", _WAITS),
        ),
    ),
    CROSSINGS.run_id: Lesson(
        "A different slowest rank at every boundary",
        (
            "Rank 0 is slowest at the end of data, rank 1 at the end of forward, rank 2 at the end of "
            "backward. "
            "Where the lines of two ranks cross, the slowest rank changes.",
            "Each advance of the frontier is charged once, to its stage and to the slowest rank there: "
            "4.0, 2.0 "
            "and 2.5 s add up to 8.5 s. The maxima add up to 11.5 s: 3 s of them passed while another rank "
            "was "
            "slower, and delayed no rank.",
            "A total per rank would show only rank 2, with 8.5 s, and hide that ranks 0 and 1 determined the "
            "first 6 s.",
        ),
        (
            ("crossings and changes of the slowest rank", _STEP),
            ("simpler rules on the same numbers", _RULES),
        ),
    ),
    HIDDEN.run_id: Lesson(
        "A slow rank inside backward, hidden",
        (
            "All four ranks spend 7.0 s in backward. One of them computes for 6.8 s; the others are done "
            "after about 4 s and wait for its gradients, inside the same stage.",
            "No summary of these durations can show which rank is slow: they are equal. The window counts as "
            "healthy.",
        ),
        (("time of each rank in each step", ViewState(tab="ranks", stage=BACKWARD)),),
    ),
    MEASURED.run_id: Lesson(
        "A slow rank inside backward, with waits measured",
        (
            "The durations are those of the hidden example, but each rank also recorded how long it was "
            "blocked in communication inside backward: 3.1, 3.0, 0.2 and 2.9 s.",
            "The rest is each rank's own time. Rank 2 needed 6.8 s, the others at most 4.1 s: it is "
            "the rank that the others wait for. Frontier and shares do not change.",
        ),
        (("own time of each rank", ViewState(tab="ranks", stage=BACKWARD, quantity="own")),),
    ),
}
"""Lessons by the example's run."""


def lesson_rows(example: Example, measures: Measures, diagnosis: Diagnosis) -> list[Row]:
    """Return one row per stage and one for their sum, as text and in ns (None if the paper prints
    nothing)."""
    means = measures.by_broad(measures.mean_SN.sum(axis=1))
    maxima = measures.by_broad(measures.max_SN.sum(axis=1))
    frontier = [diagnosis.advances_ns[stage] for stage in measures.broad]
    printed = [_nanoseconds(value) for value in example.maximum_s]
    paper_maxima = printed or [None] * len(measures.broad)
    paper_frontier = [_nanoseconds(value) for value in example.advance_s] or [None] * len(measures.broad)
    stages = [format.short_stage(stage) for stage in measures.broad]
    columns = zip(stages, means, maxima, paper_maxima, frontier, paper_frontier, strict=True)
    return [
        *(_row(*values) for values in columns),
        _row(
            "sum",
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
