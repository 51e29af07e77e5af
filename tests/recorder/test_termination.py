"""SIGTERM: rows are saved, and the process dies as it would have without the recorder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import sfapp
from sfapp.packets import read_windows
from sfapp.recorder import Recorder
from tests.forked_programs import TORCH, ForkedProgram, run_forked
from tests.recorder.clocked_recorder import Clock, recorder

PROLOGUE = """
import hashlib, os, signal, sys, threading, time
import sfapp

def step(perf):
    with perf.step(), perf.stage("data.next_wait"):
        pass
"""

NATIVE = """
perf = sfapp.Recorder(sys.argv[1], run_id="run", window_steps=100)
for _ in range(3):
    step(perf)
print("ready", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000_000)  # out of Python's reach for many seconds
"""

AFTER_AN_EVENT_LOOP = """
import asyncio

async def serve():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)
""" + NATIVE.replace("for _", "asyncio.run(serve())\nfor _")

OWN_HANDLER = """
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
perf = sfapp.Recorder(sys.argv[1], run_id="run", window_steps=100)
step(perf)
print("ready", flush=True)
time.sleep(60)
"""

LATER_HANDLER = """
perf = sfapp.Recorder(sys.argv[1], run_id="run", window_steps=100)
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
step(perf)
print("ready", flush=True)
time.sleep(60)
"""

CALLING_HANDLER = """
received = []

def handle(number, frame):
    received.append(number)
    if callable(previous):  # The default action is not.
        previous(number, frame)

with sfapp.Recorder(sys.argv[1], run_id="run", window_steps=100) as perf:
    previous = signal.signal(signal.SIGTERM, handle)
    step(perf)
"""

HANDLED_AFTERWARDS = f"""
{CALLING_HANDLER}
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.5)
assert received
"""

HANDLED_IN_A_CHILD = f"""
{CALLING_HANDLER}    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)
        os._exit(0 if received else 1)
    assert os.waitpid(child, 0)[1] == 0
"""

CLOSED_FILES = """
perf = sfapp.Recorder(sys.argv[1], run_id="run", window_steps=100)
perf.watch_memory()
os.closerange(3, 256)  # as a daemon does
step(perf)
print("ready", flush=True)
time.sleep(60)
"""

BLOCKING_PIPE = """
perf = sfapp.Recorder(sys.argv[1], run_id="run", window_steps=100)
for descriptor in range(3, 256):
    try:
        os.set_blocking(descriptor, True)
    except OSError:
        pass
for _ in range(3):
    step(perf)
print("ready", flush=True)
time.sleep(60)
"""

CLOSED = """
perf = sfapp.Recorder(sys.argv[1], run_id="run", window_steps=100)
step(perf)
perf.close()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
assert signal.set_wakeup_fd(-1) == -1
print("ready", flush=True)
time.sleep(60)
"""

STREAMING = """
perf = sfapp.Recorder(sys.argv[1], run_id="run", window_steps=100, stream="tcp://127.0.0.1:1")
step(perf)
"""

CLOSING = f"""
{STREAMING}
threading.Timer(0.5, print, ["ready"], {{"flush": True}}).start()
perf.close()  # waits 3 s for an aggregator
"""

ENDING = """
perf = sfapp.Recorder(sys.argv[1], run_id="run", window_steps=10, stream="tcp://127.0.0.1:1")
for _ in range(1_000):
    step(perf)
print("ready", flush=True)
signal.raise_signal(signal.SIGTERM)
"""


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (NATIVE, -signal.SIGTERM),
        (AFTER_AN_EVENT_LOOP, -signal.SIGTERM),
        (OWN_HANDLER, 7),
        (LATER_HANDLER, 7),
        (CLOSED_FILES, -signal.SIGTERM),
        (BLOCKING_PIPE, -signal.SIGTERM),
        (CLOSED, -signal.SIGTERM),
        (CLOSING, -signal.SIGTERM),
    ],
    ids=[
        "in native code",
        "after an event loop",
        "own handler",
        "handler set later",
        "all files closed",
        "a pipe that blocks",
        "recorder closed",
        "closing a stream",
    ],
)
def test_sigterm_saves_the_rows_and_ends_the_process_as_before(
    tmp_path: Path, program: str, code: int
) -> None:
    with ForkedProgram(TORCH, PROLOGUE + program, tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        begin = time.monotonic()
        process.terminate()
        assert process.wait(30) == code
        assert time.monotonic() - begin < 5
    (window,) = (item.window for item in read_windows([tmp_path]).windows)
    assert window.manifest.closed_by == "shutdown"
    assert len(window.step_N) == (3 if "range(3)" in program else 1)


@pytest.mark.parametrize(
    "program", [HANDLED_AFTERWARDS, HANDLED_IN_A_CHILD], ids=["recorder closed", "forked child"]
)
def test_a_handler_that_calls_the_one_before_decides_whether_the_process_ends(
    tmp_path: Path, program: str
) -> None:
    ended = run_forked(TORCH, PROLOGUE + program, tmp_path, timeout=30)
    assert ended.returncode == 0, ended.stderr
    (window,) = (item.window for item in read_windows([tmp_path]).windows)
    assert len(window.step_N) == 1


def test_closing_leaves_alone_what_was_opened_after_all_files_were_closed(tmp_path: Path) -> None:
    begin, _, end = CLOSED_FILES.partition("step(perf)")
    others = "kept = [open(sys.executable, 'rb') for _ in range(100)]\nstep(perf)"
    closing = f"{begin}{others}{end}".replace("time.sleep(60)", "perf.close()")
    # No thread may have a file open while all are closed: it would close another one afterwards.
    closing = closing.replace("window_steps=100", "window_steps=100, captures=None")
    closing += "assert all(file.read(1) for file in kept)\n"  # None of those that were opened later.
    ended = run_forked(TORCH, PROLOGUE + closing, tmp_path, timeout=30)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    (window,) = (item.window for item in read_windows([tmp_path]).windows)
    assert len(window.step_N) == 1


def test_training_that_ends_while_its_stream_is_saved_loses_no_rows(tmp_path: Path) -> None:
    ended = run_forked(TORCH, PROLOGUE + ENDING, tmp_path, timeout=30)
    assert ended.returncode == -signal.SIGTERM
    assert sum(len(item.window.step_N) for item in read_windows([tmp_path]).windows) == 1_000


def test_ctrl_c_while_a_stream_closes_saves_the_rows(tmp_path: Path) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with ForkedProgram(TORCH, PROLOGUE + CLOSING, tmp_path, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == -signal.SIGINT
    (window,) = (item.window for item in read_windows([tmp_path]).windows)
    assert len(window.step_N) == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12 on, where threads run
def test_a_forked_child_can_be_terminated_alone(tmp_path: Path) -> None:
    """As a DataLoader's worker is: the recorder in the parent neither dies nor writes twice."""
    with sfapp.Recorder(tmp_path, run_id="run") as perf:
        with perf.step():
            pass
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGTERM
        with perf.step():
            pass
    (window,) = (item.window for item in read_windows([tmp_path]).windows)
    assert len(window.step_N) == 2


class AlarmingClock(Clock):
    """A clock that training's alarm reaches while the recorder looks at it, once it has been set."""

    is_set = False

    def __call__(self) -> int:
        if self.is_set:
            self.is_set = False
            signal.raise_signal(signal.SIGUSR1)
        return super().__call__()


def late(*arguments: object) -> None:
    raise TimeoutError("the step takes too long")


def test_what_a_signal_handler_raises_reaches_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGUSR1, late)
    try:
        clock = AlarmingClock()
        perf = recorder(tmp_path, clock)
        clock.is_set = True
        with pytest.raises(TimeoutError, match="too long"):
            perf.flush()
    finally:
        signal.signal(signal.SIGUSR1, before)
    perf.close()


def step_and_flush(perf: Recorder) -> None:
    with perf.step():
        perf.observe("loss", 1.0)
    perf.flush()


@pytest.mark.parametrize("reached", ["finish_step", "drop_events"])
def test_what_was_recorded_before_a_signal_handler_raised_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: str
) -> None:
    """Whether the signal comes while a step ends or while a window closes."""
    perf = recorder(tmp_path, Clock(), window_steps=100)

    def signalled(*arguments: object) -> None:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGUSR1)

    for _ in range(3):
        with perf.step():
            pass
    before = signal.signal(signal.SIGUSR1, late)
    try:
        monkeypatch.setattr(
            f"sfapp.recorder.side_channels.recorded_channels.RecordedChannels.{reached}", signalled
        )
        with pytest.raises(TimeoutError):
            step_and_flush(perf)
    finally:
        signal.signal(signal.SIGUSR1, before)
    perf.close()
    assert perf.failures == ("recording stopped: TimeoutError: the step takes too long",)
    (window,) = (item.window for item in read_windows([tmp_path]).windows)
    assert len(window.step_N) == (3 if reached == "finish_step" else 4)
