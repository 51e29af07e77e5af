"""The same verdicts and plots in Jupyter.

packets = sfapp.open("./packets")
packets.windows                         # a Polars frame
window = packets.window("my-run", 12)   # verdict card and frontier plot
window.figures.crossings(step=40)       # a Plotly figure
window.explore()                        # move the thresholds, see the verdict move
"""

from sfapp.notebook.packets import Packets, open_packets
from sfapp.notebook.window import Figures, WindowView

open = open_packets

__all__ = ["Figures", "Packets", "WindowView", "open"]
