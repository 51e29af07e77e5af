"""Host evidence that is read from files: control groups and pressure, from time to time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sfapp.model.host_evidence import EVIDENCE_KEY, MEMORY_PRESSURE, THROTTLED
from sfapp.packets import host_files, read_window
from sfapp.recorder.side_channels.host_evidence import INTERVAL_NS
from tests.recorder.clocked_recorder import Clock
from tests.recorder.test_host_evidence import linux, recorder


class SlowClock(Clock):
    """A clock of a machine on which every look at it, and what lies between, takes 0.1 ms."""

    def __call__(self) -> int:
        self.tick(100_000)
        return self.now


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a file into the simulated ``/proc`` and ``/sys/fs/cgroup``, which are empty at first."""
    root = tmp_path / "machine"
    monkeypatch.setattr(host_files, "_PROC", root / "proc")
    monkeypatch.setattr(host_files, "_CGROUP", root / "cgroup")

    def put(name: str, content: str) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    return put


def psi(total: int) -> str:
    return f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 total=7\n"


class TestFiles:
    def test_a_system_without_them_states_the_reason_and_records_the_rest(
        self, tmp_path: Path, machine: Callable[[str, str], None]
    ) -> None:
        with recorder(tmp_path) as perf:
            for _ in range(3):
                with perf.step():
                    pass
        window = read_window(tmp_path)
        stated = window.manifest.extra[EVIDENCE_KEY]
        assert sorted(stated["unavailable"]) == ["block_io", "pressure", "runnable", "throttled"]
        assert stated["unavailable"]["throttled"].endswith("no control group with a quota of CPU time")
        assert window.manifest.faults == ()
        assert {name for name in window.side if "pressure" in name or "throttled" in name} == set()

    def test_what_is_read_from_time_to_time_is_the_increase_on_the_step_of_the_reading(
        self, tmp_path: Path, clock: Clock, machine: Callable[[str, str], None], hot_path: str
    ) -> None:
        machine("proc/self/cgroup", "0::/job/rank\n")
        machine("proc/pressure/cpu", psi(0))
        machine("proc/pressure/memory", psi(10))
        machine("cgroup/job/rank/cpu.stat", "usage_usec 5\nnr_throttled 0\nthrottled_usec 0\n")
        machine("cgroup/job/cpu.stat", "throttled_usec 100\n")
        machine("cgroup/cpu.stat", "usage_usec 5\n")
        with recorder(tmp_path, clock=clock, evidence=["throttled", "pressure"]) as perf:
            for step in range(6):
                with perf.step():
                    clock.tick(INTERVAL_NS // 2)
                machine("cgroup/job/rank/cpu.stat", f"throttled_usec {1000 * (step + 1)}\n")
                machine("cgroup/job/cpu.stat", f"throttled_usec {100 + 500 * (step + 1)}\n")
                machine("proc/pressure/memory", psi(10 + 4000 * (step + 1)))
        window = read_window(tmp_path)
        throttled = window.side[THROTTLED]
        assert throttled.sampled_NR[:, 0].tolist() == [False, False, True, False, True, False]
        assert [throttled.value_NR[step, 0] for step in (2, 4)] == [3.0, 3.0]
        assert [window.side[MEMORY_PRESSURE].value_NR[step, 0] for step in (2, 4)] == [8.0, 8.0]
        assert window.manifest.extra[EVIDENCE_KEY]["recorded"] == ["throttled", "pressure"]

    @pytest.mark.parametrize("throttled_us", [0, 1_000])
    def test_slow_files_are_read_rarely_until_the_thread_is_throttled(
        self, tmp_path: Path, machine: Callable[[str, str], None], throttled_us: int
    ) -> None:
        """A few readings of a window could not show that its late steps are the throttled ones."""
        clock = SlowClock()
        machine("proc/self/cgroup", "0::/job\n")
        machine("cgroup/job/cpu.stat", "throttled_usec 0\n")
        with recorder(tmp_path, clock=clock, evidence=["throttled"]) as perf:
            for step in range(20):
                machine("cgroup/job/cpu.stat", f"throttled_usec {step * throttled_us}\n")
                with perf.step():
                    clock.tick(INTERVAL_NS)
        readings = read_window(tmp_path).side[THROTTLED].sampled_NR[:, 0]
        assert readings.sum() == pytest.approx(14 if throttled_us else 4, abs=1)

    def test_control_groups_of_the_first_version_count_too(
        self, tmp_path: Path, clock: Clock, machine: Callable[[str, str], None]
    ) -> None:
        machine("proc/self/cgroup", "5:cpu,cpuacct:/box\n1:name=systemd:/box\n")
        machine("cgroup/cpu,cpuacct/box/cpu.stat", "nr_periods 1\nthrottled_time 1000000\n")
        (file,) = host_files.throttling_files()
        assert file.read() == 1_000_000
        file.close()

    @pytest.mark.parametrize("content", ["", "some", "full total=3\n", "some total=x\n"])
    def test_a_file_of_another_form_is_unavailable(
        self, machine: Callable[[str, str], None], content: str
    ) -> None:
        machine("proc/pressure/io", content)
        with pytest.raises((OSError, ValueError)):
            host_files.pressure_file("io")

    def test_files_that_vanish_end_their_channel_and_nothing_else(
        self, tmp_path: Path, clock: Clock, machine: Callable[[str, str], None]
    ) -> None:
        machine("proc/self/cgroup", "0::/\n")
        machine("cgroup/cpu.stat", "throttled_usec 0\n")
        with recorder(tmp_path, clock=clock, evidence=["throttled"]) as perf:
            for step in range(4):
                with perf.step():
                    clock.tick(INTERVAL_NS)
                if step == 1:
                    machine("cgroup/cpu.stat", "")
        window = read_window(tmp_path)
        assert window.side[THROTTLED].sampled_NR[:, 0].tolist() == [False, True, False, False]
        assert len(window.step_N) == 4

    @linux
    def test_all_files_are_closed_with_the_recorder(self, tmp_path: Path) -> None:
        with recorder(tmp_path) as perf, perf.step():
            pass
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with recorder(tmp_path) as perf, perf.step():
                pass
        assert len(os.listdir("/proc/self/fd")) <= before
