"""Show one judged window in a notebook: its card, its figures, and a panel to explore it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from sfapp.accounting import Measures, WhatIf, what_if
from sfapp.errors import WindowNotFoundError
from sfapp.model import Diagnosis, Operators, Reference, Window
from sfapp.model.view import OVERVIEW, Quantity, ViewState, Zoom
from sfapp.notebook import card
from sfapp.operators import Findings, examine_window
from sfapp.terminal import printable
from sfapp.views import figures
from sfapp.views import text as words
from sfapp.views.plot_registry import PLOTS, FindingsInput, PlotSpec, WindowInput

if TYPE_CHECKING:
    import ipywidgets


def as_plotly(figure: figures.Figure) -> go.Figure:
    """Return a figure as a Plotly figure with title and subtitle."""
    return go.Figure(figure["data"], titled(figure))


def titled(figure: figures.Figure) -> dict[str, Any]:
    """Return the layout with the title and subtitle that other surfaces show around the plot."""
    layout: dict[str, Any] = figure["layout"]
    meta, margin = layout["meta"], layout.get("margin", {})
    # One text of two lines, because Plotly overlaps title and subtitle of a plot that is drawn while hidden.
    title_text, subtitle = figures.plain(meta["title"], 120), figures.plain(meta["subtitle"], 200)
    title = {
        "text": f'{title_text}<br><span style="font-size: 12px">{subtitle}</span>'
        if subtitle
        else title_text,
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
    """The plots of a window as Plotly figures, one method per plot: ``figures.frontier(step=40)``.

    ``dir(figures)`` lists them. Their arguments are the parts of the view that the plot depends on, in the
    order of its declaration; ``step`` is a logical step number, None for the mean over the window. A cell
    shows the figure that it returns; nothing is shown otherwise.
    """

    measures: Measures
    diagnosis: Diagnosis
    dark: bool = False

    def __getattr__(self, name: str) -> PlotMethod:
        spec = PLOTS.notebook_methods.get(name)
        if spec is None:
            raise AttributeError(f"no plot is called {name!r}; there are {', '.join(PLOTS.notebook_methods)}")
        return PlotMethod(spec, self)

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *PLOTS.notebook_methods]


class PlotMethod:
    """Callable that draws one plot; its signature and docstring come from the plot's declaration."""

    def __init__(self, spec: PlotSpec[WindowInput], figures: Figures) -> None:
        self._spec = spec
        self._figures = figures
        self.__doc__ = f"{spec.title}.\n\n{spec.help}"
        default = ViewState()
        self.__signature__ = Signature(
            [
                Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=getattr(default, name))
                for name in spec.options
            ]
        )

    def __call__(self, *positional: Any, **named: Any) -> go.Figure:
        """Return the figure.

        Raises:
            TypeError: the plot takes no such argument.
        """
        chosen = self.__signature__.bind(*positional, **named).arguments
        node = chosen.pop("node", None)
        view = replace(ViewState(), **chosen)
        if node is not None:
            view = replace(view, tab=f"node:{node}")
        shown = self._figures
        given = WindowInput(shown.measures, shown.diagnosis, view)
        return as_plotly(self._spec.build(given, shown.dark))


@dataclass(frozen=True, slots=True, eq=False)
class WindowView:
    """A window and its verdict.

    Attributes:
        window: all its ranks.
        measures: of the selected group of ranks.
        diagnosis: the verdict, as every other surface shows it.
        reference: the window with which it is compared.
        read_operators: returns its operator events; None if there are none.
        missing_rows: which rows of it were thinned (``sfapp compact``), and the verdict on all of them, in
            words; empty if all are here.
    """

    window: Window
    measures: Measures
    diagnosis: Diagnosis
    reference: Reference | None
    read_operators: Callable[[], Operators | None] = lambda: None
    missing_rows: str = ""

    @property
    def stragglers(self) -> Findings:
        """The findings of KAIR in the group's operators, or in its stages if there is no operator trace.

        They are computed at every access; keep the result.

        Raises:
            PacketError: a file of operator events is damaged.
            WindowError: there are none, and the stages cannot be compared.
        """
        return examine_window(self.read_operators(), self.measures.window, self.diagnosis.wait_stages)

    def what_if(
        self, stage: str | None = None, rank: int | None = None, node: int | None = None
    ) -> WhatIf | None:
        """Return the step time with a stage as fast as on a typical rank, from a replay of the window.

        Without arguments, the suspect's stage and rank are fixed.

        Args:
            stage: a broad stage; every stage if only a rank or a node is given.
            rank: the rank whose time is clipped; every rank if None.
            node: the node whose ranks' time is clipped, instead of ``rank``.

        Raises:
            WindowNotFoundError: the window has no such stage, rank or node.
        """
        return what_if(self.measures, self.diagnosis, stage, rank, node)

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
        axes: tuple[str, str] | None = None,
        zoom: tuple[str, ...] = (),
    ) -> go.Figure:
        """Return one plot as the app and reports show it.

        Args:
            name: of a plot of a window page, as in ``sfapp.views.plot_registry.PLOTS``; a plot of operators
                examines the window's operators first.
            ranks: numbers of the ranks to highlight.
            stage, quantity: of the heatmap.
            tab: ``node:K`` for a plot of a node.
            cause: position in ``stragglers.blame.causes``; operator: the one to count.
            axes: dimensions of rows and columns of the parallel layout.
            zoom: ranges such as ``PLOT.AXIS:LOW:HIGH``.

        Raises:
            WindowNotFoundError: there is no such plot, or the window lacks what is selected.
        """
        spec = PLOTS.get(name)
        if spec is None or spec.source not in (WindowInput, FindingsInput):
            names = ", ".join(
                each.name for source in (WindowInput, FindingsInput) for each in PLOTS.of(source)
            )
            raise WindowNotFoundError(f"no plot of a window is called {name!r}; there are {names}")
        view = ViewState(
            step=step,
            ranks=ranks,
            stage=stage,
            quantity=quantity,
            tab=tab,
            cause=cause,
            operator=operator,
            axes=axes,
            zoom=tuple(map(Zoom.parse, zoom)),
        )
        is_recorded = stage in self.window.stages  # The heatmap shows these, too.
        _, notices = (replace(view, stage=None) if is_recorded else view).fitted(self.window)
        if notices:
            raise WindowNotFoundError(" ".join(notices))
        if spec.source is FindingsInput:
            return as_plotly(figures.findings_plot(name, self.stragglers, self.diagnosis, view))
        return as_plotly(figures.window_plot(name, self.measures, self.diagnosis, view))

    def explore(self) -> ipywidgets.Widget:
        """Return a panel with sliders for τC, γA and γG; moving one updates verdict and plots.

        It needs a running kernel.
        """
        from sfapp.notebook.explore import Explorer  # scripts do not need widgets

        return Explorer(self).panel

    def __repr__(self) -> str:
        diagnosis = self.diagnosis
        head = f"{diagnosis.run_id}/{diagnosis.window}: {words.summary(diagnosis, self.window.ranks)}"
        lines = (*words.why(diagnosis), *filter(None, (self.missing_rows,)))
        return "\n".join(printable(line) for line in (head, *(f"  {line}" for line in lines)))

    def _ipython_display_(self) -> None:
        """Show the verdict card and the frontier; frontends without rich output show plain text."""
        from IPython.display import HTML, display

        verdict = words.verdict(self.diagnosis, self.window.ranks, self.missing_rows)
        display(HTML(card.markup(verdict)))
        display(self.figures.frontier())
