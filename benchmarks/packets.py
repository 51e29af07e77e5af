"""Measure the size of a packet: 32 ranks × 40 steps × 6 stages with every identity column."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.accounting import job
from benchmarks.harness import Result
from sfapp.packets import write_packet


def run() -> Iterator[Result]:
    """Yield the bytes of one file; the paper's packet of that shape has 0.11 MB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "00000000.parquet"
        write_packet(job(32, steps=40), path)
        yield Result("packet size, 32 × 40 × 6", path.stat().st_size, 35_000, unit="B")
