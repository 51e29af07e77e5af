"""Measure the delay until the live page names a rank that becomes 20 % late, on a real streamed job.

``python -m benchmarks.live_verdict`` prints the delay, from the begin of the first late step until the
headline in a real Chromium names stage and rank; with a folder as an argument it also saves screenshots.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import Browser, Error, Page

from benchmarks.chromium import chromium
from benchmarks.harness import HEADER, Result
from benchmarks.pages import server
from benchmarks.streamed_job import LATE_RANK, RUN, STEP_S, StreamedJob

BAR_S = 5 * STEP_S + 1.5
REPEATS = 12

NAMED = f"Rank {LATE_RANK} holds the job in data"

# Records when the headline first begins with a text, by the shared clock of this machine's processes.
WATCH = """(text) => {
  window.namedAt = 0;
  const look = () => {
    const shown = document.querySelector('.live-headline')?.innerText ?? '';
    if (!window.namedAt && shown.startsWith(text)) window.namedAt = Date.now();
    if (!window.namedAt) requestAnimationFrame(look);
  };
  look();
}"""


def delays(page: Page, job: StreamedJob, repeats: int) -> Iterator[float]:
    """Yield seconds from the first late step until the headline names it."""
    for _ in range(repeats):
        page.wait_for_function(
            "() => document.querySelector('.live-headline')?.innerText.startsWith('Healthy')", timeout=60_000
        )
        page.evaluate(WATCH, NAMED)
        time.sleep(1.0 + 0.37 * (time.time() % 1))  # at any moment between two updates
        job.set_late(True)
        began = job.began_at()
        page.wait_for_function("() => window.namedAt", timeout=60_000)
        yield page.evaluate("() => window.namedAt") / 1e3 - began
        job.set_late(False)


def opened(browser: Browser, address: str, query: str = "", width: int = 1400, dark: bool = False) -> Page:
    """Open the live page once the run exists."""
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    )
    for _ in range(60):
        with suppress(Error):
            page.goto(f"{address}/live/{RUN}{query}")
        if page.locator(".live-headline").count():
            return page
        time.sleep(0.5)
    raise RuntimeError("the run did not appear")


def shoot(browser: Browser, address: str, job: StreamedJob, folder: Path) -> None:
    """Save screenshots of the page, healthy and late, in both themes and two widths."""
    folder.mkdir(parents=True, exist_ok=True)
    for late in (False, True):
        job.set_late(late)
        for dark in (False, True):
            for width in (390, 1400):
                page = opened(browser, address, width=width, dark=dark)
                page.wait_for_selector(".js-plotly-plot .main-svg")
                page.wait_for_timeout(4_000)
                name = f"{'late' if late else 'healthy'}-{'dark' if dark else 'light'}-{width}.png"
                page.screenshot(path=str(folder / name), full_page=True)
                page.close()
    job.set_late(False)


def run(folder: Path | None = None) -> Iterator[Result]:
    """Yield the 95th percentile and the longest of the delays."""
    with (
        tempfile.TemporaryDirectory() as name,
        StreamedJob(Path(name)) as job,
        server(Path(name)) as (address, _),
        chromium() as browser,
    ):
        if folder is not None:
            shoot(browser, address, job, folder)
        else:
            found = sorted(delays(opened(browser, address), job, REPEATS))
            what = f"a rank 20 % late until the headline names it, steps of {1e3 * STEP_S:.0f} ms"
            yield Result(f"{what}: median", found[len(found) // 2], BAR_S)
            yield Result(f"{what}: longest of {len(found)}", found[-1], BAR_S)


if __name__ == "__main__":
    print(HEADER)
    for result in run(Path(sys.argv[1]) if len(sys.argv) > 1 else None):
        print(result.line(), flush=True)
