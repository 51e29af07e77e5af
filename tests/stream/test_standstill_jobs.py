"""A real job that stands still: the rank that holds it is named, and what has become of its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sfapp.errors import WindowNotFoundError
from sfapp.model.stages import BACKWARD, DATA
from sfapp.operators.standstill import SILENT_SECONDS, StandstillLimits, roll_call
from sfapp.service.live import live_run_snapshot
from sfapp.service.live_address import LiveState
from sfapp.service.stacks import RunStacks, newest_stacks
from sfapp.service.standstills import Standstill, present_standstill, standstills
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.stream.metrics_writer import MetricsWriter
from sfapp.stream.standstill_watch import SETTLED_SECONDS
from tests.stream.streams import aggregating, until

JOB = Path(__file__).parent / "standing_ranks.py"
LIMIT_S = 2.5


@contextmanager
def running_job(root: Path, endpoint: str) -> Iterator[list[int]]:
    """Run the job, and yield the process ids of its ranks."""
    job = subprocess.Popen([sys.executable, str(JOB), str(root), endpoint], start_new_session=True)
    try:
        files = [root / f"{rank}.pid" for rank in range(4)]
        until(lambda: all(path.exists() for path in files), 60.0)
        yield [int(path.read_text()) for path in files]
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait(10)


def stacks_of_all_ranks(root: Path) -> RunStacks | None:
    """Return the stacks that the aggregator has requested, once all ranks have answered."""
    try:
        found = newest_stacks(root, "run")
    except WindowNotFoundError:
        return None
    return found if len(found.stacks) == 4 else None


def check_stacks(root: Path, step: int) -> None:
    """Check that the aggregator has requested stacks, and that they show rank 3 elsewhere than the others."""
    found = until(lambda: stacks_of_all_ranks(root))
    assert found.state.request.reason == f"the job stands still at step {step}; held by rank 3"
    assert [group.ranks for group in found.merged.groups] == [(3,), (0, 1, 2)]


class Watched:
    """The job as a page sees it."""

    def __init__(self, store: Store, root: Path) -> None:
        self.workspace = Workspace(store, [root])

    def standstill(self) -> Standstill | None:
        self.workspace.store.follow()
        return present_standstill(self.every(), self.now())

    def every(self) -> list[Standstill]:
        return standstills(self.workspace.store, "run")

    def now(self) -> Any:
        runs = self.workspace.store.live_runs()
        return runs[0]["sampled_at"] if runs else None

    def document(self) -> dict[str, Any]:
        return live_run_snapshot(self.workspace, "run", LiveState()).document()


@pytest.mark.torchrun
def test_the_rank_that_holds_a_real_job_is_named_with_its_cause(tmp_path: Path) -> None:
    # Long because a job takes seconds to start: it stands still twice.
    rule = partial(roll_call, limits=StandstillLimits(LIMIT_S))
    root = tmp_path / "packets"
    root.mkdir()
    metrics = MetricsWriter(root, standstills=rule)
    with (
        aggregating(root, on_samples=metrics.add_samples, on_steps=metrics.count_steps) as aggregator,
        metrics.running(aggregator.snapshot),
        Store.open([root], memory=True) as store,
    ):
        watched = Watched(store, root)
        with running_job(tmp_path, aggregator.endpoint) as pids:
            until(lambda: aggregator.snapshot().ranks and len(aggregator.snapshot().ranks[0].row_NC) > 20)
            (tmp_path / "hold").touch()
            time.sleep(LIMIT_S / 2)
            assert watched.standstill() is None, "a slow step below the limit"
            found = until(watched.standstill, 60.0)
            assert (found.roll.kind, found.roll.holders) == ("rank", (3,))
            assert {(group.stage, group.ranks) for group in found.roll.groups} == {
                (DATA, (3,)),
                (BACKWARD, (0, 1, 2)),
            }
            (problem,) = watched.workspace.problems("run")
            assert (problem.kind, problem.ranks, problem.stage, problem.ended) == (
                "standstill",
                (3,),
                DATA,
                None,
            )
            assert watched.document()["standstill"]["summary"].endswith("it holds the job")
            check_stacks(root, found.roll.step)
            (tmp_path / "hold").unlink()
            until(lambda: watched.standstill() is None)
            assert [each.has_ended for each in watched.every()] == [True]

            begin = time.monotonic()
            (tmp_path / "lock").touch()
            until((tmp_path / "locked").exists)
            os.kill(pids[1], signal.SIGSTOP)
            os.kill(pids[3], signal.SIGKILL)
            states = {1: "stopped", 2: "lock", 3: "dead"}

            def named() -> dict[int, str]:
                now = watched.standstill()
                return {} if now is None else {r: g.state for g in now.roll.held_by for r in g.ranks}

            until(lambda: named() == states, 60.0)
            assert watched.document()["ranks"][3]["process"] in ("", "Z")
            # A job is ended some time after it stands still.
            time.sleep(max(0.0, begin + LIMIT_S + SETTLED_SECONDS + 1.0 - time.monotonic()))
        time.sleep(SILENT_SECONDS + 0.5)  # All processes are gone, and the same page still answers.
        assert named() == states
        assert len(watched.every()) == 2
