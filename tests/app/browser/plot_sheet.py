"""One plot at a time in a real Chromium, at any width, and what is wrong with its texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import nicegui.json
from playwright.sync_api import Page, Route

from sfapp.app.address import asset_url
from sfapp.views.figures import Figure

LEAST_PX = 12

_VUE = f"/_nicegui/{nicegui.__version__}/static/vue.esm-browser.prod.js"

_SHEET = f"""<!doctype html><link rel="stylesheet" href="{asset_url("style.css")}">
<script type="importmap">{json.dumps({"imports": {"vue": _VUE}})}</script><body>
<section class="figure"><div id="plot" class="plot"></div></section>"""

# Every text as it stands on the screen: its four corners, turned as it is, and its smallest letters.
_FAULTS = """(least) => {
  const words = (text) => text.textContent.replaceAll(/\\s+/g, " ").trim();
  const isShown = (text) => words(text) && !text.closest(".hoverlayer") &&
    text.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const measured = (text) => {
    const box = text.getBBox(), at = text.getScreenCTM();
    const right = box.x + box.width, high = box.y + 1.5, low = box.y + box.height - 1.5;
    const corners = [[box.x, high], [right, high], [right, low], [box.x, low]]
      .map(([x, y]) => ({ x: at.a * x + at.c * y + at.e, y: at.b * x + at.d * y + at.f }));
    const sizes = [text, ...text.querySelectorAll("tspan")]
      .map((part) => parseFloat(getComputedStyle(part).fontSize));
    const size = Math.min(...sizes) * Math.hypot(at.a, at.b);
    const label = text.closest(".annotation")?.querySelector("rect.bg");
    const fill = label && getComputedStyle(label);
    const isFilled = fill && Number(fill.fillOpacity) * Number(fill.opacity) > 0.1 && fill.fill !== "none";
    return { words: words(text), corners, size, area: box.width * box.height,
      label: isFilled ? boxOf(label) : null };
  };
  const boxOf = (label) => {
    const { left, right, top, bottom } = label.getBoundingClientRect();
    return { corners: [[left, top], [right, top], [right, bottom], [left, bottom]]
      .map(([x, y]) => ({ x, y })) };
  };
  const isCut = (text, frame) => text.corners.some(({ x, y }) =>
    x < frame.left - 2 || x > frame.right + 2 || y < frame.top - 2 || y > frame.bottom + 2);
  // Two turned boxes are apart where a side of one has all of the other beyond it.
  const apart = (one, other) => [one, other].some((shape) => [0, 1].some((side) => {
    const a = shape.corners[side], b = shape.corners[side + 1];
    const along = (each) => each.corners.map(({ x, y }) => x * (b.y - a.y) - y * (b.x - a.x));
    const [first, second] = [along(one), along(other)];
    return Math.max(...first) <= Math.min(...second) || Math.max(...second) <= Math.min(...first);
  }));
  const inside = (plot) => {
    const frame = plot.querySelector(".main-svg").getBoundingClientRect();
    const found = [...plot.querySelectorAll(".main-svg text")].filter(isShown).map(measured)
      .filter((text) => text.area > 0);
    return found.flatMap((one, place) => [
      ...(one.size < least - 0.01 ? [`${one.words}: ${one.size.toFixed(1)} px`] : []),
      ...(isCut(one, frame) ? [`${one.words}: cut`] : []),
      ...found.slice(place + 1).filter((other) => !apart(one, other))
        .map((other) => `${one.words} on ${other.words}`),
      ...found.filter((other) => other !== one && one.label && apart(one, other) && !apart(one.label, other))
        .map((other) => `the box of ${one.words} on ${other.words}`),
    ]);
  };
  return [...document.querySelectorAll(".js-plotly-plot")]
    .filter((plot) => plot.checkVisibility() && plot.querySelector(".main-svg")).flatMap(inside);
}"""

# Plotly completes what it is given, so each width starts from the figure as it was sent.
_DRAW = f"""async ([library, figure, widths, least]) => {{
  const {{ Plotly }} = await import(library);
  const faults = {_FAULTS};
  const plot = document.querySelector("#plot");
  const found = [];
  for (const width of widths) {{
    plot.style.width = `${{width}}px`;
    const {{ data, layout, config }} = JSON.parse(figure);
    await Plotly.newPlot(plot, data, layout, {{ ...config, responsive: false }});
    found.push(faults(least).map((each) => `${{width}} px: ${{each}}`));
  }}
  return found.flat();
}}"""


def open_sheet(page: Page) -> None:
    """Open a page with the app's styles, fonts and plot library, and room for one plot."""

    def answer(route: Route) -> None:
        route.fulfill(body=_SHEET, content_type="text/html")

    page.route("**/sheet", answer)
    page.set_viewport_size({"width": 1920, "height": 1000})
    page.goto("/sheet")
    page.evaluate("document.fonts.ready.then(() => true)")


def sent(figure: Figure) -> str:
    """Return a figure as JSON, without the texts around the plot, which the browser does not draw."""
    layout = {name: part for name, part in figure["layout"].items() if name != "meta"}
    return nicegui.json.dumps({**figure, "layout": layout})


def draw(page: Page, figure: str, widths: Sequence[int]) -> list[str]:
    """Draw a plot at each width, in the place of the one before; return what is wrong with its texts."""
    found: Any = page.evaluate(_DRAW, [asset_url("plotly.js"), figure, list(widths), LEAST_PX])
    return [str(each) for each in found]


def faults(page: Page) -> list[str]:
    """Return the texts in the plots on a page that are too small, are cut, or lie on each other."""
    found: Any = page.evaluate(_FAULTS, LEAST_PX)
    return [str(each) for each in found]
