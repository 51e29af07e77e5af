"""Measure the swim-lane of a window: building the figure from measured data, and drawing it in a real
Chromium."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

from playwright.sync_api import Browser, Page

from benchmarks.accounting import job
from benchmarks.harness import Result
from sfapp.accounting import Measures, judge, measure
from sfapp.assets import assets
from sfapp.model import Diagnosis
from sfapp.views.figures import Figure
from sfapp.views.figures.swim_lane import swim_lane

SIZES = ((64, 100, 0.100), (1_024, 100, 0.250), (100_000, 20, 0.500))
"""Ranks, steps, and maximum seconds from measured data to the drawn plot."""

RUNS = 7

_DRAW = """async (figure) => {
  const place = document.createElement("div");
  document.body.replaceChildren(place);
  const begin = performance.now();
  await Plotly.newPlot(place, figure.data, figure.layout, figure.config);
  return performance.now() - begin;
}"""


def swim_lane_drawn(browser: Browser) -> Iterator[Result]:
    """Yield the time from measured data to the drawn plot of the mean step, in server and browser, by
    ranks."""
    page = browser.new_page(viewport={"width": 1480, "height": 1080})
    (plotly,) = (assets() / "vendor").glob("plotly-cartesian-*.min.js")
    page.add_script_tag(path=plotly)
    for ranks, steps, bar in SIZES:
        measures = measure(job(ranks, steps))
        diagnosis = judge(measures, None, "carry_over")
        built, drawn = zip(*(once(page, measures, diagnosis) for _ in range(RUNS)), strict=True)
        yield Result(f"swim-lane of {ranks:,} × {steps} × 6, built", statistics.median(built), bar / 2)
        total = statistics.median(map(sum, zip(built, drawn, strict=True)))
        yield Result(f"swim-lane of {ranks:,} × {steps} × 6, drawn", total, bar)
    page.close()


def once(page: Page, measures: Measures, diagnosis: Diagnosis) -> tuple[float, float]:
    """Return the seconds of building, without an earlier step, and of drawing."""
    kept = {key: value for key, value in measures._kept.items() if key[0] != "swim_lane"}
    fresh = replace(measures, _kept=kept)
    begin = time.perf_counter()
    figure: Figure = swim_lane(fresh, diagnosis)
    built = time.perf_counter() - begin
    return built, page.evaluate(_DRAW, figure) / 1e3
