"""``sfapp capture`` through the real command: asking, waiting, watching, and what cannot be asked."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO

import pytest
import torch

from sfapp.cli import main
from sfapp.model.capture import CaptureLimits
from sfapp.packets import packet_path, read_operators, write_packet
from sfapp.packets.captures import captures
from sfapp.packets.paths import operators_path
from sfapp.recorder import Recorder
from tests.builders import DATA, MS, ddp_job, window_of


def capture(*arguments: str | Path, expect: int = 0) -> str:
    """What the command says on stderr, by its entry point in this process."""
    out, error = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(error):
        patch.setattr(sys, "argv", ["sfapp", "capture", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == expect, error.getvalue()
    return error.getvalue()


def put(root: Path, number: int, run_id: str = "job", slow: int = 5, extra: int = 40) -> None:
    durations = ddp_job(steps=12, seed=number, extra={(DATA, slow): extra * MS})
    path = packet_path(root, run_id, number)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_packet(window_of(durations, run_id=run_id, window=number), path)


def test_it_asks_those_whom_the_newest_verdict_suspects(tmp_path: Path) -> None:
    put(tmp_path, 0, slow=2)
    put(tmp_path, 1, slow=5)
    output = capture(tmp_path, "--no-wait", "--steps", "3", "--suspects", "1", "--reason", "slow")
    (state,) = captures(tmp_path, "job")
    assert 5 in state.request.ranks
    assert len(state.request.ranks) == 3
    assert (state.request.steps, state.request.reason, state.request.first_step) == (3, "slow", None)
    assert f"requested 3 steps of rank {', '.join(map(str, state.request.ranks))} in run job" in output


def test_ranks_and_steps_can_be_named_and_the_folder_be_the_run_s_own(tmp_path: Path) -> None:
    put(tmp_path, 0)
    capture(tmp_path / "job", "job", "--ranks", "0,3-5", "--from-step", "70", "--no-wait")
    (state,) = captures(tmp_path, "job")
    assert (state.request.ranks, state.request.first_step) == ((0, 3, 4, 5), 70)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--ranks", "3-1"], "must be ranks and ranges"),
        (["--ranks", "a"], "must be ranks and ranges"),
        (["--steps", "21"], "not in the range"),
        (["--when", "severity>=5%"], "needs --watch"),
        (["--watch", "--when", "slow"], "is not a condition"),
        (["absent", "--ranks", "1"], "has no folder under"),
    ],
)
def test_invalid_requests_are_reported(tmp_path: Path, arguments: list[str], why: str) -> None:
    put(tmp_path, 0)
    assert why in capture(tmp_path, *arguments, expect=2)
    assert captures(tmp_path, "job") == []


def test_without_a_window_the_error_names_the_options(tmp_path: Path) -> None:
    assert "pass RUN and --ranks" in capture(tmp_path, expect=2)


def test_it_waits_and_prints_the_result(tmp_path: Path) -> None:
    enough = threading.Event()

    def train() -> None:
        limits = CaptureLimits(cooldown_seconds=60)
        with Recorder(tmp_path, run_id="mine", window_steps=20, captures=limits) as perf:
            while not enough.is_set():
                with perf.step(), perf.stage("model.fwd_loss_cpu_wall"):
                    torch.ones(8).sin()
                time.sleep(0.02)

    training = threading.Thread(target=train)
    training.start()
    try:
        deadline = time.monotonic() + 20
        while not packet_path(tmp_path, "mine", 0).exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        output = capture(tmp_path, "mine", "--ranks", "0", "--steps", "2")
        refused = capture(tmp_path, "mine", "--ranks", "0", expect=2)
    finally:
        enough.set()
        training.join(20)
    (window,) = captures(tmp_path, "mine")[0].windows
    assert f": done, rank 0 (1 of 1), in window {window}\n" in output
    assert "sin" in "".join(read_operators(operators_path(tmp_path, "mine", window, 0)).names)
    assert "nothing was captured: rank 0: the previous capture ended too recently" in refused


@contextmanager
def watching(root: Path, *options: str) -> Iterator[IO[str]]:
    """Run ``sfapp capture --watch`` within the block, and provide what it says after its first line."""
    command = [sys.executable, "-c", "from sfapp.cli import main; main()", "capture", str(root), "--watch"]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert "watching" in process.stderr.readline()
            yield process.stderr
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0


def test_it_watches_for_windows_that_call_for_a_capture(tmp_path: Path) -> None:
    put(tmp_path, 0, extra=0)
    with watching(tmp_path, "--steps", "2") as lines:
        for number in (1, 2, 3):
            put(tmp_path, number, extra=0)
        put(tmp_path, 4)
        line = lines.readline()
    assert line.startswith("job: requested ")
    assert "window 4: ranks' own work differs by" in line
    (state,) = captures(tmp_path, "job")
    assert 5 in state.request.ranks
    assert state.request.asked_by == "policy"


def test_it_watches_on_after_a_request_that_cannot_be_written(tmp_path: Path) -> None:
    put(tmp_path, 0, "blocked")
    (tmp_path / "blocked" / "captures").write_text("in the way")
    put(tmp_path, 0)
    with watching(tmp_path, "--when", "severity>=1%") as lines:
        put(tmp_path, 1, "blocked")
        refused = lines.readline()
        put(tmp_path, 1)
        line = lines.readline()
    assert refused.startswith("blocked: window 1: no capture was requested: ")
    assert line.startswith("job: requested ")
