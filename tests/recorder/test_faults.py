"""What may go wrong around a recorder costs packets at worst, never the training."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfapp
from sfapp.model import Accumulation
from sfapp.packets import read_window, read_windows
from sfapp.recorder import Recorder
from sfapp.recorder.timing.contexts import UNCOUNTED
from tests.builders import BACKWARD, DATA, FORWARD
from tests.forked_programs import TORCH, run_forked
from tests.recorder.clocked_recorder import Clock, recorder, train

pytestmark = pytest.mark.usefixtures("hot_path")


def test_a_stage_on_another_thread_is_refused_and_disturbs_nothing(tmp_path: Path, clock: Clock) -> None:
    inside, done = threading.Event(), threading.Event()

    def stranger(perf: Recorder) -> None:
        with perf.stage(DATA):  # the very stage that the step has open
            inside.set()
            done.wait(10)

    with recorder(tmp_path, clock) as perf, perf.step():
        thread = threading.Thread(target=stranger, args=(perf,))
        with perf.stage(DATA):
            thread.start()
            assert inside.wait(10)
            clock.tick(100)
        with perf.stage(FORWARD):  # while the stranger is still inside
            clock.tick(30)
            done.set()
            thread.join()
        with perf.stage(BACKWARD):
            clock.tick(7)
    window = read_window(tmp_path)
    assert window.duration_SNR[1:4, 0, 0].tolist() == [100, 30, 7]
    assert window.manifest.faults == ("stage_on_another_thread",)


def test_two_recorders_in_one_process_leave_each_its_own_packets(tmp_path: Path, clock: Clock) -> None:
    with (
        Recorder(tmp_path, run_id="one", clock=clock) as one,
        Recorder(tmp_path, run_id="two", clock=clock) as two,
    ):
        for perf in (one, two):
            train(perf, clock)
        with one.step(), two.step(), one.stage(DATA), two.stage(FORWARD):
            clock.tick(50)
    first, second = (found.window for found in read_windows([tmp_path]).windows)
    assert (first.run_id, second.run_id) == ("one", "two")
    assert first.duration_SNR[1:3, 1, 0].tolist() == [50, 0]
    assert second.duration_SNR[1:3, 1, 0].tolist() == [0, 50]
    assert first.manifest.faults == second.manifest.faults == ()


def test_windows_of_one_step(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, window_steps=1, max_pending=8) as perf:
        train(perf, clock, steps=5)
    windows = [found.window for found in read_windows([tmp_path]).windows]
    assert [window.step_N.tolist() for window in windows] == [[step] for step in range(5)]
    assert sfapp.diagnose(windows[0]).steps == 1


def test_a_million_steps(tmp_path: Path) -> None:
    with Recorder(tmp_path, run_id="long", window_steps=50_000, max_pending=20) as perf:
        step = perf.step()
        for _ in range(1_000_000):
            with step:
                pass
    names = sorted(path.name for path in (tmp_path / "long").iterdir())
    assert len(names) == 20
    last = read_window(tmp_path / "long" / names[-1])
    assert last.step_N[-1] == 999_999
    assert last.manifest.faults == ()


def test_an_error_inside_a_stage_passes_through_and_the_next_step_is_whole(
    tmp_path: Path, clock: Clock
) -> None:
    with recorder(tmp_path, clock) as perf:
        with pytest.raises(OSError, match="no such sample"), perf.step(), perf.stage(DATA):
            raise OSError("no such sample")
        train(perf, clock)
    window = read_window(tmp_path)
    assert window.step_N.tolist() == [1]
    assert window.duration_SNR[:, 0, 0].tolist() == [0, 100, 200, 300, 400, 500, 7]
    assert window.manifest.faults == ()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_costs_the_windows_that_do_not_fit_and_nothing_else(
    small_disk: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 40_000)
    with recorder(small_disk, clock, max_pending=64) as perf:
        train(perf, clock, steps=3 * 30)
    written = read_windows([small_disk])
    assert perf.failures
    assert all("No space left on device" in failure for failure in perf.failures)
    # what is there is whole: no half-written file under a packet's name
    assert 0 < len(written.windows) < 30
    assert written.quarantined == ()
    # and the last message says how many are lost
    there = [loaded.window for loaded in written.windows]
    lost = [number for number in range(30) if number not in {one.number for one in there}]
    assert caplog.messages[-1] == (
        f"{len(lost)} windows of rank 0 were lost in all, from window {lost[0]} to window {lost[-1]}: they "
        "could not be written"
    )


HUNG = """
import os, sys, time
import sfapp

os.fsync = lambda file: time.sleep(30)  # a file system that does not come back
perf = sfapp.Recorder(sys.argv[1], run_id="hung", window_steps=2, max_pending=2, timeout=1.0)
begin = time.monotonic()
for _ in range(2_000):
    with perf.step():
        pass
trained = time.monotonic() - begin
perf.close()
print(trained, time.monotonic() - begin)
"""


def test_a_hung_file_system_delays_training_by_nothing_and_its_end_by_the_timeout(tmp_path: Path) -> None:
    begin = time.monotonic()
    ended = run_forked(TORCH, HUNG, tmp_path, timeout=100)
    assert ended.returncode == 0, ended.stderr
    trained, closed = map(float, ended.stdout.split())
    assert trained < 5
    assert closed < 15
    assert "windows that were not on disk yet when recording ended: " in ended.stderr
    assert time.monotonic() - begin < 25  # and the process ends: its thread does not hold it


def test_a_stage_is_known_to_another_thread_also_while_a_micro_step_begins(
    tmp_path: Path, clock: Clock
) -> None:
    unknown, done = 0, threading.Event()

    def look() -> None:
        nonlocal unknown
        while not done.is_set():
            unknown += perf.stage(DATA) is UNCOUNTED

    between = sys.getswitchinterval()
    with recorder(tmp_path, clock, accumulation=Accumulation(factor=2)) as perf:
        other = threading.Thread(target=look)
        sys.setswitchinterval(1e-6)
        try:
            other.start()
            for _ in range(5_000):
                with perf.step():
                    for micro in range(2):
                        with perf.micro_step(micro):
                            pass
        finally:
            sys.setswitchinterval(between)
            done.set()
            other.join()
    assert unknown == 0


def test_no_thread_outlives_close(tmp_path: Path, clock: Clock) -> None:
    before = set(threading.enumerate())
    perf = recorder(tmp_path, clock)
    train(perf, clock)
    perf.close()
    assert set(threading.enumerate()) == before


def test_a_worker_forked_in_the_middle_of_a_step_writes_nothing_of_its_own(
    tmp_path: Path, clock: Clock
) -> None:
    with recorder(tmp_path, clock) as perf:
        with perf.step(), perf.stage(DATA):
            child = os.fork()
            if child == 0:
                perf.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            clock.tick(5)
        assert not list(tmp_path.rglob("*.parquet"))
        train(perf, clock)
    assert read_window(tmp_path).step_N.tolist() == [0, 1]
