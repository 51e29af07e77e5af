"""A comparison in a notebook: sentences, table and plots."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go
import polars as pl

from sfapp.accounting import Comparison
from sfapp.notebook.card import NOT_TYPESET
from sfapp.notebook.window import as_plotly
from sfapp.terminal import printable
from sfapp.views import comparison_tables
from sfapp.views import text as words
from sfapp.views.html_text import html_text
from sfapp.views.plot_registry import PLOTS, ComparisonInput


@dataclass(frozen=True, slots=True, eq=False)
class ComparisonView:
    """Comparison of two or three windows or whole runs.

    Attributes:
        comparison: the numbers, exact; ``comparison.document()`` is their JSON.
    """

    comparison: Comparison

    @property
    def stages(self) -> pl.DataFrame:
        """One row per stage and one for their sum, in ns per step."""
        columns = [column.field for column in comparison_tables.stage_columns(self.comparison)]
        rows = comparison_tables.stage_rows(self.comparison)
        return pl.DataFrame([{name: row.get(name) for name in columns} for row in rows])

    def plot(self, name: str = "comparison_waterfall") -> go.Figure:
        """Return one of the plots ``comparison_waterfall``, ``comparison_bars``, ``comparison_spread``."""
        return as_plotly(PLOTS[name].build(ComparisonInput(self.comparison), False))

    def __repr__(self) -> str:
        summary = words.comparison(self.comparison)
        head = ", ".join(filter(None, (f"{summary.kicker}: {summary.headline}", summary.rest)))
        return "\n".join(map(printable, (head, *summary.explanation, *summary.caveats)))

    def _ipython_display_(self) -> None:
        """Show the sentences and the waterfall from one side to the other; plain text in frontends without
        rich output."""
        from IPython.display import HTML, display

        summary = words.comparison(self.comparison)
        lines = (
            f'<div style="opacity:.7">{html_text(summary.kicker)}</div>',
            f'<div style="font-size:1.4em"><b>{html_text(summary.headline)}</b> '
            f"{html_text(summary.rest)}</div>",
            f"<div>{html_text(' '.join((*summary.explanation, *summary.caveats)))}</div>",
        )
        style = "line-height:1.5;max-width:72em"
        display(HTML(f'<div {NOT_TYPESET} style="{style}">{"".join(lines)}</div>'))
        display(self.plot())
