"""The rolling verdict on running jobs, shared by all pages that show one.

The aggregator replaces ``newest.steps`` about twice a second (metrics.md); its rows are judged once, however
many pages are open.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from sfapp.accounting import (
    RollingHistory,
    RollingVerdict,
    RunWaits,
    measure,
    rolling_verdict,
    rolling_window,
    with_age,
)
from sfapp.errors import MetricsError
from sfapp.model import Reference, Window
from sfapp.model.live_rows import LiveRows
from sfapp.packets.newest_steps import FOLDER, NAME, newest_steps_path, read_newest_steps
from sfapp.service.live_address import MOST_STEPS
from sfapp.store import Store
from sfapp.views import text as words

CONTEXT_S = 5.0
"""Seconds after which the facts from the run's finished windows are read again."""

MAX_RUNS = 64

_Stamp = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class RollingView:
    """Content of a page on the last steps of a job."""

    verdict: RollingVerdict
    history: RollingHistory

    @property
    def words(self) -> words.RollingWords:
        """The verdict in words."""
        return words.rolling_words(self.verdict, self.history.current)

    def document(self) -> dict[str, Any]:
        """Return it as plain data, for the page's JSON."""
        found, roll = self.verdict, self.verdict.roll
        summary = self.words
        delays = found.delays
        step_ns = found.step_ns
        return {
            "kind": found.kind,
            "summary": summary.headline,
            "detail": list(summary.details),
            "steps_asked": found.asked,
            "steps": found.steps,
            "first_step": None if found.diagnosis is None else found.diagnosis.first_step,
            "last_step": None if found.diagnosis is None else found.diagnosis.last_step,
            "step_ns": step_ns,
            "finding": None
            if found.finding is None or step_ns is None
            else asdict(found.finding)
            | {
                "effect_ns": found.finding.effect * step_ns,
                "low_ns": found.finding.low * step_ns,
                "high_ns": found.finding.high * step_ns,
                "late_steps": found.late_steps,
                "since_step": found.since_step,
                "until_step": found.until_step,
            },
            "roll_call": asdict(roll),
            "onsets": [asdict(onset) for onset in self.history.onsets],
            "behind_ns": {}
            if delays is None
            else dict(zip(delays.ranks.rank, delays.behind_R.round().tolist(), strict=True)),
        }


@dataclass(slots=True, eq=False)
class _Followed:
    """One run's file and the verdicts on it.

    Attributes:
        stamp: time and size of the file from which ``rows`` were read.
        judged: by number of steps in a verdict: its rows and the verdict.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    stamp: _Stamp | None = None
    rows: LiveRows | None = None
    judged: dict[int, tuple[LiveRows, RollingView]] = field(default_factory=dict)
    context: _Context | None = None


@dataclass(frozen=True, slots=True)
class _Context:
    """Facts from the finished windows of a run."""

    read_at: float
    stages: tuple[str, ...]
    reference: Reference | None
    run_waits: RunWaits


class RollingFeed:
    """Rolling verdicts of the runs of one workspace. Safe to use from several threads."""

    def __init__(self, store: Store, paths: Sequence[Path]) -> None:
        self._store = store
        self._paths = paths
        self._lock = threading.Lock()
        self._runs: LRUCache[str, _Followed] = LRUCache(MAX_RUNS)

    def view(self, run_id: str, steps: int) -> RollingView | None:
        """Return the verdict on the present last steps of a run; None if none are streamed here.

        Rows are judged once: some ms for a few ranks, tens of ms for a thousand.
        """
        with self._lock:
            run = self._runs.setdefault(run_id, _Followed())
        with run.lock:
            rows = self._read(run, run_id)
            if rows is None:
                return None
            known = run.judged.get(steps)
            if known is None or known[0] is not rows:
                known = rows, self._judge(run, rows, steps, known and known[1])
                run.judged[steps] = known
            view, older_s = known[1], _older_s(rows)
            return view if not older_s else replace(view, verdict=with_age(view.verdict, rows, older_s))

    def _read(self, run: _Followed, run_id: str) -> LiveRows | None:
        """Return the newest rows; the previous ones if the file cannot be read."""
        for path in _candidates(self._paths, run_id):
            try:
                state = path.stat()
                stamp = state.st_mtime_ns, state.st_size
                if stamp == run.stamp:
                    return run.rows
                rows = read_newest_steps(path)
            except (OSError, MetricsError):
                continue
            if rows.run_id == run_id:
                run.stamp, run.rows = stamp, rows
                return rows
        return run.rows

    def _judge(self, run: _Followed, rows: LiveRows, steps: int, before: RollingView | None) -> RollingView:
        window = rolling_window(rows, steps, _older_s(rows))
        context = None if window is None else self._context(run, window)
        verdict = rolling_verdict(
            rows,
            steps,
            reference=None if context is None else context.reference,
            run_waits=None if context is None else context.run_waits,
            older_s=_older_s(rows),
            window=window,
        )
        history = RollingHistory() if before is None else before.history
        if window is not None and not _follows(history, window):
            longer = rolling_window(rows, MOST_STEPS, _older_s(rows))
            if longer is not None and len(longer.step_N) > len(window.step_N):
                history = history.with_steps(measure(longer))
        return RollingView(verdict, history.extended(verdict))

    def _context(self, run: _Followed, window: Window) -> _Context:
        """Return the facts from the run's finished windows, read again every few seconds."""
        known, now = run.context, time.monotonic()
        if known is None or known.stages != window.stages or now - known.read_at > CONTEXT_S:
            reference = self._store.reference(window.run_id)
            known = _Context(
                now, window.stages, reference, self._store.run_waits(window.run_id, window.stages)
            )
            run.context = known
        return known


def _candidates(paths: Sequence[Path], run_id: str) -> Iterator[Path]:
    """Yield the possible paths of a run's file: below a packet directory, or in the folder of the run
    itself."""
    for path in paths:
        yield newest_steps_path(path, run_id)
        yield path / FOLDER / NAME


def _follows(history: RollingHistory, window: Window) -> bool:
    """Return whether a window follows the history without a gap."""
    return len(history.step_N) > 0 and int(window.step_N[0]) <= int(history.step_N[-1]) + 1


def _older_s(rows: LiveRows) -> float:
    """Return the age of the rows if newer ones are overdue, that is, if the aggregator is silent."""
    older_s = time.time() - rows.at_ns / 1e9
    return older_s if older_s > words.STALE_S else 0.0
