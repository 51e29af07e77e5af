"""Where the system refuses threads, training goes on and every recorded step is on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sfapp.packets import read_windows
from tests.forked_programs import TORCH, run_forked

# Records 40 steps in windows of 10, with no thread from the first on or none at all, and prints the failures.
JOB = """
import json, sys, threading
import sfapp

output, stream, refused = sys.argv[1], sys.argv[2] or None, [sys.argv[3] == "always"]
name = "_start_new_thread" if hasattr(threading, "_start_new_thread") else "_start_joinable_thread"
really_start = getattr(threading, name)

def start(*arguments, **options):
    if refused[0]:
        raise RuntimeError("can't start new thread")
    return really_start(*arguments, **options)

setattr(threading, name, start)
refused[0] = True
perf = sfapp.Recorder(output, run_id="run", window_steps=10, stream=stream, timeout=5.0)
for step in range(40):
    if step == 25 and sys.argv[3] == "at first":
        refused[0] = False
    with perf.step(), perf.stage("data.next_wait"):
        pass
perf.close()
print(json.dumps({"failures": list(perf.failures), "written": len(perf.written)}))
"""

# Creates the recorder while the process may open no file.
NO_DESCRIPTORS_JOB = """
import contextlib, os, resource, sys, tempfile
import sfapp

with sfapp.Recorder(tempfile.mkdtemp(), run_id="warm", window_steps=10) as perf:  # Loads what is needed.
    for _ in range(20):
        with perf.step(), perf.stage("data.next_wait"):
            pass
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
with contextlib.suppress(OSError):
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
perf = sfapp.Recorder(sys.argv[1], run_id="run", window_steps=10)
for descriptor in held:
    os.close(descriptor)
for _ in range(20):
    with perf.step(), perf.stage("data.next_wait"):
        pass
perf.close()
print(perf.failures)
"""

# The same under a real limit, which binds every user but root.
LIMITED_JOB = """
import os, resource, sys, tempfile
import sfapp

with sfapp.Recorder(tempfile.mkdtemp(), run_id="warm", window_steps=10) as perf:  # Loads what is needed.
    for _ in range(20):
        with perf.step(), perf.stage("data.next_wait"):
            pass
os.setgid(65534)
os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
"""

# Streams after a first stream that loads what is needed, while the system lets the process have so many file
# descriptors, or threads, more.
FEW_LEFT_JOB = """
import contextlib, json, os, resource, sys, tempfile
import sfapp

output, kind, left = sys.argv[1], sys.argv[2], int(sys.argv[3])

def record(folder):
    stream = "tcp://127.0.0.1:9"
    with sfapp.Recorder(folder, run_id="run", window_steps=10, stream=stream, timeout=1.0) as perf:
        for _ in range(20):
            with perf.step(), perf.stage("data.next_wait"):
                pass
    return perf

record(tempfile.mkdtemp())
held = []
if kind == "threads":
    os.setgid(65534)
    os.setuid(60_000 + left)  # The limit counts the threads of a user, and no other process has these.
    running = len(os.listdir("/proc/self/task"))
    resource.setrlimit(resource.RLIMIT_NPROC, (running + left, running + left))
else:
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    with contextlib.suppress(OSError):
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    for _ in range(left):
        os.close(held.pop())
perf = record(output)
for descriptor in held:
    os.close(descriptor)
print(json.dumps({"failures": list(perf.failures)}))
"""


def run_job(output: Path, stream: str = "", refused: str = "always", code: str = JOB) -> dict[str, Any]:
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    result = run_forked(TORCH, code, output, stream, refused, env=os.environ | one_thread)
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def steps_in(output: Path) -> list[int]:
    loaded = read_windows([output])
    assert not loaded.quarantined
    return [step for found in loaded.windows for step in found.window.step_N.tolist()]


@pytest.mark.parametrize("refused", ["always", "at first"])
def test_a_recorder_without_threads_writes_every_step(refused: str, tmp_path: Path) -> None:
    job = run_job(tmp_path, refused=refused)

    assert steps_in(tmp_path) == list(range(40))
    for thread in ("sfapp-recorder", "sfapp-captures", "sfapp-sigterm"):
        assert job["failures"].count(f"the thread {thread} was not started: can't start new thread") == 1


@pytest.mark.parametrize("refused", ["always", "at first"])
def test_a_stream_without_threads_leaves_every_step_on_disk(refused: str, tmp_path: Path) -> None:
    job = run_job(tmp_path, "tcp://127.0.0.1:9", refused)

    assert steps_in(tmp_path) == list(range(40))
    for thread in ("sfapp-sender", "sfapp-system"):
        assert job["failures"].count(f"the thread {thread} was not started: can't start new thread") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user, to whom the limit applies")
def test_a_recorder_goes_on_under_a_real_limit_of_threads(tmp_path: Path) -> None:
    output = tmp_path / "packets"
    output.mkdir()
    for folder in (output, *output.parents[:3]):
        folder.chmod(0o777)

    job = run_job(output, code=LIMITED_JOB + JOB.replace("refused[0] = True", "refused[0] = False"))

    assert steps_in(output) == list(range(40))
    assert "the thread sfapp-recorder was not started: can't start new thread" in job["failures"]


def test_sigterm_still_ends_a_process_without_threads(tmp_path: Path) -> None:
    ends = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nprint('lives')"
    code = JOB.split("for step")[0] + ends

    result = run_forked(TORCH, code, tmp_path, "", "always")

    assert (result.returncode, result.stdout) == (-15, "")


def test_a_recorder_is_created_where_no_file_descriptor_is_left(tmp_path: Path) -> None:
    done = run_forked(TORCH, NO_DESCRIPTORS_JOB, tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "SIGTERM does not save rows" in done.stdout
    assert [len(item.window.step_N) for item in read_windows([tmp_path]).windows] == [10, 10]


@pytest.mark.parametrize("left", [6, 10, 12, 14])
def test_training_that_streams_goes_on_with_few_file_descriptors(left: int, tmp_path: Path) -> None:
    job = run_job(tmp_path / "packets", "descriptors", str(left), code=FEW_LEFT_JOB)

    assert any("Too many open files" in failure for failure in job["failures"])
    assert [len(item.window.step_N) for item in read_windows([tmp_path / "packets"]).windows] == [10, 10]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user, to whom the limit applies")
@pytest.mark.parametrize("left", [2, 3])
def test_training_that_streams_goes_on_with_few_threads(left: int, tmp_path: Path) -> None:
    output = tmp_path / "packets"
    output.mkdir()
    for folder in (output, *output.parents[:3]):
        folder.chmod(0o777)

    job = run_job(output, "threads", str(left), code=FEW_LEFT_JOB)

    assert steps_in(output) == list(range(20)), job["failures"]
