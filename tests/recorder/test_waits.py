"""Own time and waiting are separated inside a stage, and the rank that is slow inside it is named."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from sfapp.accounting import diagnose
from sfapp.model import Window
from sfapp.model.window import NOT_MEASURED
from sfapp.packets import read_window, read_windows
from sfapp.recorder import Recorder
from tests.forked_jobs import run_job
from tests.forked_ranks import forked

pytestmark = [pytest.mark.torchrun, pytest.mark.quiet]  # lateness is a matter of milliseconds

JOB = Path(__file__).parent / "wait_jobs.py"
SLOW_RANK = 2
STAGE = {"forward": "model.fwd_loss_cpu_wall", "backward": "model.backward_cpu_wall"}


RUNS = (
    "ddp-backward",
    "ddpsync-backward",
    "zero1-backward",
    "manual-backward",
    "groups-backward",
    "fsdp1-backward",
    "fsdp2-backward",
    "fsdp2-forward",
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Window]:
    """A window of each run, all from one job."""
    root = tmp_path_factory.mktemp("packets")
    result = run_job(forked(4, JOB, root, *RUNS), timeout=180)
    assert result.returncode == 0, result.stderr[-3000:]
    return {found.window.run_id: found.window for found in read_windows([root]).windows}


@pytest.mark.parametrize("run_id", RUNS)
def test_a_rank_slow_inside_a_stage_that_others_wait_in_is_named(
    recorded: dict[str, Window], run_id: str
) -> None:
    window, stage = recorded[run_id], STAGE[run_id.split("-")[1]]
    wait_NR = window.waits[stage][3:]
    assert (wait_NR != NOT_MEASURED).all()
    assert np.median(wait_NR, axis=0).argmin() == SLOW_RANK
    aim = diagnose(window).aim
    assert aim is not None
    assert (aim.stage, aim.rank) == (stage, SLOW_RANK)


def test_what_follows_the_exchange_in_its_stage_is_no_wait(tmp_path: Path) -> None:
    """Clipping, for example, where no hook separates it from the backward pass."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = DistributedDataParallel(torch.nn.Linear(8, 8))
        with Recorder(tmp_path, run_id="run", window_steps=8) as perf:
            perf.watch_waits(model)
            for _ in range(8):
                with perf.step(), perf.stage(STAGE["backward"]):
                    model(torch.ones(2, 8)).sum().backward()
                    time.sleep(0.02)
    finally:
        dist.destroy_process_group()
    wait_N = read_window(tmp_path).waits[STAGE["backward"]][:, 0]
    assert 0 < np.median(wait_N) < 10_000_000


def test_own_time_of_a_stage_that_is_entered_twice_in_a_step_is_no_wait(tmp_path: Path) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = DistributedDataParallel(torch.nn.Linear(4, 1))
        with Recorder(tmp_path, run_id="twice", window_steps=12) as perf:
            perf.watch_waits(model)
            for _ in range(12):
                with perf.step():
                    loss = model(torch.ones(2, 4)).square().mean()
                    with perf.stage(STAGE["backward"]):
                        time.sleep(0.02)
                    with perf.stage(STAGE["backward"]):
                        loss.backward()
    finally:
        dist.destroy_process_group()
    (found,) = read_windows([tmp_path]).windows
    assert np.median(found.window.waits[STAGE["backward"]]) < 10e6


def test_without_a_listener_nothing_stays_wrapped() -> None:
    from sfapp.recorder.side_channels.communication import CommunicationHooks

    hooks = CommunicationHooks()
    before = dist.all_reduce
    hooks.listen(hooks, 1, lambda _: None)
    assert dist.all_reduce is not before
    hooks.stop(hooks, 1)
    assert dist.all_reduce is before
