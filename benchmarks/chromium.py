"""Start the Chromium of the browser tests, the benchmarks and the screenshots."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

FULL = ("chromium",)
"""What users have: for measurements and pictures."""

SHELL = ("chromium-headless-shell", *FULL)
"""For tests: the same engine without the browser around it, which takes half the processor time.
The names are those of Debian's packages and programs."""

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


ONE_PROCESS = ("--process-per-site",)
"""For tests: the pages of one address share a process, and with it the scripts that it has compiled."""


@contextmanager
def chromium(programs: Sequence[str] = FULL, flags: Sequence[str] = ()) -> Iterator[Browser]:
    """Yield a headless browser, which ends with the ``with`` block.

    Args:
        programs: names of programs; the first that is installed is used.
        flags: further options of the program.

    Raises:
        FileNotFoundError: Chromium is not installed (``make chromium``).
    """
    program = next(filter(None, map(shutil.which, programs)), None)
    if program is None:
        raise FileNotFoundError(f"none of {', '.join(programs)} is on PATH; run `make chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*FLAGS, *flags])
        try:
            yield browser
        finally:
            browser.close()
