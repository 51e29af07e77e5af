"""Convert a packet's stages to operator events, so that the same analysis runs without a trace."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.errors import WindowError
from sfapp.model import ALL_RANKS, Lane, Operators, Window, broad_stage, stage_category
from sfapp.model.arrays import to_numpy
from sfapp.model.operators import COLLECTIVE, DATA, NONE, STAGE

LANE = "steps"
"""Name of the single lane of each rank, which holds its stages in order."""

STAGE_NOTE = (
    "derived from stage durations: each rank's stages laid end to end from a common begin; delays from "
    "before the window and events within a stage are unknown"
)


def of_ranks(operators: Operators, window: Window) -> Operators:
    """Return the events of a window's ranks; all events if the window is not cut to a group."""
    if window.group == ALL_RANKS:
        return operators
    return operators.select(np.isin(operators.rank_E, window.ranks.rank))


def events_of(
    operators: Operators | None, window: Window, ranks: Collection[int] = ()
) -> tuple[Operators, str]:
    """Return the operator events of a window's ranks, or else its stages with a sentence on their limits.

    Args:
        operators: events of all ranks, None if the packet has no operator trace.
        ranks: ranks whose stages are converted; all of the window if empty.

    Raises:
        WindowError: as ``operators_of``.
    """
    if operators is not None:
        return of_ranks(operators, window), ""
    return operators_of(window, ranks=ranks), f"No operator trace for this window: {STAGE_NOTE}."


def operators_of(window: Window, sync_stages: Collection[str] = (), ranks: Collection[int] = ()) -> Operators:
    """Convert each stage of each step and rank to one event; stages that took no time are left out.

    Args:
        sync_stages: broad stages at whose end all ranks wait for each other (the measured waits of the
            accounting); their last occurrence in a step synchronises the ranks like a collective.
        ranks: the ranks to convert; all of the window if empty.

    Raises:
        WindowError: the window holds the rows of a few ranks only, or no stage took any time.
    """
    if window.reduced is not None:
        raise WindowError("a reduced window has the rows of a few ranks only, too few to compare")
    columns = [place for place, rank in enumerate(window.ranks.rank) if not ranks or rank in ranks]
    if not columns:
        raise WindowError("no events of these steps and ranks: the window has none of the ranks")
    taken = columns if ranks else slice(None)
    duration_NRS = to_numpy(window.duration_SNR)[:, :, taken].transpose(1, 2, 0)
    steps, shown, stages = duration_NRS.shape
    spent_RX = duration_NRS.transpose(1, 0, 2).reshape(shown, steps * stages)
    end_RX = spent_RX.cumsum(axis=1)
    sync_S = np.zeros(stages, np.bool_)
    for broad in sync_stages:
        places = [place for place, stage in enumerate(window.stages) if broad_stage(stage) == broad]
        sync_S[places[-1:]] = True
    category_S = np.asarray(
        [DATA if stage_category(stage) == "data" else STAGE for stage in window.stages], np.int8
    )
    category_S[sync_S] = COLLECTIVE
    order_S = np.cumsum(sync_S) - 1
    sequence_NS = np.arange(steps)[:, None] * max(int(sync_S.sum()), 1) + order_S
    names = tuple(dict.fromkeys(window.stages))
    kept = (spent_RX > 0).ravel()
    if not kept.any():
        raise WindowError("no stage of this window took any time")

    def column(value_NS: npt.NDArray[Any]) -> npt.NDArray[Any]:
        full = np.broadcast_to(value_NS, (shown, steps, stages)).reshape(-1)
        return np.asarray(full[kept])

    return Operators.of(
        names=names,
        name_E=column(np.arange(stages)),
        category_E=column(category_S),
        lanes=[Lane(window.ranks.rank[place], LANE, False) for place in columns],
        lane_E=np.repeat(np.arange(shown), steps * stages)[kept],
        start_ns_E=(end_RX - spent_RX).ravel()[kept],
        end_ns_E=end_RX.ravel()[kept],
        step_E=column(window.step_N[:, None]),
        groups=("all",) if sync_S.any() else (),
        group_E=column(np.where(sync_S, 0, NONE)),
        sequence_E=column(np.where(sync_S, sequence_NS, NONE)),
    )
