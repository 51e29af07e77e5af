"""Take the screenshots of README and docs in Chromium, from a server over the recorded sample job.

The stragglers tab shows a generated PyTorch profiler trace in which rank 5 is late.

    python assets/screenshots.py
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.chromium import chromium  # noqa: E402
from benchmarks.kineto_job import Shape, write_job  # noqa: E402

SFAPP = [sys.executable, "-c", "from sfapp.cli import main; main()"]
FOLDER = ROOT / "docs" / "screenshots"

# File name -> path, selector of an element to wait for.
SCREENSHOTS = {
    "problems.png": ("/", ".timeline .main-svg"),
    "problem.png": ("/problems/90d5f3f39e3d17f3", ".problem-plot .main-svg"),
    "windows.png": ("/windows?run=gpt-small-ddp", ".timeline .main-svg"),
    "window.png": ("/w/gpt-small-ddp/10?frontier=carry_over", ".panels .main-svg"),
    "rotating.png": ("/w/gpt-small-ddp/4?tab=ranks", ".panels .main-svg"),
    "stragglers.png": ("/w/profiled/0?tab=stragglers", ".panels .main-svg"),
}


def main() -> None:
    """Take every screenshot."""
    FOLDER.mkdir(exist_ok=True)
    with served() as address, chromium() as browser:
        for name, (path, selector) in SCREENSHOTS.items():
            take(browser, address, path, selector, FOLDER / name)


def take(browser: Browser, address: str, path: str, selector: str, file: Path) -> None:
    """Take one screenshot once the page is drawn and idle."""
    context = browser.new_context(viewport={"width": 1480, "height": 1080}, base_url=address)
    for name, value in (("sfapp-seen", "1"), ("sfapp-read", "all")):
        context.add_cookies([{"name": name, "value": value, "url": address}])
    page = context.new_page()
    page.goto(path)
    page.locator(selector).first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    page.screenshot(path=file)
    context.close()


@contextmanager
def served() -> Iterator[str]:
    """Serve the sample packets and a generated trace; yield the server's URL."""
    with tempfile.TemporaryDirectory() as scratch:
        traces, packets = Path(scratch, "profiled"), Path(scratch, "packets")
        write_job(traces, Shape())
        subprocess.run([*SFAPP, "import", "kineto", str(traces), "-o", str(packets)], check=True)
        roots = [str(ROOT / "sample_data" / "packets"), str(packets)]
        process = subprocess.Popen(
            [*SFAPP, "serve", "--no-browser", "--memory", "--port", "0", *roots],
            stdout=subprocess.PIPE,
            text=True,
            cwd=scratch,
        )
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            if found is None:
                raise SystemExit("the server did not start")
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=20)


if __name__ == "__main__":
    main()
