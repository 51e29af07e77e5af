"""Measure the time from a key on a slider to the last redrawn plot, in a real JupyterLab in a real browser.

JupyterLab is no dependency of sfapp. If it is installed in another environment than this Python:
``JUPYTER_LAB=/path/to/jupyter-lab python -m benchmarks notebook``.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page

from benchmarks.chromium import chromium

TOKEN = "sfapp-benchmark"
PORT = 18_931
MOVES = 25

_WATCH = """() => {
  window.redrawn = [];
  for (const plot of document.querySelectorAll(".js-plotly-plot"))
    plot.on("plotly_afterplot", () => window.redrawn.push(performance.now()));
  const begin = () => { window.pressed = performance.now(); window.redrawn = []; };
  document.addEventListener("keydown", begin, true);
}"""


def jupyter_lab() -> Path | None:
    """Return the path of the program, or None."""
    named = os.environ.get("JUPYTER_LAB") or shutil.which(
        "jupyter-lab", path=str(Path(sys.executable).parent)
    )
    return Path(named) if named and Path(named).exists() else None


def slider_to_plot(folder: Path, run: str, window: int) -> float:
    """Return the median seconds from a key on a threshold's slider to the last redrawn plot.

    Args:
        folder: folder of the packets.
    """
    program = jupyter_lab()
    assert program is not None
    with _served(program, folder, run, window) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1500, "height": 1600})
        page.goto(address)
        page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click(timeout=60_000)
        page.keyboard.press("Shift+Enter")
        page.wait_for_function(
            "document.querySelectorAll('.js-plotly-plot .main-svg').length >= 9", timeout=120_000
        )
        times = _moved(page)
    return statistics.median(times)


def _moved(page: Page) -> list[float]:
    """Return the seconds of each move of γA, one key at a time."""
    time.sleep(2)
    page.evaluate(_WATCH)
    page.locator("[role=slider]").nth(1).focus()
    times = []
    for place in range(MOVES):
        page.keyboard.press("ArrowRight" if place % 2 else "ArrowLeft")
        page.wait_for_function("window.redrawn.length > 0", timeout=10_000)
        page.wait_for_timeout(400)  # further plots may follow
        pressed, redrawn = page.evaluate("[window.pressed, Math.max(...window.redrawn)]")
        times.append((redrawn - pressed) / 1e3)
    return times[5:]


@contextmanager
def _served(program: Path, folder: Path, run: str, window: int) -> Iterator[str]:
    """Serve a notebook that explores the window in a JupyterLab with a kernel of this Python."""
    kernel = folder / "jupyter" / "kernels" / "sfapp"
    kernel.mkdir(parents=True)
    launch = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": launch, "display_name": "sfapp", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    source = f"import sfapp\nsfapp.open({str(folder)!r}).window({run!r}, {window}).explore()"
    cell: dict[str, object] = {
        "cell_type": "code",
        "execution_count": None,
        "id": "a",
        "metadata": {},
        "outputs": [],
        "source": source,
    }
    metadata = {"kernelspec": {"name": "sfapp", "display_name": "sfapp", "language": "python"}}
    notebook = {"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    (folder / "explore.ipynb").write_text(json.dumps(notebook))
    options = ["--no-browser", "--allow-root", f"--port={PORT}", f"--IdentityProvider.token={TOKEN}"]
    share = Path(sys.prefix) / "share" / "jupyter"
    server = subprocess.Popen(
        [str(program), *options, f"--ServerApp.root_dir={folder}"],
        env={**os.environ, "JUPYTER_PATH": f"{folder / 'jupyter'}{os.pathsep}{share}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(f"http://127.0.0.1:{PORT}/api?token={TOKEN}")
        yield f"http://127.0.0.1:{PORT}/lab/tree/explore.ipynb?token={TOKEN}"
    finally:
        server.terminate()
        server.wait(20)


def _wait_for(address: str) -> None:
    for _ in range(120):
        try:
            urllib.request.urlopen(address, timeout=1).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise TimeoutError(f"no answer from {address}")
