"""Verdicts and plots in Jupyter, the same as in the app.

packets = sfapp.open("./packets")
packets.windows                         # a Polars frame
window = packets.window("my-run", 12)   # verdict card and frontier plot
window.figures.crossings(step=40)       # a Plotly figure
window.explore()                        # move the thresholds, see the verdict move
packets.compare(("my-run", 11), ("my-run", 12))      # what changed, stage by stage

sfapp.examples().window("paper-displaced-wait", 0)   # the paper's first figure, as a worked example
"""

from sfapp.notebook.comparison import ComparisonView
from sfapp.notebook.packets import Packets, PacketsDiffer, RowsThinned, open_examples, open_packets
from sfapp.notebook.window import Figures, WindowView

open = open_packets
examples = open_examples

__all__ = [
    "ComparisonView",
    "Figures",
    "Packets",
    "PacketsDiffer",
    "RowsThinned",
    "WindowView",
    "examples",
    "open",
]
