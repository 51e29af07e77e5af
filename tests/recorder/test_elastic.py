"""Jobs that lose ranks and gain ranks, in real processes: windows go on and nothing finished is lost."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sfapp
from sfapp.model import Window
from sfapp.packets import read_windows
from tests.forked_jobs import ForkedJob, run_job
from tests.forked_ranks import forked_torchrun

pytestmark = pytest.mark.torchrun

JOBS = Path(__file__).parent / "elastic_jobs.py"
TIMEOUT = 4.0
"""Of the jobs' recorders."""

ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    # else restarted ranks find the addresses of those before in a store that torchrun shares (pytorch#135712)
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--monitor-interval=0.1"]


def windows_of(root: Path, run_id: str) -> list[Window]:
    loaded = read_windows([root / "packets" / run_id])
    assert loaded.conflicts == ()
    assert loaded.quarantined == ()
    return [found.window for found in loaded.windows]


def event_of(root: Path, what: str, name: object) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((root / f"{what}.{name}.json").read_text())
    return facts


def names_what_is_missing(window: Window) -> bool:
    reasons = {reason for label in sfapp.diagnose(window).labels for reason in label.reasons}
    return {"gather_failed", "missing_ranks"} <= reasons


# ---- started again by torchrun ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of three of which one dies; all are started again, from a checkpoint."""
    root = tmp_path_factory.mktemp("restarted")
    result = run_job(
        forked_torchrun(
            "--monitor-interval=0.1",
            "--standalone",
            "--nproc-per-node=3",
            "--max-restarts=1",
            JOBS,
            root,
            "restarted",
        ),
        timeout=120,
        environment=ENVIRONMENT,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return root


def test_ranks_that_are_started_again_go_on_after_the_windows_of_their_first_life(restarted: Path) -> None:
    before, cut_short, *after = windows_of(restarted, "gathered")
    assert [window.number for window in (before, cut_short, *after)] == [0, 1, 2, 3]
    assert all(window.manifest.gather_ok for window in (before, *after))
    assert all(window.ranks.rank == (0, 1, 2) for window in (before, *after))
    assert [window.step_N.tolist() for window in after] == [[5, 6, 7, 8, 9], [10, 11, 12]]


def test_the_window_in_which_a_rank_died_is_left_in_the_survivors_parts(restarted: Path) -> None:
    window = windows_of(restarted, "gathered")[1]
    assert window.ranks.rank == (0, 1)
    assert window.manifest.missing_ranks == (2,)
    assert {5, 6, 7} <= set(window.step_N.tolist())
    assert names_what_is_missing(window)


@pytest.mark.parametrize("name", [0, 1, 2])
def test_nothing_of_the_first_life_is_touched_by_the_second(restarted: Path, name: int) -> None:
    found = event_of(restarted, "found", name)
    assert len(found) == 8  # of either run a first window, whole or of three parts, and two parts of a second
    for path, digest in found.items():
        assert hashlib.sha256((restarted / path).read_bytes()).hexdigest() == digest


def test_ranks_that_gather_nothing_go_on_with_the_same_window_all_the_same(restarted: Path) -> None:
    """Though one of them left one part fewer than the others before it died."""
    before, cut_short, *after = windows_of(restarted, "local")
    assert before.ranks.rank == (0, 1, 2)
    assert cut_short.ranks.rank == (0, 1)
    assert [window.number for window in after] == [2, 3]
    assert all(window.ranks.rank == (0, 1, 2) and window.manifest.faults == () for window in after)
    assert [window.step_N.tolist() for window in after] == [[5, 6, 7, 8, 9], [10, 11, 12]]


@pytest.mark.parametrize("name", [0, 1, 2])
def test_no_step_and_no_end_of_the_second_life_waits_and_no_thread_stays(restarted: Path, name: int) -> None:
    ended = event_of(restarted, "ended", name)
    assert ended["longest"] < TIMEOUT / 2
    assert ended["closing"] < TIMEOUT / 2
    assert ended["left"] == []


# ---- a node that is lost ---------------------------------------------------------------------------


def test_a_job_that_loses_a_node_goes_on_in_another_size(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first, second = (start_node(tmp_path, port, name) for name in ("first", "second"))
    try:
        assert first.wait(120) == 0
    finally:
        for node in (first, second):
            node.terminate()
            node.wait(60)
    whole, lost, *after = windows_of(tmp_path, "resized")
    assert [window.number for window in (whole, lost, *after)] == [0, 1, 2, 3]
    assert whole.manifest.gather_ok
    assert whole.ranks.rank == (0, 1)
    assert lost.manifest.world_size == 2
    assert len(lost.ranks.rank) == 1
    assert names_what_is_missing(lost)
    assert all(window.manifest.world_size == 1 and window.manifest.gather_ok for window in after)
    assert [len(window.step_N) for window in after] == [5, 2]


def start_node(root: Path, port: int, name: str) -> subprocess.Popen[bytes]:
    """One of two nodes of a job that may go on with one."""
    is_host = str(name == "first").lower()
    patience = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=5"
    return subprocess.Popen(
        [
            *TORCHRUN, "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-id=elastic",
            "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
            f"--rdzv-conf=is_host={is_host},{patience}", str(JOBS), str(root), "resized",
        ],
        env={**ENVIRONMENT, "NODE": name},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


# ---- processes that form another world by themselves -----------------------------------------------


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three processes of which one dies: two go on as a world of two, and a fourth joins them later."""
    root = tmp_path_factory.mktemp("in-process")
    processes = {
        name: ForkedJob(
            [sys.executable, str(JOBS), str(root), "in_process"],
            env={**ENVIRONMENT, "NAME": name},
            stderr=subprocess.PIPE,
        )
        for name in "abcd"
    }
    errors = {name: process.communicate(timeout=120)[1] for name, process in processes.items()}
    codes = {name: process.returncode for name, process in processes.items()}
    assert codes == {"a": 0, "b": 0, "c": -signal.SIGKILL, "d": 0}, errors
    return root


def test_survivors_go_on_in_a_smaller_world_and_then_with_a_newcomer(in_process: Path) -> None:
    windows = windows_of(in_process, "in-process")
    assert [window.number for window in windows] == list(range(7))
    assert [window.manifest.world_size for window in windows] == [3, 3, 3, 2, 2, 3, 3]
    assert [window.ranks.rank for window in windows] == [
        (0, 1, 2), (0, 1), (1,), (0, 1), (0, 1), (0, 1, 2), (0, 1, 2)
    ]  # fmt: skip
    assert [window.manifest.closed_by for window in windows] == [
        "full", "flush", "world_change", "full", "world_change", "full", "full"
    ]  # fmt: skip
    assert names_what_is_missing(windows[1])


def test_ranks_of_a_new_world_count_the_same_steps_however_far_each_had_come(in_process: Path) -> None:
    windows = windows_of(in_process, "in-process")
    assert all(window.manifest.faults == () for window in windows)
    *_, before, alone, first, second = windows
    assert before.manifest.gather_ok
    assert alone.step_N.tolist() == [15, 16]
    assert first.manifest.gather_ok
    assert second.manifest.gather_ok
    assert (first.step_N.tolist(), second.step_N.tolist()) == ([*range(17, 22)], [*range(22, 27)])


def test_training_waits_for_no_rank_that_is_gone(in_process: Path) -> None:
    for name in "abd":
        ended = event_of(in_process, "ended", name)
        assert ended["longest"] < TIMEOUT / 2
        assert ended["closing"] < TIMEOUT / 2
        assert ended["left"] == ended["failures"] == []
