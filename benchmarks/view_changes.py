"""Measure changes of a window's view, from the user's action until they are drawn: a moved gate, another
what-if, another baseline, another group.

A change is drawn when the page's last change that belongs to it is shown, by the page's own clock: the
verdict or the prediction, and every plot. Hints about the nearest change of verdict follow at rest and do not
count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, Page

from benchmarks.accounting import job
from benchmarks.harness import Result
from sfapp.packets import packet_path, write_packet

RANKS, WINDOWS = 1_024, 3

GATE_S, WHAT_IF_S, MEASURED_S = 0.100, 0.100, 0.250

ROUNDS = 5

_WATCH = """(watched) => {
  window.drawnAfter?.stop();
  const seen = window.drawnAfter = { begin: undefined, last: undefined };
  const start = () => { seen.begin ??= performance.now(); };
  const painted = () => {
    if (!seen.begin || window.drawnAfter !== seen) return;
    requestAnimationFrame(() => setTimeout(() => { seen.last = performance.now(); }));
  };
  window.addEventListener('keydown', start, { capture: true, once: true });
  window.addEventListener('click', start, { capture: true, once: true });
  const observer = new MutationObserver(painted);
  for (const place of document.querySelectorAll(watched))
    observer.observe(place, { childList: true, characterData: true, subtree: true });
  for (const plot of document.querySelectorAll('.js-plotly-plot')) {
    if (!plot.isWatched) plot.on('plotly_afterplot', () => window.drawnAfter.painted());
    plot.isWatched = true;
  }
  seen.painted = painted;
  seen.stop = () => observer.disconnect();
}"""
_DRAWN = """() => {
  const { last } = window.drawnAfter;
  const predicts = document.querySelector('.what-if-result')?.innerText.includes('Predicting');
  return last && !predicts && performance.now() - last > 400;
}"""
_TOOK = "() => window.drawnAfter.last - window.drawnAfter.begin"


def write_viewed_windows(root: Path) -> None:
    """Write the windows of one run of 1,024 ranks."""
    for number in range(WINDOWS):
        window = job(RANKS, seed=number, waits=True)
        window = replace(window, manifest=replace(window.manifest, window=number))
        write_packet(window, packet_path(root, window.run_id, number))


def until_drawn(page: Page, watched: str, acts: Iterable[Callable[[], None]]) -> float:
    """Return the median seconds from an action to the last drawn plot or change of a watched element."""
    times: list[float] = []
    for act in acts:
        page.evaluate(_WATCH, watched)
        act()
        page.wait_for_function(_DRAWN)
        page.wait_for_timeout(600)  # what the page does at rest
        times.append(page.evaluate(_TOOK) / 1e3)
    return statistics.median(times)


def view_changes(address: str, browser: Browser) -> Iterator[Result]:
    """Yield results for windows of 1,024 × 100 × 6."""
    size = f"{RANKS:,} × 100 × 6"
    for tab, name in (("overview", "Overview"), ("ambiguity", "Analysis")):
        page = opened(browser, f"{address}/w/bench/2?tab={tab}")
        for gate in ("candidate threshold", "dominance"):
            moved = until_drawn(page, ".verdict", pressed(page, gate))
            yield Result(f"moved gate ({gate}), {size}, {name}, until drawn", moved, GATE_S)
        page.close()
    page = opened(browser, f"{address}/w/bench/2")
    drawn = until_drawn(page, ".what-if-result", chosen(page, "what-if: stage", STAGES))
    yield Result(f"another what-if, {size}, until drawn", drawn, WHAT_IF_S)
    drawn = until_drawn(page, ".verdict", chosen(page, "group", GROUPS))
    yield Result(f"another group, {size}, until drawn", drawn, MEASURED_S)
    page.close()
    page = opened(browser, f"{address}/w/bench/2?tab=ambiguity")
    buttons = [page.get_by_role("button", name=word, exact=True) for word in ("rank", "cohort")]
    picks = [button.click for button in buttons * (ROUNDS - 1)]
    yield Result(f"another baseline, {size}, until drawn", until_drawn(page, ".verdict", picks), MEASURED_S)
    page.close()


def pressed(page: Page, gate: str) -> Iterator[Callable[[], None]]:
    """Yield the keys that move the slider of a gate to and fro."""
    for key in ("ArrowLeft", "ArrowRight") * ROUNDS:
        page.get_by_role("slider", name=gate).locator("[tabindex='0']").focus()
        yield partial(page.keyboard.press, key)


STAGES = ("forward", "backward", "callbacks", "optimizer", "every stage")
GROUPS = ("node 3", "node 7", "node 5", "node 9")


def opened(browser: Browser, address: str) -> Page:
    """Open a page and wait until it is drawn and at rest."""
    page = browser.new_page(viewport={"width": 1480, "height": 1080})
    page.goto(address)
    page.wait_for_selector(".js-plotly-plot .main-svg")
    page.wait_for_timeout(3_000)
    return page


def chosen(page: Page, box: str, names: Iterable[str]) -> Iterator[Callable[[], None]]:
    """Yield the choice of each name in turn; opening the list is not timed."""
    for name in names:
        page.get_by_role("combobox", name=box, exact=True).click()
        option = page.get_by_role("option", name=name, exact=True)
        option.wait_for()
        yield option.click
