"""From a verdict to the operator in a real torchrun job: the policy asks, ranks profile, KAIR names it."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sfapp.accounting import diagnose
from sfapp.model.capture import PROFILED, CaptureState
from sfapp.operators import examine
from sfapp.operators.sampling import Sampling, SamplingState, observed, propose
from sfapp.packets import read_operators, read_packet_operators, read_windows
from sfapp.packets.captures import ask_for_capture, captures, new_id
from sfapp.packets.paths import operator_files_of, packet_path
from tests.forked_jobs import ForkedJob
from tests.forked_ranks import forked

pytestmark = pytest.mark.torchrun

JOB = Path(__file__).parent / "capture_jobs.py"
SLOW_RANK = 2
STEPS = 3
SECONDS = 150.0


def wait_for(what: str, found: object, deadline: float) -> None:
    assert time.monotonic() < deadline, f"{what} did not come"
    time.sleep(0.1)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CaptureState]:
    """A job that was captured because its first window called for it, and that has ended since."""
    root = tmp_path_factory.mktemp("packets")
    with ForkedJob(
        forked(4, JOB, root),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as job:
        try:
            state = capture_what_the_policy_asks_for(root)
        finally:
            (root / "enough").touch()
            _, errors = job.communicate(timeout=60)
    assert job.returncode == 0, errors[-3000:]
    return root, state


def capture_what_the_policy_asks_for(root: Path) -> CaptureState:
    deadline = time.monotonic() + SECONDS
    first = packet_path(root, "job", 0)
    while not first.exists():
        wait_for("the first window", first, deadline)
    window = read_windows([first]).windows[0].window
    now = datetime.now(UTC)
    settings = Sampling(steps=STEPS, suspects=1, peers=2)
    proposal = propose(observed(window, diagnose(window)), SamplingState(), settings, now, new_id(now))
    assert proposal.request is not None, proposal.reason
    assert SLOW_RANK in proposal.request.ranks
    ask_for_capture(root, proposal.request)
    while not (state := captures(root, "job")[0]).is_over:
        wait_for("the capture", state, deadline)
    return state


def test_exactly_the_ranks_asked_for_profile_exactly_the_same_steps(
    captured: tuple[Path, CaptureState],
) -> None:
    root, state = captured
    assert state.status == "done", state.why
    assert len(state.request.ranks) == 3
    assert state.ranks_done == state.request.ranks
    assert state.why == ""
    first = state.ranks[0].first_step
    assert first is not None
    assert {each.first_step for each in state.ranks} == {first}
    (window,) = state.windows
    files = operator_files_of([packet_path(root, "job", window)])
    assert [path.name for path in files] == [
        f"{window:08d}.rank{rank}.ops.parquet" for rank in state.request.ranks
    ]
    for path, rank in zip(files, state.request.ranks, strict=True):
        events = read_operators(path)
        assert events.ranks == (rank,)
        assert events.steps == tuple(range(first, first + STEPS))
    everywhere = list(root.rglob("*.ops.parquet"))
    assert sorted(everywhere) == files
    assert not list(root.rglob("*.trace.json*"))


def test_the_window_lists_its_profiled_steps(
    captured: tuple[Path, CaptureState],
) -> None:
    root, state = captured
    (number,) = state.windows
    first = state.ranks[0].first_step
    assert first is not None
    (found,) = read_windows([packet_path(root, "job", number)]).windows
    window = found.window
    marked = window.side[PROFILED].sampled_NR
    for place, rank in enumerate(window.ranks.rank):
        steps = window.step_N[marked[:, place]].tolist()
        assert steps == ([*range(first, first + STEPS)] if rank in state.request.ranks else [])
    assert window.manifest.faults == ("profiled_steps",)


def test_kair_names_the_operator_and_the_rank(captured: tuple[Path, CaptureState]) -> None:
    root, state = captured
    (number,) = state.windows
    events = read_packet_operators([packet_path(root, "job", number)])
    assert events is not None
    assert "gloo:all_reduce" in events.names or any("all_reduce" in name for name in events.names)
    cause = examine(events).blame.causes[0]
    assert cause.rank == SLOW_RANK
    assert cause.name.startswith("enumerate(DataLoader)")
    assert cause.holds_up


def test_nothing_went_wrong_on_any_rank(captured: tuple[Path, CaptureState]) -> None:
    root, _ = captured
    for rank in range(4):
        assert (root / f"rank{rank}.txt").read_text() == "()"
