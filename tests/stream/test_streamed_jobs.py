"""Streaming torchrun jobs: ranks agree on run and attempt; a crash loses one rank's last steps only."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sfapp.model.host_evidence import EVIDENCE_PREFIX
from sfapp.packets import read_windows
from tests.forked_jobs import run_job
from tests.forked_ranks import forked, forked_torchrun
from tests.stream.streams import aggregating, files_in, until, windows_in

pytestmark = pytest.mark.torchrun

JOBS = Path(__file__).parents[1] / "recorder" / "gather_jobs.py"


def completed(command: Sequence[str], endpoint: str) -> subprocess.CompletedProcess[str]:
    return run_job(command, timeout=120, environment={"SFAPP_STREAM": endpoint})


def test_unchanged_jobs_stream_to_complete_windows(tmp_path: Path) -> None:
    """Run the recorder's own scenarios with the stream set in the environment."""
    packets, left = tmp_path / "packets", tmp_path / "left"
    left.mkdir()
    with aggregating(packets) as aggregator:
        result = completed(forked(3, JOBS, left, "together"), aggregator.endpoint)
        assert result.returncode == 0, result.stderr[-3000:]
        assert not aggregator.snapshot().faults
    loaded = read_windows([packets])
    windows = [item.window for item in loaded.windows]
    assert not loaded.quarantined
    assert {conflict.run_id for conflict in loaded.conflicts} == {"disagreeing"}
    assert {window.run_id for window in windows if window.run_id.startswith("renamed")} == {"renamed-by-0"}
    by_run = {run: [w for w in windows if w.run_id == run] for run in {w.run_id for w in windows}}
    assert [len(window.step_N) for window in by_run["measured"]] == [5]
    assert [window.manifest.closed_by for window in by_run["changes"]] == [
        "accumulation_change",
        "role_change",
        "shutdown",
    ]
    assert [window.number for window in by_run["again"]] == [0, 1]
    assert [window.manifest.world_size for window in by_run["smaller"]] == [3, 3, 2]
    own = {name for name in by_run["beside"][0].side if not name.startswith(EVIDENCE_PREFIX)}
    assert own == {"common", "own.0", "own.1", "own.2"}
    assert [window.ranks.rank for window in by_run["dropped"]] == [(0, 1, 2)] * 7
    assert not any(window.manifest.faults for window in by_run["dropped"])
    assert not list(left.rglob("*.parquet"))


@pytest.mark.quiet  # the surviving ranks have a second to deliver after SIGTERM
def test_the_last_sent_steps_of_a_dead_rank_are_stored(tmp_path: Path) -> None:
    packets, left = tmp_path / "packets", tmp_path / "left"
    with aggregating(packets, abandon_after=2.0) as aggregator:
        job = forked_torchrun(
            "--standalone", "--nproc-per-node=3", "--monitor-interval=0.1", JOBS, left, "killed"
        )
        assert completed(job, aggregator.endpoint).returncode != 0
        until(lambda: len(windows_in(packets)) > 1)
    first, second, *_ = windows_in(packets)
    assert first.ranks.rank == (0, 1, 2)
    assert {0, 1} <= set(second.ranks.rank)
    # The other ranks also save what the aggregator had not acknowledged when SIGTERM came.
    assert not [name for name in files_in(left) if "rank2" in name]
