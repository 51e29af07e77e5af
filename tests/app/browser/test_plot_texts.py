"""Texts in plots are large enough to read, and none lies on another or is cut, at any width of the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from benchmarks.accounting import job
from sfapp.accounting import compare, judge, measure
from sfapp.model import Window
from sfapp.model.examples import EXAMPLES
from sfapp.model.view import ViewState
from sfapp.operators import examine_stages
from sfapp.service.packet_windows import load_windows
from sfapp.views.figures import Figure, draw_plot
from sfapp.views.plot_registry import PLOTS, ComparisonInput, FindingsInput, RunInput, WindowInput
from tests.app.browser.plot_sheet import draw, faults, open_sheet, sent
from tests.views.simulated_windows import timeline_row

pytestmark = pytest.mark.browser

SAMPLE = Path(__file__).parents[3] / "sample_data" / "packets"

PAGE_WIDTHS = (390, 768, 1_024, 1_400, 1_920)

PLOT_WIDTHS = (326, 440, 760, 1_850)
"""Widths of plots on such pages: they take a third, a half or all of a page's grid."""

CARRIED = ViewState(frontier="carry_over", step=400, ranks=(0, 1))

SHOWN = (
    ("gpt-small-ddp", 4, ViewState(frontier="carry_over")),
    ("gpt-small-ddp", 10, ViewState()),
    ("gpt-small-ddp", 10, CARRIED),
    ("moe-two-roles", 1, ViewState()),
)
"""Windows of the sample job: different ranks, one rank, two roles."""


def plots_of(window: Window, view: ViewState) -> Iterator[tuple[str, Figure]]:
    """Every plot of a window's page."""
    measures = measure(window)
    diagnosis = judge(measures, view.gates, view.frontier)
    inputs = (
        WindowInput(measures, diagnosis, view),
        FindingsInput(examine_stages(window, diagnosis.wait_stages), diagnosis, view),
    )
    for given in inputs:
        for spec in PLOTS.of(type(given)):
            height = spec.tabs[0].height if spec.tabs else None
            yield (
                f"{spec.name} of {window.run_id}/{window.number}",
                draw_plot(spec.name, given, height=height),
            )


def plots_of_runs(windows: list[Window]) -> Iterator[tuple[str, Figure]]:
    """Every plot over several windows."""
    diagnoses = [judge(measure(window)) for window in windows]
    rows = [timeline_row(diagnosis) for diagnosis in diagnoses]
    run = [row for row in rows if row["run_id"] == rows[0]["run_id"]]
    sides = [diagnosis for diagnosis in diagnoses if diagnosis.run_id == rows[0]["run_id"]]
    for name, given in (
        ("the folder", RunInput(rows)),
        ("one run", RunInput(run, reference=0)),
    ):
        for spec in PLOTS.of(RunInput):
            yield f"{spec.name} of {name}", spec.build(given, False)
    found = ComparisonInput(compare(sides[0], sides[1:-1], sides[-1]))
    for compared in PLOTS.of(ComparisonInput):
        yield compared.name, compared.build(found, False)


class DrawnPlots:
    """Plots that were drawn; none is drawn twice at the same widths."""

    def __init__(self) -> None:
        self._known: set[tuple[str, tuple[int, ...]]] = set()

    def wrong(
        self, page: Page, plots: Iterator[tuple[str, Figure]], widths: tuple[int, ...] = PLOT_WIDTHS
    ) -> list[str]:
        """Draw some plots at some widths; return what is wrong with their texts."""
        open_sheet(page)
        found: list[str] = []
        for name, figure in plots:
            drawn = sent(figure)
            if (drawn, widths) not in self._known:
                self._known.add((drawn, widths))
                found += [f"{name} at {each}" for each in draw(page, drawn, widths)]
        return found


@pytest.fixture(scope="module")
def drawn() -> DrawnPlots:
    return DrawnPlots()


@pytest.fixture(scope="module")
def windows() -> list[Window]:
    return [found.window for found in load_windows([SAMPLE]).windows]


@pytest.mark.parametrize("run_id", sorted(EXAMPLES))
def test_texts_of_an_example_do_not_collide(page: Page, drawn: DrawnPlots, run_id: str) -> None:
    assert drawn.wrong(page, plots_of(EXAMPLES[run_id].window(), ViewState()), PLOT_WIDTHS[::2]) == []


@pytest.mark.parametrize(("run_id", "number", "view"), SHOWN, ids=["turns", "mean", "step", "roles"])
def test_texts_of_the_sample_job_do_not_collide(
    page: Page, drawn: DrawnPlots, windows: list[Window], run_id: str, number: int, view: ViewState
) -> None:
    (window,) = [window for window in windows if (window.run_id, window.number) == (run_id, number)]
    assert drawn.wrong(page, plots_of(window, view)) == []


def many_ranks() -> Window:
    """A job of 64 ranks, one of them late, on nodes of one rank and of many."""
    window = job(64, 40, waits=True)
    nodes = tuple(node for node, size in enumerate((1, 1, 2, 1, 1, 2, 24, 32)) for _ in range(size))
    duration_SNR = window.duration_SNR.copy()
    duration_SNR[0, :, 40] += 80_000_000
    ranks = replace(window.ranks, node_rank=nodes, hostname=tuple(f"node-{node}" for node in nodes))
    return replace(window, ranks=ranks, duration_SNR=duration_SNR, wall_NR=duration_SNR.sum(axis=0))


def test_texts_of_many_ranks_do_not_collide(page: Page, drawn: DrawnPlots) -> None:
    assert drawn.wrong(page, plots_of(many_ranks(), ViewState(ranks=(0, 20))), PLOT_WIDTHS[::2]) == []


def test_texts_of_timelines_and_comparisons_do_not_collide(
    page: Page, drawn: DrawnPlots, windows: list[Window]
) -> None:
    assert drawn.wrong(page, plots_of_runs(windows)) == []


def test_the_suspect_stays_named_where_other_texts_have_no_room(page: Page, windows: list[Window]) -> None:
    (window,) = [found for found in windows if (found.run_id, found.number) == ("gpt-small-ddp", 10)]
    plots = {name.split()[0]: figure for name, figure in plots_of(window, ViewState(frontier="carry_over"))}
    open_sheet(page)
    for name, words in (
        ("prefix_crossings", "rank 3"),
        ("node_ranks", "▲ rank 3"),
        ("rank_step_heatmap", "▶ r3"),
        ("frontier_steps", "+82 ms"),
        ("blame_path", "callbacks"),
    ):
        draw(page, sent(plots[name]), PLOT_WIDTHS[:1])
        expect(page.locator("#plot text", has_text=words).first).to_be_visible()


@pytest.mark.parametrize(
    ("address", "last_plot"),
    [
        ("/", ".timeline"),
        ("/windows", ".timeline"),
        ("/problems/90d5f3f39e3d17f3", ".run-timeline"),
        ("/runs/gpt-small-ddp", ".figure"),
        ("/w/gpt-small-ddp/10?frontier=carry_over", ".panels"),
    ],
    ids=["problems", "windows", "problem", "run", "window"],
)
def test_texts_on_a_page_do_not_collide_when_it_is_resized(page: Page, address: str, last_plot: str) -> None:
    page.goto(address)
    expect(page.locator(f"{last_plot} .main-svg").first).to_be_visible()
    for width in PAGE_WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            """[...document.querySelectorAll('.js-plotly-plot')].filter((plot) => plot.checkVisibility())
            .every((plot) => Math.abs(plot._fullLayout?.width - plot.getBoundingClientRect().width) < 2)"""
        )
        for _ in range(100):
            found = faults(page)
            if not found:
                break
            page.wait_for_timeout(50)  # the texts are moved once the last plot has been drawn
        assert found == [], width
