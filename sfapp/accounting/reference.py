"""The healthy windows with which others are compared (accounting.md §4, §12, §17)."""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from sfapp.accounting.measures import Measures
from sfapp.accounting.noise import WindowSpread, difference_error, pooled, window_spread
from sfapp.accounting.pipeline_past import past_of, pooled_past
from sfapp.model import Diagnosis, Reference
from sfapp.model.findings import StepNoise


def reference_of(source: Measures | Diagnosis) -> Reference:
    """Return the contribution of a window to a reference.

    A contribution from ``Measures`` serves deltas and the baseline ``reference``, one from a ``Diagnosis``
    only deltas. The carry-over part of measures is aligned under default gates.
    """
    if isinstance(source, Measures):
        from sfapp.accounting.judge import judge  # judge builds on this package; only this needs it back

        if not source.has_all_rows:
            return _from_diagnosis(judge(source), {})
        medians = zip(source.window.stages, source.stage_median_S, strict=True)
        return _from_diagnosis(judge(source), {stage: float(median) for stage, median in medians})
    return _from_diagnosis(source, {})


def _from_diagnosis(diagnosis: Diagnosis, stage_median_ns: dict[str, float]) -> Reference:
    steps = diagnosis.steps
    carried = diagnosis.carry_over_advances_ns
    return Reference(
        run_id=diagnosis.run_id,
        window=diagnosis.window,
        group=diagnosis.group,
        step_time_ns=diagnosis.step_time.mean_ns,
        stage_median_ns=stage_median_ns,
        typical_ns=diagnosis.typical_ns,
        advance_ns={stage: advance / steps for stage, advance in diagnosis.advances_ns.items()},
        carry_advance_ns=None
        if carried is None
        else {stage: advance / steps for stage, advance in carried.items()},
        steps=steps,
        windows=(diagnosis.window,),
        noise=diagnosis.noise,
        pipeline=past_of(diagnosis.pipeline),
    )


NOISE_WINDOWS = 32
"""Maximum number of windows from which the noise of a run's steps, and that between its windows, is
estimated: the earliest ones, so that both stay the same as a run goes on."""

_NO_SPREAD = WindowSpread()

_KEPT_SPREAD = 0.9
"""Standard deviation of normal values that is left without the largest part DOUBTFUL of them."""

_MUCH_NARROWER = 0.75
"""Ratio of the spread of healthy windows to that of all below which slow windows had enlarged the latter, and
the former counts. Closer ones differ by chance."""

DOUBTFUL = 0.05
"""Chance below which a window is too slow to be a healthy one."""

MOST_WINDOWS = 8
"""Maximum number of healthy windows in a reference: the earliest ones, so that it stays the same as a run
goes on."""


@dataclass(frozen=True, slots=True)
class WindowPace:
    """The properties that decide whether a window is healthy.

    Attributes:
        step_ns: mean exposed step. noise: noise of its steps.
        kind: recorded stages and number of ranks, which windows must share to be averaged.
        has_late_ranks: whether ranks are late in it, beyond noise.
        is_carried: whether it has a carry-over frontier, of which ``step_ns`` then is.
    """

    window: int
    step_ns: float
    noise: StepNoise | None
    kind: Hashable = ()
    has_late_ranks: bool = False
    is_carried: bool = True

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> WindowPace:
        kind = diagnosis.recorded_stages, diagnosis.ranks
        return cls(
            diagnosis.window,
            diagnosis.step_time.mean_ns,
            diagnosis.noise,
            kind,
            diagnosis.has_late_ranks,
            diagnosis.carry_over_advances_ns is not None,
        )


@dataclass(frozen=True, slots=True)
class HealthyWindows:
    """The windows with which a run's other windows are compared.

    Attributes:
        windows: their numbers. noise: of the run's steps. spread: of window means beyond that noise.
    """

    windows: tuple[int, ...]
    noise: StepNoise | None
    spread: WindowSpread = _NO_SPREAD


def healthy_windows(paces: Iterable[WindowPace], min_effect: float) -> HealthyWindows | None:
    """Return the earliest healthy windows of a run, at most MOST_WINDOWS (§17); None without windows.

    Starting from the fastest, each next window is healthy unless its mean step exceeds that of the healthy
    windows by more than half of ``min_effect`` and by more than noise explains with the chance DOUBTFUL. The
    fastest of many windows is fast by chance, so windows of similar speed belong to it: noise is that of the
    steps, and that between windows. A window left out is not necessarily slow.

    Args:
        paces: of the complete windows after the first one of the run.
    """
    every = sorted(paces, key=lambda pace: (pace.step_ns, pace.window))
    # Step-aligned means are no carry-over ones, and one such window would have all others compared like it.
    every = [pace for pace in every if pace.is_carried] or every
    ordered = [pace for pace in every if not pace.has_late_ranks] or every
    if not ordered:
        return None
    ordered = [pace for pace in ordered if pace.kind == ordered[0].kind]
    usual = _usual_noise(pace for pace in every if pace.kind == ordered[0].kind)
    if usual is None or ordered[0].noise is None:  # too short to estimate noise: only the fastest
        return HealthyWindows((ordered[0].window,), None)
    spread = _spread(ordered, usual)
    healthy = _similar(ordered, usual, spread, min_effect)
    again = _spread(healthy, usual)
    again = replace(again, ns=again.ns / _KEPT_SPREAD)
    if again.windows and again.ns < _MUCH_NARROWER * spread.ns:  # slow windows had enlarged it
        spread = again
        healthy = _similar(ordered, usual, spread, min_effect)
    numbers = sorted(pace.window for pace in healthy)
    return HealthyWindows(tuple(numbers[:MOST_WINDOWS]), usual, spread)


def _similar(
    ordered: Sequence[WindowPace], usual: StepNoise, spread: WindowSpread, min_effect: float
) -> list[WindowPace]:
    """Return the windows that differ from the fastest ones by no more than noise, the fastest first.

    Args:
        ordered: the fastest first. usual: noise of the run's steps. spread: of window means beyond it.
    """
    healthy: list[WindowPace] = []
    total, steps = 0.0, 0
    for pace in ordered:
        if pace.noise is None:
            continue
        if healthy and pace.step_ns - total / steps >= min_effect / 2 * total / steps:
            error = difference_error(pace.noise, usual, steps, spread)
            # The fastest of many windows are fast by chance, the more so the fewer they are.
            if pace.step_ns - total / steps >= error.margin(DOUBTFUL * len(healthy) / len(ordered)):
                break
        healthy.append(pace)
        total += pace.step_ns * pace.noise.steps
        steps += pace.noise.steps
    return healthy


def _spread(paces: Sequence[WindowPace], usual: StepNoise) -> WindowSpread:
    """Return how far the means of a run's windows differ beyond the noise of steps, from its earliest
    ones."""
    earliest = sorted(paces, key=lambda pace: pace.window)[:NOISE_WINDOWS]
    known = [(pace.step_ns, pace.noise.steps) for pace in earliest if pace.noise is not None]
    if not known:
        return WindowSpread()
    means, steps = zip(*known, strict=True)
    return window_spread(means, usual, sum(steps) // len(steps))


def _usual_noise(paces: Iterable[WindowPace]) -> StepNoise | None:
    """Return the noise of a run's steps, from its earliest windows.

    Slow windows count too: a difference between neighbouring steps does not depend on how long both are.
    """
    earliest = sorted(paces, key=lambda pace: pace.window)[:NOISE_WINDOWS]
    noises = [pace.noise for pace in earliest if pace.noise is not None]
    return pooled(noises) if noises else None


def pooled_reference(
    windows: Sequence[Reference], noise: StepNoise | None = None, spread: WindowSpread = _NO_SPREAD
) -> Reference:
    """Return the mean of several healthy windows, weighted by their steps.

    The window nearest to the mean represents them where one window is needed.

    Args:
        noise: of the run's steps; that of these windows if None.
        spread: of the run's window means beyond that noise.
    """
    weights = [one.steps for one in windows]
    noises = [one.noise for one in windows if one.noise is not None]
    noise = noise or (pooled(noises) if noises else None)

    def mean(values: Sequence[float], weights: Sequence[int] = weights) -> float:
        return math.fsum(map(operator.mul, values, weights)) / math.fsum(weights)

    def by_stage(parts: Sequence[dict[str, float]]) -> dict[str, float]:
        known = [(part, weight) for part, weight in zip(parts, weights, strict=True) if part]
        known_weights = [weight for _, weight in known]
        stages = known[0][0] if known else {}
        return {stage: mean([part[stage] for part, _ in known], known_weights) for stage in stages}

    carried = [one.carry_advance_ns for one in windows]
    steps_ns = [one.step_time_ns for one in windows]
    if any(carried) and not all(carried):  # means of two frontiers are no mean of either
        steps_ns = [math.fsum(one.advance_ns.values()) for one in windows]
    step_ns = mean(steps_ns)
    order = [(abs(own_ns - step_ns), one.window) for own_ns, one in zip(steps_ns, windows, strict=True)]
    nearest = windows[order.index(min(order))]
    return replace(
        nearest,
        step_time_ns=step_ns,
        # Windows that their ranks reduced have no typical times.
        typical_ns=by_stage([one.typical_ns for one in windows]),
        advance_ns=by_stage([one.advance_ns for one in windows]),
        carry_advance_ns=by_stage([one for one in carried if one]) if all(carried) else None,
        steps=sum(weights),
        windows=tuple(sorted(one.window for one in windows)),
        noise=noise,
        between_ns=spread.ns,
        between_windows=spread.windows,
        pipeline=pooled_past([one.pipeline for one in windows], weights),
    )


def healthy_in_run(diagnoses: Iterable[Diagnosis]) -> HealthyWindows | None:
    """Return the healthy windows of one run, among complete ones after the first (§12, §17), or None."""
    ordered = sorted(diagnoses, key=lambda diagnosis: diagnosis.window)
    complete = [diagnosis for diagnosis in ordered[1:] if is_complete(diagnosis)]
    min_effect = complete[0].gates.min_effect if complete else 0.0
    return healthy_windows(map(WindowPace.of, complete), min_effect)


def is_complete(diagnosis: Diagnosis) -> bool:
    """Return whether a window is complete, so that it may be a healthy one unless it is the run's first
    (§12).

    **choice** Complete: closed full, nothing missing, usable shares, no limited telemetry.
    """
    whole = diagnosis.closed_by == "full" and diagnosis.gather_ok and not diagnosis.missing_ranks
    return whole and diagnosis.shares is not None and "telemetry_limited" not in diagnosis.label_names
