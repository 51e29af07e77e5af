"""Compare windows or whole runs: an exact split of the change in step time (accounting.md §14).

Needs only diagnoses, so stored ones can be compared without their matrices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from sfapp.accounting.comparison_result import CAVEATS, LETTERS, Comparison
from sfapp.accounting.comparison_sides import Account, Side, StageLeader, WindowAccount
from sfapp.errors import ComparisonError
from sfapp.model import Diagnosis


def compare(
    a: Diagnosis | Sequence[Diagnosis],
    b: Diagnosis | Sequence[Diagnosis],
    c: Diagnosis | Sequence[Diagnosis] | None = None,
) -> Comparison:
    """Compare two windows or whole runs; a third one shows the state after a fix.

    Args:
        a, b, c: one diagnosis for a window, all diagnoses of one run for the whole run; judged with the
        same options.

    Raises:
        ComparisonError: stages, group, gates or frontiers differ, or a side is empty or holds several runs.
    """
    given = [found for found in (a, b, c) if found is not None]
    diagnoses = [(found,) if isinstance(found, Diagnosis) else tuple(found) for found in given]
    for letter, found in zip(LETTERS, diagnoses, strict=False):
        _require_one_run(letter, found)
    _require_comparable(
        [(letter, one) for letter, found in zip(LETTERS, diagnoses, strict=False) for one in found]
    )
    sides = [
        _side(found, whole=not isinstance(one, Diagnosis))
        for one, found in zip(given, diagnoses, strict=True)
    ]
    every = [one for found in diagnoses for one in found]
    carried = all(one.carry_over_advances_ns is not None for one in every)
    return Comparison(
        a=sides[0],
        b=sides[1],
        c=sides[2] if len(sides) > 2 else None,
        split_on="carry_over" if carried else "step",
        frontier="carry_over" if all(one.frontier == "carry_over" for one in every) else "step",
        caveats=_caveats(every, sides, carried),
    )


def _require_one_run(letter: str, diagnoses: Sequence[Diagnosis]) -> None:
    if not diagnoses:
        raise ComparisonError(f"{letter} has no windows: name a window or a run that has some")
    runs = sorted({diagnosis.run_id for diagnosis in diagnoses})
    if len(runs) > 1:
        raise ComparisonError(
            f"{letter} holds windows of {len(runs)} runs ({', '.join(map(repr, runs[:4]))}): name one of them"
        )


def _require_comparable(named: Sequence[tuple[str, Diagnosis]]) -> None:
    """Check that all windows have the same stages and were judged in the same way."""
    first_letter, first = named[0]
    for letter, other in named[1:]:
        places = f"{_place(first_letter, first)} and {_place(letter, other)} cannot be compared"
        if other.recorded_stages != first.recorded_stages:
            what = _stage_difference(first.recorded_stages, other.recorded_stages)
            raise ComparisonError(
                f"{places}: their stages differ ({what}), so a change could not be split over them; "
                "compare windows that were recorded with the same ordered list of stages"
            )
        if other.group != first.group:
            raise ComparisonError(
                f"{places}: one shows group {first.group!r}, the other {other.group!r}; "
                "diagnose the same group on both"
            )
        if (other.gates, other.baseline) != (first.gates, first.baseline):
            raise ComparisonError(
                f"{places}: they were judged under other gates or another baseline; judge both with the "
                f"same ones"
            )


def _place(letter: str, diagnosis: Diagnosis) -> str:
    return f"{letter} (run {diagnosis.run_id!r}, window {diagnosis.window})"


def _stage_difference(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """Describe in a few words how two lists of stages differ."""
    only_ours = [stage for stage in ours if stage not in theirs]
    only_theirs = [stage for stage in theirs if stage not in ours]
    parts = []
    if only_ours:
        parts.append(f"only the first has {', '.join(map(repr, only_ours[:3]))}")
    if only_theirs:
        parts.append(f"only the second has {', '.join(map(repr, only_theirs[:3]))}")
    if not parts:
        place = next(at for at, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
        parts.append(f"the same stages in another order, from {ours[place]!r} and {theirs[place]!r} on")
    return "; ".join(parts)


def _suspect(diagnoses: Sequence[Diagnosis]) -> tuple[str, int | None] | None:
    """Return the stage and rank that all windows which need attention point to; None if they differ."""
    found = {
        (one.aim.stage, one.aim.rank) for one in diagnoses if one.aim is not None and one.needs_attention
    }
    return found.pop() if len(found) == 1 else None


def _side(diagnoses: Sequence[Diagnosis], *, whole: bool) -> Side:
    ordered = sorted(diagnoses, key=lambda diagnosis: diagnosis.window)
    first = ordered[0]
    windows = tuple(_window_account(diagnosis) for diagnosis in ordered)
    carried = [window.carry_over for window in windows if window.carry_over is not None]
    labels = Counter(label for diagnosis in ordered for label in dict.fromkeys(diagnosis.label_names))
    severities = [diagnosis.severity for diagnosis in ordered if diagnosis.severity is not None]
    return Side(
        run_id=first.run_id,
        window=None if whole else first.window,
        group=first.group,
        stages=first.stages,
        recorded_stages=first.recorded_stages,
        windows=windows,
        step=_together([window.step for window in windows]),
        carry_over=_together(carried) if len(carried) == len(windows) else None,
        ranks=tuple(sorted({diagnosis.ranks for diagnosis in ordered})),
        labels=dict(labels),
        leaders={stage: _leader(ordered, stage) for stage in first.stages},
        suspect=_suspect(ordered),
        severity=max(severities, default=None),
        has_shares=all(diagnosis.shares is not None for diagnosis in ordered),
        gates=first.gates,
        waits=_waits(ordered, len(carried)),
        waits_on="carry_over" if carried else "step",
    )


def _waits(diagnoses: Sequence[Diagnosis], carried: int) -> dict[str, int]:
    """Return Σ a_wait by stage, ns, for stages whose a_wait every window has.

    Args:
        carried: how many windows have a carry-over frontier, to which their a_wait refers. If only some have
            one, their a_wait cannot be added up and the result is empty.
    """
    if carried not in (0, len(diagnoses)):
        return {}
    known = [diagnosis.wait_advances_ns or {} for diagnosis in diagnoses]
    return {
        stage: sum(waits[stage] for waits in known)
        for stage in diagnoses[0].stages
        if all(stage in waits for waits in known)
    }


def _window_account(diagnosis: Diagnosis) -> WindowAccount:
    carried = diagnosis.carry_over_advances_ns
    return WindowAccount(
        diagnosis.window,
        Account(diagnosis.steps, diagnosis.advances_ns),
        None if carried is None else Account(diagnosis.steps, carried),
        diagnosis.severity,
        diagnosis.needs_attention,
        diagnosis.noise,
    )


def _together(accounts: Sequence[Account]) -> Account:
    """Add up accounts; each step counts once."""
    stages = accounts[0].advance_ns
    totals = {stage: sum(account.advance_ns[stage] for account in accounts) for stage in stages}
    return Account(sum(account.steps for account in accounts), totals)


def _leader(diagnoses: Sequence[Diagnosis], stage: str) -> StageLeader | None:
    led: Counter[tuple[int, str | None]] = Counter()
    eligible = 0
    for diagnosis in diagnoses:
        for culprit in diagnosis.culprits:
            if culprit.stage == stage and culprit.rank is not None:
                eligible += culprit.eligible_steps
                led[culprit.rank, culprit.hostname] += round(culprit.share * culprit.eligible_steps)
    if not eligible:
        return None
    (rank, hostname), steps = max(led.items(), key=lambda item: (item[1], -item[0][0]))
    return StageLeader(rank, hostname, steps, eligible)


def _same(one: Side, other: Side) -> bool:
    """Return whether two sides hold the same windows, by content: two folders may hold runs of the same
    name."""
    return (one.run_id, one.windows) == (other.run_id, other.windows)


def _caveats(every: Sequence[Diagnosis], sides: Sequence[Side], carried: bool) -> tuple[str, ...]:
    reduced = ["reduced_rows" in diagnosis.reasons for diagnosis in every]
    holds = {
        "rank_counts_differ": len({side.ranks for side in sides}) > 1,
        "steps_not_consecutive": not carried,
        "reduced_rows": carried and any(reduced) and not all(reduced),
        "telemetry_limited": any("telemetry_limited" in diagnosis.label_names for diagnosis in every),
        "denominator_floor": not all(side.has_shares for side in sides),
        "same_windows": any(_same(one, other) for one, other in combinations(sides, 2)),
    }
    return tuple(name for name in CAVEATS if holds.get(name))  # ``Comparison.of_kept_rows`` adds another.
