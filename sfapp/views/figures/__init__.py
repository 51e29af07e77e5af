"""Every plot as a plain Plotly figure: ``{"data": […], "layout": {…}, "config": {…}}``.

Each module draws one plot, or a few that belong together, and declares them as ``PlotSpec`` constants, which
``sfapp.views.plot_registry.PLOTS`` finds. ``layout.meta`` holds ``title``, ``subtitle``, ``alt`` and
``notes`` as plain text for the card around the plot.
"""

from sfapp.views.figures.base import Figure, plain
from sfapp.views.figures.draw import draw_plot, findings_plot, window_plot, zoomed_axes
from sfapp.views.figures.heatmap import QUANTITY_WORDS
from sfapp.views.figures.node import stragglers, straggling_nodes
from sfapp.views.figures.notes import notes_in, with_notes
from sfapp.views.figures.rival_rules import RULE_NAMES

__all__ = [
    "QUANTITY_WORDS",
    "RULE_NAMES",
    "Figure",
    "draw_plot",
    "findings_plot",
    "notes_in",
    "plain",
    "stragglers",
    "straggling_nodes",
    "window_plot",
    "with_notes",
    "zoomed_axes",
]
