"""What a tracker gets of a run: values per window, the problems in words, and lost time by stage."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike

from sfapp.errors import WindowNotFoundError
from sfapp.model.problems import Problem
from sfapp.report.markdown import table
from sfapp.service.judging import WindowJudge
from sfapp.service.onsets import EpisodeLocator
from sfapp.service.problems import StoredProblems
from sfapp.storage import StoragePath, location
from sfapp.store import Store, WindowQuery
from sfapp.views import format
from sfapp.views.text.problems import problem_text

PREFIX = "sfapp/"
"""Beginning of the name of every value."""

_CACHE_BYTES = 1 << 26

_REFUSED = re.compile(r"[^A-Za-z0-9_. -]|^[. ]*$")
"""What MLflow refuses in the name of a value, with all values of the same request, and slashes, which begin a
group."""

COLUMNS = ("problem", "cost", "since", "until", "state")
"""Columns of the table of problems."""


@dataclass(frozen=True, slots=True)
class WindowValues:
    """Values of one window, at its last step. ``seconds``: when it ended, since 1970; None if not known."""

    window: int
    step: int
    seconds: float | None
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunLog:
    """Everything about one run.

    Attributes:
        after_window: the window asked for.
        windows: those after it, in order.
        last_step: of the run's last window, also if that is not among ``windows``.
        summary: number of problems, and rank-hours lost, in all and by stage.
        problems: rows of the table of problems, the costliest first, as text.
    """

    run_id: str
    after_window: int | None
    windows: tuple[WindowValues, ...]
    last_step: int
    summary: Mapping[str, float]
    problems: tuple[tuple[str, ...], ...]

    @property
    def last_window(self) -> int | None:
        """The number of the last window, which was logged before if none is new; None if there are none."""
        return self.windows[-1].window if self.windows else self.after_window

    def markdown(self) -> str:
        """Return the problems as a Markdown table; names from packets are shown as text."""
        if not self.problems:
            return "No problem found"
        return table(COLUMNS, self.problems)


def run_log(
    packets: str | PathLike[str] | StoragePath,
    run_id: str | None = None,
    after_window: int | None = None,
) -> RunLog:
    """Read a run's packets and return what to log of it.

    Args:
        packets: folder of the run's packets, or one that holds them, or its address in an object store.
        run_id: the run; not needed if there is only one.
        after_window: only windows of a higher number. Steps do not tell: a job that returns to a checkpoint
            runs the same ones again.

    Raises:
        WindowNotFoundError: there is no such run, or several and none is named.
        StoreError: the folder does not exist.
    """
    with Store.open([location(packets)], memory=True) as store:
        store.ingest()
        name = _run_in(store, run_id)
        judge = WindowJudge(lambda run: store, cache_bytes=_CACHE_BYTES)
        problems = StoredProblems(lambda run: store, EpisodeLocator(judge)).of_run(name)
        rows = store.timeline(WindowQuery(name))
        lost = [each for of_run, each in store.fleet().lost if of_run == name]
    windows = [
        WindowValues(
            row["window"],
            row["last_step"],
            row["ended_at"] and row["ended_at"].timestamp(),
            _values(row),
        )
        for row in rows
        if after_window is None or row["window"] > after_window
    ]
    costs = [problem.cost.rank_hours for problem in problems if problem.cost is not None]
    summary = {f"{PREFIX}problems": float(len(problems)), f"{PREFIX}problems_rank_hours": sum(costs)}
    names = tracked_stage_names([each.stage for each in lost])
    summary |= {f"{PREFIX}lost_rank_hours/{names[each.stage]}": each.above_healthy for each in lost}
    last_step = rows[-1]["last_step"] if rows else 0
    return RunLog(name, after_window, tuple(windows), last_step, summary, tuple(map(_problem_row, problems)))


def _run_in(store: Store, run_id: str | None) -> str:
    known = [run.run_id for run in store.runs()]
    if run_id is None and len(known) == 1:
        return known[0]
    if run_id is None:
        raise WindowNotFoundError(
            f"the packets are of {len(known)} runs: name one with run_id" if known else "there are no packets"
        )
    if run_id not in known:
        raise WindowNotFoundError(f"there is no run {run_id!r}")
    return run_id


def tracked_stage_names(stages: Sequence[str]) -> dict[str, str]:
    """Return a different name for each stage, of characters that every tracker accepts."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    numbers: Counter[str] = Counter()  # Thousands of names may become the same one.
    for stage, short in format.short_stages(stages).items():
        name = plain = _REFUSED.sub("_", short)
        while name in taken:
            numbers[plain] += 1
            name = f"{plain} {numbers[plain] + 1}"
        taken.add(name)
        found[stage] = name
    return found


def _values(row: Mapping[str, object]) -> dict[str, float]:
    """Return the values of a window that are known, by name."""
    step_ns, rank = row["step_time_ns"], row["aim_rank"]
    found: dict[str, object] = {
        "step_time_ms": step_ns / 1e6 if isinstance(step_ns, int | float) else None,
        "change_percent": row["change"] * 100 if isinstance(row["change"], float) else None,
        "needs_attention": bool(row["needs_attention"]),
        "missing_ranks": row["missing_ranks"],
        "late_rank": rank if row["needs_attention"] else None,
    }
    return {PREFIX + name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def _problem_row(problem: Problem) -> tuple[str, ...]:
    text = problem_text(problem)
    return text.headline, text.cost or "", text.since or "", text.until or "", text.status
