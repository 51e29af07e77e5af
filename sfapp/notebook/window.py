"""One judged window in a notebook: its card, its figures, and the panel to explore it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from sfapp.accounting import Measures
from sfapp.model import Diagnosis, Operators, Reference, Window
from sfapp.model.view import OVERVIEW, Quantity, ViewState, Zoom
from sfapp.notebook import card
from sfapp.operators import Findings, examine_window
from sfapp.views import figures
from sfapp.views import text as words

if TYPE_CHECKING:
    import ipywidgets


def as_plotly(figure: figures.Figure) -> go.Figure:
    """The house's figure as a Plotly one, its title and subtitle in the drawing."""
    return go.Figure(figure["data"], titled(figure))


def titled(figure: figures.Figure) -> dict[str, Any]:
    """The layout with the words that elsewhere stand in the card around the plot."""
    layout: dict[str, Any] = figure["layout"]
    meta, margin = layout["meta"], layout.get("margin", {})
    # One text of two lines: Plotly lays a subtitle over its title where a plot is drawn out of sight first.
    said, more = figures.plain(meta["title"], 120), figures.plain(meta["subtitle"], 200)
    title = {
        "text": f'{said}<br><span style="font-size: 12px">{more}</span>' if more else said,
        "x": 0,
        "xref": "paper",
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        "pad": {"t": 12},
    }
    top = margin.get("t", 28) + 56
    return {**layout, "title": title, "margin": {**margin, "t": top}, "height": layout["height"] + 56}


@dataclass(frozen=True, slots=True)
class Figures:
    """The plots of a window as Plotly figures. Nothing is shown until the notebook shows what a cell returns.

    ``step`` is a logical step number; None takes the mean over the window.
    """

    measures: Measures
    diagnosis: Diagnosis
    dark: bool = False

    def frontier(self, step: int | None = None) -> go.Figure:
        """Where the step's time is first exposed: F over the stages, each rise with its leader."""
        return as_plotly(figures.frontier_steps(self.measures, self.diagnosis, step, dark=self.dark))

    def crossings(self, step: int | None = None, ranks: tuple[int, ...] = ()) -> go.Figure:
        """Every rank's prefix, the frontier above them, and who leads where; some ranks picked out."""
        return as_plotly(
            figures.prefix_crossings(self.measures, self.diagnosis, step, selected=ranks, dark=self.dark)
        )

    def steps(self, step: int | None = None) -> go.Figure:
        """Advances stacked per step; one step marked."""
        return as_plotly(figures.step_timeline(self.measures, self.diagnosis, step, dark=self.dark))

    def routing(self) -> go.Figure:
        """Shares in order, the cumulative line, τC and the routing set."""
        return as_plotly(figures.routing_pareto(self.diagnosis, dark=self.dark))

    def ambiguity(self) -> go.Figure:
        """Share against static gain, with γA and γG."""
        return as_plotly(figures.ambiguity_plane(self.diagnosis, dark=self.dark))

    def heatmap(self, stage: str | None = None, quantity: figures.Quantity = "duration") -> go.Figure:
        """A stage's duration, slack, lag or lead, rank by step; the aim's stage where None."""
        return as_plotly(
            figures.rank_step_heatmap(self.measures, self.diagnosis, stage, quantity, dark=self.dark)
        )

    def handovers(self) -> go.Figure:
        """Who took the lead from whom at each boundary."""
        return as_plotly(figures.handover_matrix(self.measures, self.diagnosis, dark=self.dark))

    def rules(self) -> go.Figure:
        """The five rival rules beside the frontier."""
        return as_plotly(figures.rules(self.diagnosis, dark=self.dark))


@dataclass(frozen=True, slots=True, eq=False)
class WindowView:
    """A window and the verdict on it.

    Attributes:
        window: all its ranks.
        measures: all that depends on the matrix, of the group that was asked for.
        diagnosis: the verdict, the same object that every other surface shows.
        reference: what it is compared with.
        read_operators: reads its operator events; None where there are none.
    """

    window: Window
    measures: Measures
    diagnosis: Diagnosis
    reference: Reference | None
    read_operators: Callable[[], Operators | None] = lambda: None

    @property
    def stragglers(self) -> Findings:
        """What KAIR says of the group's operators, or of its stages where no operator events lie beside the
        packet: which rank differs, in what, and why. Worked out at every call: keep it.

        Raises:
            PacketError: a file of operator events is damaged.
            WindowError: there are none, and the stages cannot be compared.
        """
        return examine_window(self.read_operators(), self.measures.window, self.diagnosis.wait_stages)

    @property
    def figures(self) -> Figures:
        """The plots."""
        return Figures(self.measures, self.diagnosis)

    def plot(
        self,
        name: str,
        *,
        step: int | None = None,
        ranks: tuple[int, ...] = (),
        stage: str | None = None,
        quantity: Quantity = "duration",
        tab: str = OVERVIEW,
        cause: int | None = None,
        operator: str | None = None,
        zoom: tuple[str, ...] = (),
    ) -> go.Figure:
        """One plot as the app and reports show it.

        Args:
            name: one of ``sfapp.views.figures.WINDOW_PLOTS``, or of ``FINDINGS_PLOTS``, which examine the
                window's operators first.
            ranks: picked out by their numbers.
            stage, quantity: of the heatmap.
            tab: ``node:K`` for the plots of a node.
            cause: position in ``stragglers.blame.causes``; operator: the one that is counted.
            zoom: ``PLOT.AXIS:LOW:HIGH`` each.
        """
        view = ViewState(
            step=step,
            ranks=ranks,
            stage=stage,
            quantity=quantity,
            tab=tab,
            cause=cause,
            operator=operator,
            zoom=tuple(map(Zoom.parse, zoom)),
        )
        if name in figures.FINDINGS_PLOTS:
            return as_plotly(figures.findings_plot(name, self.stragglers, self.diagnosis, view))
        return as_plotly(figures.window_plot(name, self.measures, self.diagnosis, view))

    def explore(self) -> ipywidgets.Widget:
        """A panel with the thresholds; moving one judges again and redraws. Needs a live kernel."""
        from sfapp.notebook.explore import Explorer  # widgets are of no use to scripts

        return Explorer(self).panel

    def __repr__(self) -> str:
        diagnosis = self.diagnosis
        head = f"{diagnosis.run_id}/{diagnosis.window}: {words.summary(diagnosis, self.window.ranks)}"
        return "\n".join([head, *(f"  {line}" for line in words.why(diagnosis))])

    def _ipython_display_(self) -> None:
        """The verdict card, then the frontier; plain text where the frontend shows no more."""
        from IPython.display import HTML, display

        said = words.verdict(self.diagnosis, self.window.ranks)
        display(HTML(card.markup(said)))
        display(self.figures.frontier())
