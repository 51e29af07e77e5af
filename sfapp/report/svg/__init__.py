"""Draw figures as SVG, for PDF and Markdown: no script, no external resources, reproducible to the byte."""

from sfapp.report.svg.drawing import KINDS, WIDTH, to_svg

__all__ = ["KINDS", "WIDTH", "to_svg"]
