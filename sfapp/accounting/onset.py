"""Find where in a run an effect began and ended, from the windows at its edges (accounting.md §17).

The quantity followed is the mean lateness of the late ranks in the stage or, for growth, the exposed time of
the steps. The end is found in the same way with time reversed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sfapp.accounting.change_point import change_point
from sfapp.accounting.episodes import EpisodeWindows
from sfapp.accounting.kernels import median_last
from sfapp.accounting.late_ranks import broad_own, lateness
from sfapp.accounting.measures import measure
from sfapp.accounting.own_time import split_steps
from sfapp.model import Diagnosis, Window
from sfapp.model.findings import Finding
from sfapp.model.onsets import Episode, StepEstimate
from sfapp.model.stages import broad_stage

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_KNOWN_STEPS = 5
"""Number of steps at the healthy level that stand in for a neighbouring window that was not read."""

_FAR = 20.0
"""Number of spreads at which values are capped in the search for a short effect."""

_CLEAR = 3.0
"""Multiple of the usual lateness from which a late step may be an event, as in ``late_ranks``."""


_TOGETHER = 0.75
"""Part of the ranks that must be late in the same steps for them to be late together."""


@dataclass(frozen=True, slots=True, eq=False)
class StepSeries:
    """A quantity of neighbouring windows, step by step.

    Attributes:
        value_N: ns. step_N: logical step numbers, ascending.
        since: the first step that the effect may have begun at.
    """

    value_N: Floats
    step_N: Ints
    since: int

    def reversed(self, until: int) -> StepSeries:
        """Return the series with time reversed: steps are negative.

        Args:
            until: the last step that the effect may have ended at.
        """
        return StepSeries(self.value_N[::-1], -self.step_N[::-1], -until)

    def began(self) -> tuple[StepEstimate | None, float]:
        """Return where the series rose, or None, and how much better a rise fits than none."""
        follows_N = np.diff(self.step_N, prepend=self.step_N[:1] - 2) == 1
        known = int(np.count_nonzero(self.step_N < self.since))
        found = change_point(self.value_N, ~follows_N, max(1, known))
        if found is None:
            return None, 0.0
        steps = self.step_N.tolist()
        low = max(self.since, steps[found.low - 1] + 1)
        return StepEstimate(steps[found.place], low, steps[found.high]), found.evidence


_Values = Callable[[Diagnosis, Window], Floats | None]
"""A quantity of a window by step, ns; None if the window does not have it."""


@dataclass(frozen=True, slots=True)
class _Quantity:
    """The quantity by which an effect is followed.

    Attributes:
        level: its value without the effect, if known from other windows, ns.
    """

    values: _Values
    level: float | None


def located(found: EpisodeWindows, windows: Mapping[int, Window]) -> Episode:
    """Return an episode with the steps at which it began and ended.

    Args:
        windows: those of ``found.edges`` that can be read, by number, with all ranks. The interval covers any
            that are missing.
    """
    if not found.first.knows_noise:
        return found.episode()
    group = found.first.group
    views = {number: one.of_group(group) for number, one in windows.items() if group in one.groups}
    began, ended = _estimates(found, views)
    # A result that contradicts the windows with the effect belongs to another effect that follows directly.
    if began and began.step is not None and began.step > found.first.last_step:
        began = None
    if ended and ended.step is not None and ended.step < found.last.first_step:
        ended = None
    if began and ended and began.step is not None and ended.step is not None and began.step > ended.step:
        began, ended = None, None
    return found.episode(began, ended)


def _estimates(
    found: EpisodeWindows, views: Mapping[int, Window]
) -> tuple[StepEstimate | None, StepEstimate | None]:
    if found.finding.kind != "rank" or not _is_intermittent(found):
        return _changes(found, views, _quantities(found))
    if not _take_turns(found, views):
        return _events(found, views)
    # The stage shows the effect before each of the ranks has been late.
    return _changes(found, views, [_Quantity(_exposed_in((found.finding.stage,)), None)])


def _changes(
    found: EpisodeWindows, views: Mapping[int, Window], quantities: Iterable[_Quantity]
) -> tuple[StepEstimate | None, StepEstimate | None]:
    """Return where the clearest quantity rose and where it fell; None if none does."""
    began, ended = None, None
    clearest_begin, clearest_end = 0.0, 0.0
    for quantity in quantities:
        begin, end = _edges(found, views, quantity)
        estimate, evidence = (None, 0.0) if begin is None else begin.began()
        if evidence > clearest_begin:
            began, clearest_begin = estimate, evidence
        estimate, evidence = (None, 0.0) if end is None else end.began()
        if estimate is not None and evidence > clearest_end:
            step = None if estimate.step is None else -estimate.step
            ended, clearest_end = StepEstimate(step, -estimate.high, -estimate.low), evidence
    return began, ended


# ---- quantities ---------------------------------------------------------------------------------------


def _quantities(found: EpisodeWindows) -> Iterator[_Quantity]:
    """Yield quantities by which the effect may be followed; the one that shows it most clearly counts."""
    finding = found.finding
    if finding.kind == "rank":
        yield _Quantity(lambda _, window: _mean_lateness(window, finding.stage, found.ranks), 0.0)
        return
    reference = found.first.reference
    healthy = None if reference is None else reference.carry_advance_ns or reference.advance_ns
    named = {
        other.stage
        for diagnosis in found.edges
        for other in diagnosis.findings
        if other.kind == "rank" and other.needs_attention
    }
    rest = tuple(stage for stage in found.first.stages if stage not in named)
    for stages in dict.fromkeys(((finding.stage,), rest)):
        level = None
        if healthy is not None and set(stages) <= healthy.keys():
            level = sum(healthy[stage] for stage in stages)
        yield _Quantity(_exposed_in(stages), level)


def _late_NR(window: Window, stage: str, ranks: tuple[int, ...]) -> Floats | None:
    """Return the lateness of some ranks in a broad stage, ns [N, len(ranks)]."""
    members = [place for place, name in enumerate(window.stages) if broad_stage(name) == stage]
    known = window.reduced is None and len(window.ranks) > 1 and set(ranks) <= set(window.ranks.rank)
    if not (members and known):
        return None
    places = [window.ranks.rank.index(rank) for rank in ranks]
    return lateness(broad_own(window, members, split_steps(window)))[:, places]


def _mean_lateness(window: Window, stage: str, ranks: tuple[int, ...]) -> Floats | None:
    late_NR = _late_NR(window, stage, ranks)
    return None if late_NR is None else np.asarray(late_NR.mean(axis=1))


def _exposed_in(stages: tuple[str, ...]) -> _Values:
    def exposed(diagnosis: Diagnosis, window: Window) -> Floats | None:
        measures = measure(window)
        if not set(stages) <= set(measures.broad):
            return None
        boundary = diagnosis.sync_boundary
        carried = measures.carry(window.stages.index(boundary) if boundary in window.stages else None)
        advance_BN = measures.by_broad((measures if carried is None else carried).advance_SN)
        chosen = [measures.broad.index(stage) for stage in stages]
        return np.asarray(advance_BN[chosen].sum(axis=0), dtype=np.float64)

    return exposed


# ---- series at the edges ------------------------------------------------------------------------------


def _edges(
    found: EpisodeWindows, views: Mapping[int, Window], quantity: _Quantity
) -> tuple[StepSeries | None, StepSeries | None]:
    """Return the series in which the effect begins and the reversed series in which it ends; None if these
    windows are not read or the effect goes on to the end of the run."""
    before, first, last, after = (
        None if one is None or one.window not in views else (one, views[one.window])
        for one in (found.before, found.first, found.last, found.following)
    )
    since, until = found.since, found.until
    if found.first is not found.last:
        begin = _joined([before, first], quantity, since, None)
        if until is None:
            return begin, None
        end = _joined([last, after], quantity, None, until)
        return begin, None if end is None else end.reversed(until)
    whole = _joined([before, first, after], quantity, since, until)
    if whole is None:
        return None, None
    listed = found.finding.steps
    inside = (listed[0], listed[-1]) if listed else (found.first.last_step, found.first.first_step)
    latest, earliest = np.searchsorted(whole.step_N, inside).tolist()
    rise, fall = _short_effect(whole.value_N, latest, earliest + 1)
    begin = StepSeries(whole.value_N[:fall], whole.step_N[:fall], since)
    end = StepSeries(whole.value_N[rise:], whole.step_N[rise:], since)
    return begin, None if until is None else end.reversed(until)


def _joined(
    parts: list[tuple[Diagnosis, Window] | None], quantity: _Quantity, since: int | None, until: int | None
) -> StepSeries | None:
    """Return the quantity of neighbouring windows; None if the windows with the effect do not have it.

    If a neighbour is not read, steps at the known healthy level stand in for it.

    Args:
        parts: the windows with the effect and their neighbours, where there are any.
        since, until: first step at which the effect may have begun, last step at which it may have ended.
    """
    values = [None if part is None else quantity.values(*part) for part in parts]
    steps = [None if part is None else part[1].step_N for part in parts]
    with_effect = 0 if since is None else 1
    if values[with_effect] is None:
        return None
    pad_N = np.arange(_KNOWN_STEPS, dtype=np.int64)
    for place, pad_from in ((0, None if since is None else since - _KNOWN_STEPS),
                            (len(parts) - 1, None if until is None else until + 1)):  # fmt: skip
        if values[place] is None and place != with_effect and pad_from is not None:
            if quantity.level is None:
                return None
            values[place], steps[place] = np.full(_KNOWN_STEPS, quantity.level), pad_from + pad_N
    kept = [(value, step) for value, step in zip(values, steps, strict=True) if value is not None]
    value_N = np.concatenate([value for value, _ in kept])
    step_N = np.concatenate([step for _, step in kept if step is not None])
    return StepSeries(value_N, step_N, int(step_N[0]) if since is None else since)


def _short_effect(value_N: Floats, latest: int, earliest: int) -> tuple[int, int]:
    """Return where a series rises and where it falls again, by least squares.

    These are the positions of the first value at the higher level and of the first value after it.

    Args:
        latest, earliest: last position at which it may rise, first position at which it may fall.
    """
    far = _FAR * float(median_last(np.abs(np.diff(value_N))))
    middle = float(median_last(value_N))
    clipped_N = value_N.clip(middle - far, middle + far) if far > 0.0 else value_N
    count = len(clipped_N)
    total_N = np.concatenate(([0.0], np.cumsum(clipped_N - clipped_N.mean())))
    best, rise, fall = 0.0, max(1, latest), count
    for begin in range(1, min(latest, count - 1) + 1):
        first_end = max(begin + 1, earliest)
        inside_E = np.arange(first_end, count + 1) - begin
        sum_E = total_N[first_end:] - total_N[begin]
        # With the overall mean removed, this is the sum of squares that two levels explain.
        explained_E = np.where(sum_E > 0.0, sum_E**2 * count / (inside_E * (count - inside_E)), 0.0)
        end = int(explained_E.argmax())
        if explained_E[end] > best:
            best, rise, fall = float(explained_E[end]), begin, first_end + end
    return rise, fall


# ---- late in single steps -----------------------------------------------------------------------------


def _is_intermittent(found: EpisodeWindows) -> bool:
    """Return whether the ranks are late in several single steps with more healthy steps in between."""
    every = [_late_steps(*one) for one in found.telling]
    steps = sorted(set().union(*every))
    return all(every) and len(steps) < (steps[-1] - steps[0] + 1) / 2


def _late_steps(diagnosis: Diagnosis, finding: Finding) -> tuple[int, ...]:
    """Return the steps in which ranks are late; empty if they are late in most steps. Long late steps at a
    regular distance make a rank late on average."""
    if finding.steps:
        return finding.steps
    culprit = next((one for one in diagnosis.culprits if one.stage == finding.stage), None)
    if culprit is None or culprit.kind != "periodic" or culprit.rank not in finding.ranks:
        return ()
    return culprit.steps


def _listed(found: EpisodeWindows) -> list[int]:
    return sorted({step for one in found.telling for step in _late_steps(*one)})


def _events(found: EpisodeWindows, views: Mapping[int, Window]) -> tuple[StepEstimate, StepEstimate | None]:
    """Return the first and last late step, and how much earlier or later their cause may have begun or ended:
    less than the longest time between two late steps, or another late step would have occurred."""
    late = _lateness_by_step(found, views)
    listed = _listed(found)
    shown = [late[step] for step in listed if step in late]
    least = 0.0
    if shown:
        usual = float(np.quantile(np.abs(list(late.values())), 0.75))
        least = max(_CLEAR * usual, float(np.quantile(shown, 0.75)) / 2.0)
    steps = [step for step in listed if late.get(step, least) >= least] or listed
    longest = max((later - earlier for earlier, later in pairwise(steps)), default=1)
    # An event too small to count in a neighbouring window belongs to these all the same.
    large = [step for step, value in late.items() if value >= least]
    first = _earliest(steps[0], [step for step in large if step < steps[0]], longest)
    before, after, until = found.before, found.following, found.until
    low = max(found.since, first - longest + 1)
    if before is not None and before.window not in views and first - longest < found.first.first_step:
        low = before.first_step
    if until is None:
        return StepEstimate(first, low, first), None
    last = -_earliest(-steps[-1], [-step for step in large if step > steps[-1]], longest)
    high = min(until, last + longest - 1)
    if after is not None and after.window not in views and last + longest > found.last.last_step:
        high = until
    return StepEstimate(first, low, first), StepEstimate(last, last, high)


def _take_turns(found: EpisodeWindows, views: Mapping[int, Window]) -> bool:
    """Return whether a different rank is late each time, instead of all of them together."""
    diagnosis, finding = found.telling[0]
    window = views.get(diagnosis.window)
    late_NR = None if window is None else _late_NR(window, finding.stage, finding.ranks)
    if window is None or late_NR is None or len(finding.ranks) < 2:
        return len(finding.ranks) > 1
    late_NR = late_NR[np.isin(window.step_N, _late_steps(diagnosis, finding))]
    return bool((late_NR > late_NR.max(axis=1, keepdims=True) / 2.0).mean() <= _TOGETHER)


def _lateness_by_step(found: EpisodeWindows, views: Mapping[int, Window]) -> dict[int, float]:
    """Return the lateness of the latest of the ranks in each step of the windows at the edges, ns."""
    late: dict[int, float] = {}
    for diagnosis in found.edges:
        window = views.get(diagnosis.window)
        late_NR = None if window is None else _late_NR(window, found.finding.stage, found.ranks)
        if window is not None and late_NR is not None:
            late |= dict(zip(window.step_N.tolist(), late_NR.max(axis=1).tolist(), strict=True))
    return late


def _earliest(known: int, earlier: list[int], longest: int) -> int:
    """Return the earliest late step from which on no two are further apart than ``longest``."""
    for step in sorted(earlier, reverse=True):
        if known - step > longest:
            break
        known = step
    return known
