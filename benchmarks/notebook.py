"""Measure the time for a moved slider in a notebook: in the kernel, and up to the plots in JupyterLab."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import sfapp
from benchmarks.accounting import job
from benchmarks.harness import Result, timed
from benchmarks.notebook_browser import jupyter_lab, slider_to_plot
from sfapp.notebook.explore import Explorer
from sfapp.packets import packet_path, write_packet

RANKS = 64


def run() -> Iterator[Result]:
    """Yield results for the panel of a window of 64 ranks × 100 steps × 6 stages."""
    with tempfile.TemporaryDirectory() as folder:
        window = job(RANKS)
        write_packet(window, packet_path(Path(folder), window.run_id, window.number))
        with sfapp.open(folder) as packets:
            explorer = Explorer(packets.window(window.run_id, window.number))
            slider = explorer.controls["tau_c"]
            moves = [0.5 + 0.01 * place for place in range(30)]
            times = [timed(partial(setattr, slider, "value", value)) for value in moves]
        yield Result("a slider in a notebook, 64 × 100 × 6, kernel's part", statistics.median(times), 0.150)
        if jupyter_lab() is None:
            print("a slider to its plots: left out, JupyterLab is not installed", file=sys.stderr)
        else:
            seconds = slider_to_plot(Path(folder), window.run_id, window.number)
            yield Result("a slider to its plots in JupyterLab, 64 × 100 × 6", seconds, 0.150)
