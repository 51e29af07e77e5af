"""Packets in a notebook: frames of runs and windows, verdicts, comparisons."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType

import polars as pl

from sfapp.accounting import compare
from sfapp.assets import EXAMPLES, assets
from sfapp.engines import packet_reader
from sfapp.errors import StoreError, WindowNotFoundError
from sfapp.model import ALL_RANKS, DEFAULT_FRONTIER, Baseline, Diagnosis, Frontier, Gates
from sfapp.model.onsets import StepEstimate
from sfapp.model.view import ViewState, WindowKey
from sfapp.notebook.card import NOT_TYPESET
from sfapp.notebook.comparison import ComparisonView
from sfapp.notebook.window import WindowView
from sfapp.service.judging import WindowJudge
from sfapp.service.missing_rows import missing_rows_note, of_kept_rows
from sfapp.service.onsets import EpisodeLocator
from sfapp.service.problems import StoredProblems, episodes_in
from sfapp.storage import location
from sfapp.store import IngestReport, Store, WindowQuery
from sfapp.views import format
from sfapp.views.html_text import html_text
from sfapp.views.text.problems import problem_text

_EVERY = 2**31

CACHE_BYTES = 1 << 28
"""Memory for windows and their measures: the reference is measured once for all windows of a run."""

_STEPS = ("began", "began_low", "began_high", "ended", "ended_low", "ended_high")
_ONSETS: dict[str, pl.DataType | type[pl.DataType]] = {
    "kind": pl.String,
    "stage": pl.String,
    "ranks": pl.List(pl.Int64),
    "hostname": pl.String,
    "first_window": pl.Int64,
    "last_window": pl.Int64,
    "effect": pl.Float64,
    **dict.fromkeys(_STEPS, pl.Int64),
}


_PROBLEMS: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("id", "run_id", "sentence", "kind", "stage"), pl.String),
    "ranks": pl.List(pl.Int64),
    "hostname": pl.String,
    "windows": pl.List(pl.Int64),
    **dict.fromkeys(_STEPS, pl.Int64),
    **dict.fromkeys(("began_at", "ended_at"), pl.Datetime("us", "UTC")),
    **dict.fromkeys(("lost_ns", "lost_share", "rank_hours"), pl.Float64),
}


class PacketsDiffer(UserWarning):
    """The packets differ from those of the report."""


class RowsThinned(UserWarning):
    """A window was judged by the steps that were kept of it."""


class Packets:
    """Opened packet folders. Use it in a ``with`` statement, or close it, to free the store.

    Attributes:
        store: for your own queries.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._judge = WindowJudge(lambda run: store, cache_bytes=CACHE_BYTES, measures_reference=True)
        self._problems = StoredProblems(lambda run: store, EpisodeLocator(self._judge))

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def __enter__(self) -> Packets:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def refresh(self, cancel: threading.Event | None = None) -> IngestReport:
        """Read packets that were added or changed since the last call."""
        return self.store.ingest(cancel=cancel)

    @property
    def runs(self) -> pl.DataFrame:
        """Return one row per run, the one with the newest window first."""
        names = ("run_id", "windows", "ranks", "nodes", "reference_window", "worst_severity")
        runs = self.store.runs()
        return pl.DataFrame({name: [getattr(run, name) for run in runs] for name in names})

    @property
    def windows(self) -> pl.DataFrame:
        """Return one row per window, by run and number, as the store's ``windows`` (docs/store.md)."""
        in_order = WindowQuery(sort=(("run_id", "asc"), ("window", "asc")), limit=_EVERY)
        return pl.DataFrame(self.store.windows(in_order).rows, infer_schema_length=None)

    def onsets(self, run: str) -> pl.DataFrame:
        """Return where the effects in a run began and ended: one row per episode, earliest first.

        ``began`` is the first step with the effect, within ``began_low`` and ``began_high`` with 95 %;
        ``ended`` is the last one, null if the run's last window has it. Both are null if only the interval is
        known.

        Raises:
            WindowNotFoundError: no such run.
        """
        if not self.store.window_numbers([run]):
            raise WindowNotFoundError(f"there is no run {run!r}")
        return pl.DataFrame(
            [
                {
                    "kind": episode.kind,
                    "stage": episode.stage,
                    "ranks": list(episode.ranks),
                    "hostname": episode.hostname,
                    "first_window": episode.first_window,
                    "last_window": episode.last_window,
                    "effect": episode.effect,
                    **_estimate("began", episode.began),
                    **_estimate("ended", episode.ended),
                }
                for episode in episodes_in(self._problems.of_run(run))
            ],
            schema=_ONSETS,
        )

    @property
    def problems(self) -> pl.DataFrame:
        """Return one row per problem: missing data first, then by rank-hours lost (accounting.md §18).

        ``sentence`` describes it; ``began`` and ``ended`` are as in ``onsets``; ``lost_ns`` is the time added
        to the steps of its windows.
        """
        return pl.DataFrame(
            [
                {
                    "id": problem.id,
                    "run_id": problem.run_id,
                    "sentence": problem_text(problem).sentence,
                    "kind": problem.kind,
                    "stage": problem.stage,
                    "ranks": list(problem.ranks),
                    "hostname": problem.hostname,
                    "windows": list(problem.windows),
                    **_estimate("began", problem.began),
                    **_estimate("ended", problem.ended),
                    "began_at": problem.began_at,
                    "ended_at": problem.ended_at,
                    "lost_ns": problem.cost and problem.cost.lost_ns,
                    "lost_share": problem.cost and problem.cost.share,
                    "rank_hours": problem.cost and problem.cost.rank_hours,
                }
                for problem in self._problems.of_runs(self.store.troubled_runs(), locates=True)
            ],
            schema=_PROBLEMS,
        )

    @property
    def quarantined(self) -> pl.DataFrame:
        """Return one row per rejected file, with the reason."""
        files = self.store.quarantine()
        return pl.DataFrame({"name": [f.name for f in files], "reason": [f.reason for f in files]})

    def window(
        self,
        run: str,
        number: int,
        gates: Gates | None = None,
        *,
        frontier: Frontier = DEFAULT_FRONTIER,
        baseline: Baseline = "cohort_median",
        group: str = ALL_RANKS,
        reference: tuple[str, int] | None = None,
    ) -> WindowView:
        """Judge one window.

        Of a thinned window (``sfapp compact``) the steps that were kept are judged; a ``RowsThinned`` warning
        says so, with the verdict on all of them.

        Args:
            gates: the default gates if None.
            frontier: the frontier whose shares decide routing and labels; ``step`` is the paper's.
            group: ``all``, ``role:NAME`` or ``node:K``.
            reference: (run, window) to compare with; the run's healthy window if None.

        Raises:
            WindowNotFoundError: no such window, or it has no such group.
            WindowError: the baseline is ``reference`` and there is no reference.
        """
        view = _view(gates, frontier, baseline, group, reference)
        judged = self._judge.judge(self._judge.source(WindowKey(run, number)), view)
        missing_rows = missing_rows_note(self.store, judged.window)
        if missing_rows:
            warnings.warn(f"window {number} of {run!r}: {missing_rows}", RowsThinned, stacklevel=2)
        return WindowView(
            judged.window,
            judged.measures,
            judged.diagnosis,
            judged.reference,
            lambda: self.store.operators(run, number),
            missing_rows,
        )

    def compare(
        self,
        a: str | tuple[str, int],
        b: str | tuple[str, int],
        c: str | tuple[str, int] | None = None,
        gates: Gates | None = None,
        *,
        frontier: Frontier = DEFAULT_FRONTIER,
        baseline: Baseline = "cohort_median",
        group: str = ALL_RANKS,
        reference: tuple[str, int] | None = None,
    ) -> ComparisonView:
        """Compare two windows or whole runs, or three as A/B/A.

        Without other arguments, stored verdicts are compared, as in the app: those of thinned windows are on
        all of their rows.

        Args:
            a, b, c: ``(run, window)``, or a run for all its windows.
            gates, frontier, baseline, group, reference: as for ``window``.

        Raises:
            WindowNotFoundError: no such run, window or group.
            ComparisonError: the sides cannot be compared; the message says what differs.
        """

        view = _view(gates, frontier, baseline, group, reference)

        is_default = view == ViewState()

        def judged(run: str, number: int) -> Diagnosis:
            if is_default:
                return self.store.diagnosis(run, number)
            return self._judge.judge(self._judge.source(WindowKey(run, number)), view).diagnosis

        def side(named: str | tuple[str, int]) -> Diagnosis | list[Diagnosis]:
            if not isinstance(named, str):
                return judged(*named)
            numbers = self.store.window_numbers([named]).get(named)
            if not numbers:
                raise WindowNotFoundError(f"there is no run {named!r}")
            if is_default:
                return self.store.diagnoses(named)
            return [judged(named, number) for number in numbers]

        found = compare(side(a), side(b), None if c is None else side(c))
        return ComparisonView(found if is_default else of_kept_rows(found, lambda run: self.store))

    def find(self, sha256: Sequence[str], run: str, number: int) -> tuple[str, int]:
        """Find the run and number of the window of a report, by the packets' SHA-256.

        If no packets match, it warns with ``PacketsDiffer`` and returns the given run and number.

        Raises:
            WindowNotFoundError: there is no such window either.
        """
        wanted = set(sha256)
        if self._has(run, number, wanted):
            return run, number
        windows = self.store.windows(WindowQuery(limit=_EVERY)).rows
        for row in windows:
            # A redacted report has pseudonyms of runs; the content of the files identifies them.
            if self._has(row["run_id"], row["window"], wanted):
                return row["run_id"], row["window"]
        sources = self.store.sources(run, number)
        warnings.warn(
            f"the packets of window {number} of {run!r} differ from those of the report: "
            f"their SHA-256 is {', '.join(source.sha256 for source in sources)}, not {', '.join(sha256)}. "
            "The results below are computed from these packets.",
            PacketsDiffer,
            stacklevel=2,
        )
        return run, number

    def _has(self, run: str, number: int, sha256: set[str]) -> bool:
        try:
            return {source.sha256 for source in self.store.sources(run, number)} == sha256
        except WindowNotFoundError:
            return False

    def __repr__(self) -> str:
        return f"sfapp packets: {self._shown()}"

    def _repr_html_(self) -> str:
        return f"<span {NOT_TYPESET}><b>sfapp packets</b> · {html_text(self._shown())}</span>"

    def _shown(self) -> str:
        """Return the summary, or why there is none: what shows variables may not raise."""
        try:
            return self._summary()
        except StoreError as error:
            return str(error)

    def _summary(self) -> str:
        total = self.store.windows(WindowQuery(limit=0)).total
        slow = self.store.windows(WindowQuery(needs_attention=True, limit=0)).total
        refused = len(self.store.quarantine())
        runs = format.counted(len(self.store.runs()), "run")
        summary = f"{format.counted(total, 'window')} of {runs}, {format.count(slow)} need attention"
        return f"{summary}, {format.counted(refused, 'file')} rejected" if refused else summary


def _estimate(name: str, found: StepEstimate | None) -> dict[str, int | None]:
    if found is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: found.step, f"{name}_low": found.low, f"{name}_high": found.high}


def _view(
    gates: Gates | None,
    frontier: Frontier,
    baseline: Baseline,
    group: str,
    reference: tuple[str, int] | None,
) -> ViewState:
    return ViewState(
        gates=gates or Gates(),
        frontier=frontier,
        baseline=baseline,
        group=group,
        reference=None if reference is None else WindowKey(*reference),
    )


def open_packets(
    *paths: str | PathLike[str],
    db: str | PathLike[str] | None = None,
    storage_options: Mapping[str, object] | None = None,
    engine: str = "local",
    address: str | None = None,
) -> Packets:
    """Open the packets under some files and folders, or under their addresses in an object store.

    The store is kept in memory, so this works while ``sfapp serve`` runs.

    Args:
        db: keep the store in this file instead, so that the next time only new packets are read.
        storage_options: of the object store (docs/fleet.md), for example ``{"region": "eu-central-1"}``.
        engine: where packets are read now: ``local``, ``ray`` or ``dask``. address: of the cluster
            (``sfapp.engines.packet_reader``).

    Raises:
        EngineError: the cluster cannot be reached.
        StoreError: a path does not exist, or the store's file cannot be used.
        StorageError: an address is invalid, or the object store cannot be read.
    """
    found = [location(path, storage_options) for path in paths]
    store = Store.open(found, None if db is None else Path(db), memory=db is None)
    try:
        with packet_reader(engine, address) as reader:
            store.ingest(reader=reader)
    except BaseException:
        store.close()
        raise
    return Packets(store)


def open_examples() -> Packets:
    """Open the built-in examples: small matrices, one run each (``sfapp.model.examples``)."""
    return open_packets(assets() / EXAMPLES)
