"""Many senders stream to one aggregator, each over its own connection: a small version of the soak test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.simulated_ranks import RUN
from sfapp.stream import Keys
from sfapp.stream.metrics_writer import MetricsWriter
from tests.stream.streams import aggregating, windows_in

RANKS, WINDOWS, STEPS = 96, 3, 5


def test_many_ranks_with_keys_yield_complete_windows(tmp_path: Path) -> None:
    packets, keys, metrics = tmp_path / "packets", Keys.make(), MetricsWriter(tmp_path / "packets")
    (packets / ".sfapp").mkdir(parents=True)
    keys.save(packets / ".sfapp" / "session.keys")
    with (
        aggregating(packets, keys=keys, on_samples=metrics.add_samples) as aggregator,
        metrics.running(aggregator.snapshot),
    ):
        figures = (0, RANKS, RANKS, 0.2, STEPS, WINDOWS)
        line = [sys.executable, "-m", "benchmarks.simulated_ranks", aggregator.endpoint, str(packets)]
        line += [*map(str, figures), str(tmp_path / "ends")]
        done = subprocess.run(
            line, cwd=Path(__file__).parents[2], timeout=120, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert all(rank.has_left for rank in aggregator.snapshot().ranks)
        assert aggregator.snapshot().faults == {}
        assert aggregator.counts.incomplete == aggregator.counts.parts == 0
    found = windows_in(packets)
    assert {window.ranks.rank for window in found} == {tuple(range(RANKS))}
    assert [step for window in found for step in window.step_N.tolist()] == list(range(WINDOWS * STEPS))
    assert len((tmp_path / "ends").read_text().splitlines()) == WINDOWS
    assert list((packets / RUN / "metrics").glob("*.jsonl"))
