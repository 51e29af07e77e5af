"""Every plot as a plain Plotly figure: ``{"data": […], "layout": {…}, "config": {…}}``.

``layout.meta`` holds ``title``, ``subtitle``, ``alt`` and ``notes`` as plain text for the card around it.
"""

from sfapp.views.figures.ambiguity import ambiguity_plane
from sfapp.views.figures.base import Figure, plain
from sfapp.views.figures.blame import blame_path
from sfapp.views.figures.catalogue import (
    COMPARISON_PLOTS,
    FINDINGS_PLOTS,
    WINDOW_PLOTS,
    findings_plot,
    window_plot,
    zoomed_axes,
)
from sfapp.views.figures.collectives import collective_split
from sfapp.views.figures.compare import comparison_bars, comparison_spread, comparison_waterfall
from sfapp.views.figures.crossings import prefix_crossings
from sfapp.views.figures.frequency import operator_frequency
from sfapp.views.figures.frontier import frontier_steps
from sfapp.views.figures.handover import handover_matrix
from sfapp.views.figures.heatmap import QUANTITIES, QUANTITY_WORDS, Quantity, rank_step_heatmap
from sfapp.views.figures.history import run_history
from sfapp.views.figures.live import live_ranks, live_skew, live_steps, samples_over_time
from sfapp.views.figures.live_node import live_courses, live_layers, no_gpus
from sfapp.views.figures.node import node_ranks, node_skew, node_sparklines, stragglers, straggling_nodes
from sfapp.views.figures.notes import notes_in, with_notes
from sfapp.views.figures.operator_timeline import operator_timeline
from sfapp.views.figures.rank_similarity import straggler_distances, straggler_scores
from sfapp.views.figures.rival_rules import RULE_NAMES, rules
from sfapp.views.figures.routing import routing_pareto
from sfapp.views.figures.step_timeline import step_timeline
from sfapp.views.figures.verdict_map import routing_over_tau, verdict_regions
from sfapp.views.figures.window_timeline import window_timeline

__all__ = [
    "COMPARISON_PLOTS",
    "FINDINGS_PLOTS",
    "QUANTITIES",
    "QUANTITY_WORDS",
    "RULE_NAMES",
    "WINDOW_PLOTS",
    "Figure",
    "Quantity",
    "ambiguity_plane",
    "blame_path",
    "collective_split",
    "comparison_bars",
    "comparison_spread",
    "comparison_waterfall",
    "findings_plot",
    "frontier_steps",
    "handover_matrix",
    "live_courses",
    "live_layers",
    "live_ranks",
    "live_skew",
    "live_steps",
    "no_gpus",
    "node_ranks",
    "node_skew",
    "node_sparklines",
    "notes_in",
    "operator_frequency",
    "operator_timeline",
    "plain",
    "prefix_crossings",
    "rank_step_heatmap",
    "routing_over_tau",
    "routing_pareto",
    "rules",
    "run_history",
    "samples_over_time",
    "step_timeline",
    "straggler_distances",
    "straggler_scores",
    "stragglers",
    "straggling_nodes",
    "verdict_regions",
    "window_plot",
    "window_timeline",
    "with_notes",
    "zoomed_axes",
]
