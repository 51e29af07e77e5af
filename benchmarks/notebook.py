"""What a moved slider costs in a notebook's kernel, up to the messages that redraw the plots."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import sfapp
from benchmarks.accounting import job
from benchmarks.harness import Result, timed
from sfapp.notebook.explore import Explorer
from sfapp.packets import packet_path, write_packet

RANKS = 64


def run() -> Iterator[Result]:
    """The panel of 64 ranks × 100 steps × 6 stages; drawing in the browser comes on top."""
    with tempfile.TemporaryDirectory() as folder:
        window = job(RANKS)
        write_packet(window, packet_path(Path(folder), window.run_id, window.number))
        with sfapp.open(folder) as packets:
            explorer = Explorer(packets.window(window.run_id, window.number))
            slider = explorer.controls["tau_c"]
            moves = [0.5 + 0.01 * place for place in range(30)]
            times = [timed(lambda value=value: setattr(slider, "value", value)) for value in moves]
    yield Result("a slider in a notebook, 64 × 100 × 6, kernel's part", statistics.median(times), 0.150)
