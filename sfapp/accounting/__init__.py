"""Pure numbers: frontier, carry-over, waits, gains, routing, labels, suspect. Reads no file, clock or
environment.

measure(window, baseline)  ->  Measures    walks the matrix, once
judge(measures, gates)     ->  Diagnosis   gates only
diagnose(window, gates)    ->  Diagnosis   both
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfapp.accounting.aim import delta_ns, with_reference
from sfapp.accounting.carry_over import CarryOver
from sfapp.accounting.compare import compare
from sfapp.accounting.comparison_result import CAVEATS, LETTERS, Comparison
from sfapp.accounting.comparison_sides import Account, Change, Side, Spread, StageLeader
from sfapp.accounting.frontier import frontier, step_prefix, tie_set
from sfapp.accounting.judge import judge
from sfapp.accounting.layout_table import layout_axes, layout_table
from sfapp.accounting.leaders import Handover
from sfapp.accounting.measures import Measures, measure, measure_many
from sfapp.accounting.nodes import CrossNode, StepTimes, cross_node, paced_steps, step_times
from sfapp.accounting.noise import WindowSpread
from sfapp.accounting.overflow import check_totals
from sfapp.accounting.pipeline_times import has_pipeline
from sfapp.accounting.reference import (
    HealthyWindows,
    WindowPace,
    healthy_in_run,
    healthy_windows,
    is_complete,
    pooled_reference,
    reference_of,
)
from sfapp.accounting.rolling import (
    ROLLING_KINDS,
    ROLLING_STEPS,
    RankDelays,
    RollingKind,
    RollingVerdict,
    StepReports,
    rolling_verdict,
    rolling_window,
    with_age,
)
from sfapp.accounting.rolling_history import Onset, RollingHistory
from sfapp.accounting.routing import rivals
from sfapp.accounting.run_waits import (
    RunStages,
    RunWaits,
    WaitFacts,
    own_wait_stages,
    run_waits,
    waits_of_windows,
)
from sfapp.accounting.runs import aligned, diagnose_runs, measured
from sfapp.accounting.sensitivity import GateChange, nearest_changes
from sfapp.accounting.shared_attributes import LateInWindow, shared_over_windows
from sfapp.accounting.verdict_map import (
    Region,
    RoutingInterval,
    StageVerdict,
    VerdictMap,
    routing_intervals,
    stage_verdict,
    verdict_map,
)
from sfapp.accounting.what_if import WhatIf, suspect_fix, what_if, what_if_of
from sfapp.model import (
    ALL_RANKS,
    DEFAULT_FRONTIER,
    Baseline,
    Diagnosis,
    Frontier,
    Gates,
    Reference,
    Window,
)

if TYPE_CHECKING:
    import torch

__all__ = [
    "CAVEATS",
    "LETTERS",
    "ROLLING_KINDS",
    "ROLLING_STEPS",
    "Account",
    "CarryOver",
    "Change",
    "Comparison",
    "CrossNode",
    "GateChange",
    "Handover",
    "HealthyWindows",
    "LateInWindow",
    "Measures",
    "Onset",
    "RankDelays",
    "Region",
    "RollingHistory",
    "RollingKind",
    "RollingVerdict",
    "RoutingInterval",
    "RunStages",
    "RunWaits",
    "Side",
    "Spread",
    "StageLeader",
    "StageVerdict",
    "StepReports",
    "StepTimes",
    "VerdictMap",
    "WaitFacts",
    "WhatIf",
    "WindowPace",
    "WindowSpread",
    "aligned",
    "check_totals",
    "compare",
    "cross_node",
    "delta_ns",
    "diagnose",
    "diagnose_runs",
    "frontier",
    "has_pipeline",
    "healthy_in_run",
    "healthy_windows",
    "is_complete",
    "judge",
    "layout_axes",
    "layout_table",
    "measure",
    "measure_many",
    "measured",
    "nearest_changes",
    "own_wait_stages",
    "paced_steps",
    "pooled_reference",
    "reference_of",
    "rivals",
    "rolling_verdict",
    "rolling_window",
    "routing_intervals",
    "run_waits",
    "shared_over_windows",
    "stage_verdict",
    "step_prefix",
    "step_times",
    "suspect_fix",
    "tie_set",
    "verdict_map",
    "waits_of_windows",
    "what_if",
    "what_if_of",
    "with_age",
    "with_reference",
]

FrontierName = Frontier


def diagnose(
    window: Window,
    gates: Gates | None = None,
    baseline: Baseline = "cohort_median",
    reference: Window | Reference | None = None,
    *,
    frontier: FrontierName = DEFAULT_FRONTIER,
    group: str = ALL_RANKS,
    device: torch.device | str | None = None,
) -> Diagnosis:
    """Diagnose one window alone.

    The run's other windows also show where its ranks wait (§10). This function does not use them;
    ``diagnose_runs`` does, as does every surface that has all windows of the run.

    Args:
        window: as read from packets.
        gates: thresholds; the defaults if None.
        baseline: the durations that stages are clipped to for their gains (accounting.md §4).
        reference: the run's healthy window, for delta, suspect and the baseline ``reference``.
        frontier: the one whose shares decide routing and labels; ``step`` is the paper's (§5, §10). If step
            numbers have gaps, there is no carry-over frontier and the step-aligned one is used.
        group: ``all``, ``role:NAME`` or ``node:K``; a reference window is cut to the same group.
        device: where to process the matrix; where it already is if None.

    Raises:
        WindowNotFoundError: the group has no ranks here.
        WindowError: the durations cannot be added up, or the baseline has no reference.
    """
    chosen = window if group == ALL_RANKS else window.of_group(group)
    if device is not None:
        chosen = chosen.to(device)
    if isinstance(reference, Window):
        healthy = reference if group == ALL_RANKS else reference.of_group(group)
        reference = reference_of(measure(healthy))
    return judge(measure(chosen, baseline, reference), gates, frontier, reference)
