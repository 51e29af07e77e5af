"""Draw the last judged step of a running job as a swim-lane (accounting.md §19)."""

from __future__ import annotations

from sfapp.accounting import RollingVerdict
from sfapp.views.figures.base import Figure, empty_figure
from sfapp.views.figures.swim_lane import swim_lane
from sfapp.views.plot_registry import LiveInput, Placement, PlotSpec

LAST_STEP = PlotSpec(
    name="live_swim_lane",
    title="Last step: work and waiting by rank",
    help=(
        "One row per rank, or for several ranks together; time runs to the right. Solid blocks are a rank's "
        "own time in a stage, hatched ones are time in which it waits for other ranks. Arrows lead from the "
        "rank that arrives last to those that it blocks."
    ),
    source=LiveInput,
    build=lambda given, dark: live_swim_lane(given.rolling, run=given.run, dark=dark),
    reads=("rolling",),
    tabs=(Placement("live", 25),),
    report=None,
    notebook=None,
    applies=lambda given: given.rolling is not None and given.rolling.measures is not None,
)


def live_swim_lane(rolling: RollingVerdict | None, *, run: str = "", dark: bool = False) -> Figure:
    """Return the lanes of the last step that was judged, with the ranks that the verdict names."""
    if rolling is None or rolling.measures is None or rolling.diagnosis is None:
        return empty_figure("no step has been judged yet", dark=dark, title=LAST_STEP.title, height=220)
    step = int(rolling.measures.step_N[-1])
    drawn = swim_lane(rolling.measures, rolling.diagnosis, step, dark=dark)
    drawn["layout"]["meta"]["title"] = LAST_STEP.title
    # Each update is another step, which needs the whole axis.
    drawn["layout"]["uirevision"] = f"live/{run}/swim_lane"
    return drawn
