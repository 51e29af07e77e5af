"""Run all of KAIR's stages on one window's events: which rank, which operator, why."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from sfapp.model import Operators, Window, broad_stage
from sfapp.operators.blame import Blame, blame
from sfapp.operators.cohorts import Roles, cohorts_of
from sfapp.operators.outliers import Outliers, outliers
from sfapp.operators.rank_similarity import RankSimilarity, rank_similarity
from sfapp.operators.stage_events import STAGE_NOTE, of_ranks, operators_of


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """Results of KAIR's stages for one window.

    Attributes:
        source: what was analysed: ``operators`` of a trace, or ``stages`` of a packet.
        note: for stages, how their events were made; else empty.
        comparable_ranks: number of comparable ranks: all ranks, or those of the largest role.
    """

    source: Literal["operators", "stages"]
    note: str
    comparable_ranks: int
    operators: Operators
    similarity: RankSimilarity
    outliers: Outliers
    blame: Blame


def examine(operators: Operators, roles: Roles | None = None) -> Findings:
    """Run all stages on operator events.

    Args:
        roles: the role of each rank, if they differ: ranks are compared within a role.
    """
    return _examine(operators, "operators", "", roles)


def examine_window(
    operators: Operators | None, window: Window, wait_stages: Collection[str] = ()
) -> Findings:
    """Run all stages on the operator events of a window's ranks, or else on its recorded stages.

    Args:
        operators: events of all ranks, None if there are none; stages are used if none are of the window's
            ranks.
        window: the window of the ranks to compare.
        wait_stages: recorded stages in which ranks wait for each other, by the verdict.

    Raises:
        WindowError: as ``operators_of``.
    """
    events = None if operators is None else of_ranks(operators, window)
    if events is not None and len(events):
        return examine(events, _roles(window))
    return examine_stages(window, {broad_stage(stage) for stage in wait_stages})


def examine_stages(window: Window, sync_stages: Collection[str] = ()) -> Findings:
    """Run all stages on a packet's stages, if there are no operator events (``operators_of``).

    Raises:
        WindowError: as ``operators_of``.
    """
    return _examine(operators_of(window, sync_stages), "stages", STAGE_NOTE, _roles(window))


def _roles(window: Window) -> Roles:
    return dict(zip(window.ranks.rank, window.ranks.role, strict=True))


def _examine(
    operators: Operators, source: Literal["operators", "stages"], note: str, roles: Roles | None
) -> Findings:
    cohorts = cohorts_of(operators, roles)
    return Findings(
        source=source,
        note=note,
        comparable_ranks=cohorts.comparable_ranks,
        operators=operators,
        similarity=rank_similarity(operators, roles=roles),
        outliers=outliers(operators, cohorts),
        blame=blame(operators, cohorts),
    )
