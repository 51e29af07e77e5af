"""System readings match the machine; unreadable values are absent, with a reason."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.model.rank_table import RankIdentity
from sfapp.model.samples import AnySample, GpuSample, NodeSample, ProcessSample
from sfapp.stream.counter_rates import CounterRates
from sfapp.stream.system_readings import (
    MAX_QUEUED,
    GpuSampler,
    NodeSampler,
    ProcessSampler,
    SamplingThread,
    throttle_reasons,
)

SECOND = 10**9
LEADER = RankIdentity(rank=4, local_rank=0, node_rank=1, hostname="b")
FOLLOWER = replace(LEADER, rank=5, local_rank=1)


def test_node_samples_match_the_system() -> None:
    sampler = NodeSampler(LEADER)
    sampler.sample(SECOND)
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:  # one core of several is busy
        pass
    sample = sampler.sample(2 * SECOND)
    assert (sample.node_rank, sample.hostname, sample.at_ns) == (1, "b", 2 * SECOND)
    assert sample.memory_total_bytes == psutil.virtual_memory().total
    assert sample.memory_used_bytes is not None
    assert 0 < sample.memory_used_bytes < sample.memory_total_bytes
    assert sample.cpu_percent is not None
    assert 0 < sample.cpu_percent <= 100
    assert sample.load_1min is not None
    assert sample.network_received_bytes_per_s is not None


def test_process_samples_match_this_process(tmp_path: Path) -> None:
    sampler = ProcessSampler(FOLLOWER)
    before = sampler.sample(SECOND)
    with (tmp_path / "written").open("wb") as file:
        file.write(b"x" * 2**20)
        file.flush()
        os.fsync(file.fileno())
        held = threading.Event()
        thread = threading.Thread(target=held.wait)
        thread.start()
        after = sampler.sample(2 * SECOND)
        held.set()
        thread.join()
    assert (after.rank, after.node_rank) == (5, 1)
    assert before.threads is not None
    assert after.threads == before.threads + 1
    assert before.open_files is not None
    assert after.open_files == before.open_files + 1
    assert after.rss_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    assert before.written_bytes_per_s is None


def test_a_missing_driver_is_given_as_the_reason() -> None:
    sampler = GpuSampler(0)
    if sampler.no_gpu_because is None:
        pytest.skip("this machine has a GPU")
    assert sampler.no_gpu_because == "no NVIDIA driver on this node"
    assert sampler.sample(1) == []
    sampler.close()


@pytest.mark.gpu
def test_gpu_samples_match_the_driver() -> None:
    sampler = GpuSampler(3)
    if sampler.no_gpu_because is not None:
        pytest.skip(sampler.no_gpu_because)
    sample, *_ = sampler.sample(7)
    assert (sample.node_rank, sample.gpu, sample.at_ns) == (3, 0, 7)
    assert "NVIDIA" in sample.name
    assert sample.memory_total_bytes is not None
    assert sample.memory_used_bytes is not None
    assert 0 < sample.memory_used_bytes <= sample.memory_total_bytes
    assert sample.temperature_celsius is not None
    assert 0 < sample.temperature_celsius < 120
    assert sample.power_watts is not None
    assert 0 < sample.power_watts < 2000
    assert sample.utilisation_percent is not None
    assert sample.sm_clock_mhz is not None
    assert sample.memory_clock_mhz is not None
    sampler.close()


class RefusedError(Exception):
    """The error that NVML raises for unsupported values."""


def refuse(*_: object) -> object:
    raise RefusedError("not supported")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A simulated NVML with one old device, which returns bytes and refuses a value."""
    library = SimpleNamespace(
        NVMLError=RefusedError,
        NVMLError_LibraryNotFound=type("NVMLError_LibraryNotFound", (RefusedError,), {}),
        NVML_TEMPERATURE_GPU=0,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        nvmlClocksEventReasonSwPowerCap=4,
        nvmlClocksThrottleReasonSwPowerCap=4,
        nvmlClocksThrottleReasonHwThermalSlowdown=64,
        nvmlClocksThrottleReasonGpuIdle=1,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda device: b"Old",
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=5, total=8),
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=87, memory=3),
        nvmlDeviceGetPowerUsage=lambda device: 250_500,
        nvmlDeviceGetTemperature=lambda device, sensor: 61,
        nvmlDeviceGetClockInfo=lambda device, clock: {1: 1410, 2: 1215}[clock],
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda device: 64 | 4 | 1,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def test_values_have_the_units_of_their_names(nvml: SimpleNamespace) -> None:
    sampler = GpuSampler(2)
    assert sampler.no_gpu_because is None
    assert sampler.sample(9) == [
        GpuSample(
            at_ns=9,
            node_rank=2,
            gpu=0,
            name="Old",
            utilisation_percent=87.0,
            memory_used_bytes=5,
            memory_total_bytes=8,
            temperature_celsius=61.0,
            power_watts=250.5,
            sm_clock_mhz=1410.0,
            memory_clock_mhz=1215.0,
            throttle_reasons=("sw_power_cap", "hw_thermal_slowdown"),
        )
    ]


def test_values_that_the_driver_refuses_are_absent(nvml: SimpleNamespace) -> None:
    nvml.nvmlDeviceGetPowerUsage = nvml.nvmlDeviceGetCurrentClocksThrottleReasons = refuse
    (sample,) = GpuSampler(2).sample(9)
    assert (sample.power_watts, sample.throttle_reasons, sample.temperature_celsius) == (None, (), 61.0)


def test_a_failing_driver_is_given_as_the_reason(nvml: SimpleNamespace) -> None:
    nvml.nvmlInit = refuse
    assert GpuSampler(0).no_gpu_because == "NVML: not supported"
    nvml.nvmlInit, nvml.nvmlDeviceGetCount = (lambda: None), (lambda: 0)
    assert GpuSampler(0).no_gpu_because == "the NVIDIA driver reports no GPU"


def test_throttle_reasons_are_named_as_in_nvml() -> None:
    pynvml = pytest.importorskip("pynvml")
    found = throttle_reasons(vars(pynvml))
    assert set(found.values()) >= {"sw_power_cap", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
    assert not set(found.values()) & {"gpu_idle", "none", "all"}
    assert all(bit & (bit - 1) == 0 for bit in found)


@given(st.lists(st.tuples(st.integers(1, 10**10), st.integers(0, 2**62)), min_size=2, max_size=10))
def test_a_rate_is_the_increase_per_second_and_never_negative(readings: list[tuple[int, int]]) -> None:
    at_ns, before = 0, None
    rates = CounterRates(lambda: at_ns)
    for elapsed_ns, value in readings:
        at_ns += elapsed_ns
        rate = rates.of({"read": value})["read"]
        if before is None or value < before:
            assert rate is None
        else:
            assert rate == pytest.approx((value - before) * 1e9 / elapsed_ns)
        before = value


def watched(identity: RankIdentity, count: int) -> list[AnySample]:
    """Return the first samples of a sampling thread, which is then closed."""
    thread = SamplingThread(identity, deque(maxlen=16), period_s=0.02)
    thread.start()
    found: list[AnySample] = []
    deadline = time.monotonic() + 10
    while len(found) < count and time.monotonic() < deadline:
        found += thread.take()
        time.sleep(0.005)
    thread.close()
    thread.close()
    assert not thread.failures
    assert "sfapp-system" not in {thread.name for thread in threading.enumerate()}
    return found


def test_the_nodes_leader_samples_the_node_too() -> None:
    kinds = {type(sample) for sample in watched(LEADER, 4)}
    assert kinds >= {NodeSample, ProcessSample}
    (reason, *_) = [sample.no_gpu_because for sample in watched(LEADER, 2) if isinstance(sample, NodeSample)]
    assert reason is None or "NVIDIA" in reason


def test_other_ranks_sample_their_process_only() -> None:
    assert {type(sample) for sample in watched(FOLLOWER, 3)} == {ProcessSample}


def test_samples_that_are_not_taken_are_dropped_and_counted() -> None:
    thread = SamplingThread(FOLLOWER, deque())
    for at_ns in range(MAX_QUEUED + 5):
        thread._append(ProcessSample(at_ns=at_ns, node_rank=0, rank=0))
    kept = thread.take()
    assert (len(kept), kept[0].at_ns, thread.dropped) == (MAX_QUEUED, 5, 5)
    assert thread.take() == []


def test_a_failing_system_is_sampled_again_without_disturbing_training() -> None:
    times = iter([SECOND, None, 2 * SECOND])

    def read_clock() -> int:
        at_ns = next(times)
        if at_ns is None:
            raise OSError("the clock cannot be read")
        return at_ns

    thread = SamplingThread(FOLLOWER, deque(), period_s=0.01, now_ns=read_clock)
    thread.start()
    deadline = time.monotonic() + 10
    found: list[AnySample] = []
    while len(found) < 2 and time.monotonic() < deadline:
        found += thread.take()
        time.sleep(0.005)
    thread.close()
    assert [sample.at_ns for sample in found] == [SECOND, 2 * SECOND]
    assert thread.failures[0].startswith("OSError")
