"""A comparison on its page: its summary, plots and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from sfapp.accounting import Comparison
from sfapp.app.panels.plot_card import FigureCard
from sfapp.app.panels.plot_help import PlotHelp
from sfapp.app.panels.tables import data_table, titled
from sfapp.app.theme import box, label_text, link, term
from sfapp.views import comparison_tables, text
from sfapp.views.figures import Figure
from sfapp.views.plot_registry import COMPARE_TAB, PLOTS, ComparisonInput


class ComparisonPanel:
    """The comparison below the choosers: built when it is first shown, then updated in place."""

    def __init__(self, plot_help: PlotHelp, open_window: Callable[[Mapping[str, Any]], Any]) -> None:
        """Build the panel empty, inside the current container.

        Args:
            open_window: called with a clicked point of the spread plot.
        """
        self._plot_help = plot_help
        self._open_window = open_window
        self._summary = box("stack")
        self._grid = box("grid")
        self._tables = box("stack")
        self._plots: dict[str, FigureCard] = {}

    def show(self, found: Comparison, pages: Sequence[str], dark: bool) -> None:
        """Show a comparison.

        Args:
            pages: the URL of each side's own page.
        """
        self._summary.clear()
        with self._summary:
            comparison_card(text.comparison(found), dict(zip(text.side_names(found), pages, strict=True)))
        self.draw(found, dark)
        self._tables.clear()
        with self._tables:
            _tables(found)

    def draw(self, found: Comparison, dark: bool) -> None:
        """Draw the plots that apply to this comparison, and hide the others."""
        self._grid.set_visibility(True)
        given = ComparisonInput(found)
        for spec, place in PLOTS.on_tab(COMPARE_TAB):
            figure = spec.build(given, dark)
            if place.height is not None:
                figure["layout"]["height"] = place.height
            if spec.name in self._plots:
                self._plots[spec.name].redraw(figure)
            else:
                self._plots[spec.name] = self._card(spec.name, figure, place.span)
            self._plots[spec.name].card.set_visibility(spec.applies(given))

    def clear(self) -> None:
        """Clear the panel."""
        self._summary.clear()
        self._tables.clear()
        self._grid.set_visibility(False)

    def _card(self, name: str, figure: Figure, span: int) -> FigureCard:
        with self._grid:
            card = FigureCard(figure, span, add_help=lambda head: self._plot_help.place(name, head, span))
        card.on_click(self._open_window)
        return card


def comparison_card(summary: text.ComparisonWords, pages: Mapping[str, str]) -> None:
    """Build the summary of a comparison, with a link to each side's own page, by the side's name."""
    with box(f"card verdict tone-{summary.tone}", "section") as card:
        card.props["aria-label"] = "Comparison"
        card.props["aria-live"] = "polite"
        card.mark("comparison")
        with box("summary"):
            label_text(summary.kicker, "div", "eyebrow kicker")
            with box("headline", "h1"):
                label_text(summary.headline, "span")
                if summary.rest:
                    label_text(f" · {summary.rest}", "span", "rest")
            with box("why"):
                label_text(" ".join(summary.explanation), "p")
            with box("chips", "ul"):
                for change in summary.labels:
                    with box(f"chip chip-{'doubt' if change.gained else 'lost'}", "li") as chip:
                        chip.props["title"] = change.meaning
                        term(change.text, "label", change.label)
            with box("links"):
                for name, page in pages.items():
                    link(f"Open {name}", page)
        with box("facts sides"):
            for number in summary.numbers:
                with box("fact"):
                    label_text(number.title, "div", "eyebrow")
                    label_text(number.value, "div", "value")
                    label_text(number.note, "div", "small")
        if summary.caveats:
            with box("grounds", "dl"):
                label_text("Caveats", "dt", "eyebrow")
                label_text(" ".join(summary.caveats), "dd")


def _tables(found: Comparison) -> None:
    exact = "each column of times adds up exactly to its last row"
    with titled("Stages", exact):
        table = data_table(
            comparison_tables.stage_columns(found), comparison_tables.stage_rows(found), "stage"
        )
        _keep_order(table)
        table.classes("with-sum").mark("stages")
    frontier = "carry-over" if found.frontier == "carry_over" else "step-aligned"
    with titled("Shares and labels", f"routing sets and labels: {frontier} frontier"):
        table = data_table(comparison_tables.side_columns(found), comparison_tables.side_rows(found), "what")
        _keep_order(table)
        table.mark("sides")


def _keep_order(table: ui.table) -> None:
    """Disable sorting: stages stay in their order, with the sum last."""
    for column in table.columns:
        column["sortable"] = False
    table.update()
