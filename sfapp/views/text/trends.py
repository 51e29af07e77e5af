"""Whether runs became slower, in sentences (accounting.md §23)."""

from __future__ import annotations

from sfapp.model.trends import BY_DAY, Difference, TrendGroup, Trends, TrendVerdict
from sfapp.views import format

DIFFERENCE_WORDS: dict[TrendVerdict, str] = {
    "slower": "slower",
    "faster": "faster",
    "none": "no difference beyond noise",
}

TOO_FEW = "too few comparable runs"

_MOST_NAMED = 3
_MOST = 10.0
"""Differences above this are shown as larger."""


def field_name(by: str) -> str:
    """Return how a field is called on screen."""
    return "Day" if by == BY_DAY else format.clip(by)


def trends_headline(trends: Trends) -> str:
    """Return the answer to "did it get slower?" in one or two sentences."""
    if not trends.groups:
        return (
            "No windows with a start." if trends.by == BY_DAY else f"No run states {field_name(trends.by)}."
        )
    compared = [group for group in trends.groups if group.step or group.lost]
    if not compared:
        return "Too few comparable runs to tell whether steps became slower."
    slower = [_slower(group, trends.by) for group in compared if _is(group.step, "slower")]
    losing = [_losing(group) for group in compared if _is(group.lost, "slower")]
    if slower or losing:
        return " ".join(_most(slower) + _most(losing))
    if any(_is(group.step, "faster") for group in compared):
        return f"No {_one(trends.by)} is slower; some are faster."
    return f"No {_one(trends.by)} differs beyond noise in its healthy step."


def _is(found: Difference | None, verdict: TrendVerdict) -> bool:
    return found is not None and found.verdict == verdict


def _one(by: str) -> str:
    return "day" if by == BY_DAY else f"value of {format.clip(by)}"


def _most(sentences: list[str]) -> list[str]:
    left = len(sentences) - _MOST_NAMED
    return [*sentences[:_MOST_NAMED], *([f"{left:,} more below."] if left > 0 else [])]


def _slower(group: TrendGroup, by: str) -> str:
    others = "on earlier days" if by == BY_DAY else "with other values"
    assert group.step is not None
    runs = "the same runs" if group.step.same_runs else "comparable runs"
    where = f"those of {runs} {others}"
    return f"{format.clip(group.value)}: healthy steps differ by {difference_text(group.step)} from {where}."


def _losing(group: TrendGroup) -> str:
    assert group.lost is not None
    return f"{format.clip(group.value)}: more time is lost, {points_text(group.lost)}."


def difference_text(found: Difference | None) -> str:
    """Return ``+6.0 % (+5.1 to +6.9 %)``: a relative difference with its interval."""
    if found is None:
        return TOO_FEW
    return f"{_signed(found.estimate)} % ({_signed(found.low)} to {_signed(found.high)} %)"


def points_text(found: Difference | None) -> str:
    """Return the same of shares, in percentage points."""
    if found is None:
        return TOO_FEW
    return f"{_signed(found.estimate)} points ({_signed(found.low)} to {_signed(found.high)})"


def _signed(fraction: float) -> str:
    if fraction > _MOST:
        return f"over +{100 * _MOST:,.0f}"
    text = f"{abs(100 * fraction):,.1f}"
    return text if text == "0.0" else f"{'−' if fraction < 0 else '+'}{text}"


def lost_share(group: TrendGroup) -> str:
    """Return the share of a group's rank-hours that was lost."""
    return format.percent(group.lost_hours / group.rank_hours, 1) if group.rank_hours else format.ABSENT


def basis_text(trends: Trends) -> str:
    """Return what is compared with what, and what the intervals assume."""
    with_what = "earlier days" if trends.by == BY_DAY else "other values"
    return (
        f"Each is compared with {with_what}, in runs of the same world size, wrapper and stages. Intervals "
        "hold together at 95 %; a run counts once, however long it is, and runs are taken to be independent."
    )


def left_out_text(trends: Trends) -> str:
    """Return what the table leaves out; empty if nothing."""
    parts = []
    more = trends.total_groups - len(trends.groups)
    if more > 0:
        what = ("earlier day", "earlier days") if trends.by == BY_DAY else ("other value", "other values")
        parts.append(f"{format.counted(more, *what)} not shown")
    if trends.unstated_runs:
        missing = "a start" if trends.by == BY_DAY else field_name(trends.by)
        parts.append(f"{format.counted(trends.unstated_runs, 'run')} without {missing}")
    return "; ".join(parts)
