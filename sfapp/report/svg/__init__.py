"""Our figures as still drawings: for paper, for Markdown, for wherever there is no browser.

to_svg(figure) -> str    one SVG document: no script, nothing from outside, the same bytes every time
"""

from sfapp.report.svg.drawing import KINDS, WIDTH, to_svg

__all__ = ["KINDS", "WIDTH", "to_svg"]
