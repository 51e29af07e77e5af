"""Read metrics of the machine, its GPUs and this process, once a second on a separate thread.

Node metrics come from the node's leader, process metrics from each rank. Metrics that cannot be read (no GPU,
no permission, another operating system) are None. Nothing here raises into training or blocks it, and only a
few minutes of samples are kept.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from sfapp.errors import MissingExtraError
from sfapp.model.rank_table import RankIdentity
from sfapp.model.samples import AnySample, GpuSample, NodeSample, ProcessSample
from sfapp.packets.host_files import (
    HostFile,
    machine_pressure_file,
    runnable_ns,
    task_file,
    throttling_files,
)
from sfapp.packets.threads import start_or_note
from sfapp.stream.counter_rates import CounterRates, NanosecondClock, ShareFiles, Value, read_or_none

PERIOD_S = 1.0
MAX_QUEUED = 1024
"""Maximum number of queued samples; above it, the oldest are dropped and counted."""

_THROTTLE_PREFIXES = ("nvmlClocksEventReason", "nvmlClocksThrottleReason")
_NO_REASON = frozenset({"All", "None", "GpuIdle"})


class NodeSampler:
    """Sampler of the whole machine, with psutil."""

    def __init__(self, identity: RankIdentity) -> None:
        """Start counting.

        Raises:
            MissingExtraError: psutil is not installed.
        """
        self._psutil = _psutil()
        self._identity = identity
        self._rates = CounterRates()
        self._shares = ShareFiles(
            {
                f"{resource}_pressure_percent": partial(_machine_pressure, resource)
                for resource in ("cpu", "memory", "io")
            }
        )
        self._read(lambda: self._psutil.cpu_percent(None))  # baseline of the next reading

    def sample(self, at_ns: int, no_gpu_because: str | None = None) -> NodeSample:
        """Return a sample.

        Args:
            at_ns: the current time, ns since 1970.
            no_gpu_because: why the node's GPUs cannot be read, if so.
        """
        memory = self._read(self._psutil.virtual_memory)
        load = self._read(self._psutil.getloadavg)
        rates: dict[str, Any] = self._rates.of(self._counters())
        return NodeSample(
            at_ns=at_ns,
            node_rank=self._identity.node_rank,
            hostname=self._identity.hostname,
            cpu_percent=self._read(lambda: float(self._psutil.cpu_percent(None))),
            load_1min=None if load is None else load[0],
            memory_used_bytes=None if memory is None else memory.total - memory.available,
            memory_total_bytes=None if memory is None else memory.total,
            no_gpu_because=no_gpu_because,
            **rates,
        )

    def close(self) -> None:
        """Close the open files."""
        self._shares.close()

    def _counters(self) -> dict[str, float]:
        found = self._shares.counters()
        disks = self._read(self._psutil.disk_io_counters)
        if disks is not None:
            found["disk_read_bytes_per_s"] = disks.read_bytes
            found["disk_written_bytes_per_s"] = disks.write_bytes
        interfaces = self._read(lambda: self._psutil.net_io_counters(pernic=True))
        if interfaces is not None:
            outer = [counted for name, counted in interfaces.items() if not _is_loopback(name)]
            found["network_received_bytes_per_s"] = sum(counted.bytes_recv for counted in outer)
            found["network_sent_bytes_per_s"] = sum(counted.bytes_sent for counted in outer)
            found["network_errors_per_s"] = sum(counted.errin + counted.errout for counted in outer)
            found["network_drops_per_s"] = sum(counted.dropin + counted.dropout for counted in outer)
        return found

    def _read(self, read: Callable[[], Value]) -> Value | None:
        return read_or_none(read, (self._psutil.Error,))


class ProcessSampler:
    """Sampler of the process of this rank, with psutil."""

    def __init__(self, identity: RankIdentity) -> None:
        """Start counting, as ``NodeSampler``."""
        self._psutil = _psutil()
        self._identity = identity
        self._process = self._psutil.Process()
        self._rates = CounterRates()
        self._shares = ShareFiles(
            {
                "runnable_percent": lambda: [HostFile(task_file(os.getpid(), "schedstat"), runnable_ns)],
                "throttled_percent": throttling_files,
            }
        )
        self._read(self._process.cpu_percent)

    def sample(self, at_ns: int) -> ProcessSample:
        """Return a sample."""
        process = self._process
        with process.oneshot():
            memory = self._read(process.memory_info)
            counted = self._read(process.io_counters) if hasattr(process, "io_counters") else None
            counters = self._shares.counters()
            if counted is not None:
                counters["read_bytes_per_s"] = counted.read_bytes
                counters["written_bytes_per_s"] = counted.write_bytes
            if (faults := _major_faults()) is not None:
                counters["major_faults_per_s"] = faults
            return ProcessSample(
                at_ns=at_ns,
                node_rank=self._identity.node_rank,
                rank=self._identity.rank,
                cpu_percent=self._read(process.cpu_percent),
                rss_bytes=None if memory is None else memory.rss,
                threads=self._read(process.num_threads),
                open_files=self._read(process.num_fds) if hasattr(process, "num_fds") else None,
                **self._rates.of(counters),
            )

    def close(self) -> None:
        """Close the open files."""
        self._shares.close()

    def _read(self, read: Callable[[], Value]) -> Value | None:
        return read_or_none(read, (self._psutil.Error,))


class GpuSampler:
    """Sampler of every GPU of the node, with NVML.

    Attributes:
        no_gpu_because: why no GPU can be read, or None.
    """

    def __init__(self, node_rank: int) -> None:
        self._node_rank = node_rank
        self._nvml: Any = None
        self._devices: list[Any] = []
        self._reasons: dict[int, str] = {}
        self.no_gpu_because = self._open()

    def sample(self, at_ns: int) -> list[GpuSample]:
        """Return a sample of each GPU."""
        return [self._sample_one(at_ns, index, device) for index, device in enumerate(self._devices)]

    def close(self) -> None:
        """Shut down NVML."""
        if self._nvml is not None:
            self._read(self._nvml.nvmlShutdown)
            self._nvml, self._devices = None, []

    def _open(self) -> str | None:
        try:
            pynvml = importlib.import_module("pynvml")
        except ImportError:
            return "nvidia-ml-py is not installed: pip install 'sfapp[stream]'"
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except pynvml.NVMLError_LibraryNotFound:
            return "no NVIDIA driver on this node"
        except pynvml.NVMLError as error:
            return f"NVML: {error}"
        self._nvml, self._devices = pynvml, devices
        self._reasons = throttle_reasons(vars(pynvml))
        return None if devices else "the NVIDIA driver reports no GPU"

    def _sample_one(self, at_ns: int, index: int, device: Any) -> GpuSample:
        nvml, read = self._nvml, self._read
        memory = read(lambda: nvml.nvmlDeviceGetMemoryInfo(device))
        used = read(lambda: nvml.nvmlDeviceGetUtilizationRates(device))
        milliwatts = read(lambda: nvml.nvmlDeviceGetPowerUsage(device))
        name = read(lambda: nvml.nvmlDeviceGetName(device))
        throttled_by = read(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)) or 0
        return GpuSample(
            at_ns=at_ns,
            node_rank=self._node_rank,
            gpu=index,
            name=name.decode(errors="replace") if isinstance(name, bytes) else name or "",
            utilisation_percent=None if used is None else float(used.gpu),
            memory_used_bytes=None if memory is None else memory.used,
            memory_total_bytes=None if memory is None else memory.total,
            temperature_celsius=_float(
                read(lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))
            ),
            power_watts=None if milliwatts is None else milliwatts / 1000,
            sm_clock_mhz=_float(read(lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM))),
            memory_clock_mhz=_float(read(lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM))),
            throttle_reasons=tuple(name for bit, name in sorted(self._reasons.items()) if throttled_by & bit),
        )

    def _read(self, read: Callable[[], Value]) -> Value | None:
        return read_or_none(read, (self._nvml.NVMLError,))


class SamplingThread:
    """Thread that samples this process, and on the node's leader also the node and its GPUs.

    Attributes:
        dropped: samples that were not taken in time.
        failures: receives a message for each failure.
    """

    def __init__(
        self,
        identity: RankIdentity,
        failures: deque[str],
        period_s: float = PERIOD_S,
        now_ns: NanosecondClock = time.time_ns,
    ) -> None:
        """Create the thread; ``start`` starts it."""
        self._identity = identity
        self._period_s = period_s
        self._now_ns = now_ns
        self._queue: deque[AnySample] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sfapp-system", daemon=True)
        self.dropped = 0
        self.failures = failures

    def start(self) -> None:
        """Start the thread once. If the system refuses it, there are no samples."""
        start_or_note(self._thread, self.failures)

    def take(self) -> list[AnySample]:
        """Return the samples since the last call, oldest first."""
        return [self._queue.popleft() for _ in range(len(self._queue))]

    def close(self, timeout_s: float = 1.0) -> None:
        """Stop the thread, waiting at most this long. Safe to call again."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _append(self, sample: AnySample) -> None:
        if len(self._queue) >= MAX_QUEUED:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(sample)

    def _run(self) -> None:
        try:
            read_all, finish = self._readers()
        except Exception as error:  # fail-open: training continues without these metrics
            self.failures.append(f"no system metrics: {type(error).__name__}: {error}")
            return
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + self._period_s, time.monotonic())
            try:
                for sample in read_all(self._now_ns()):
                    self._append(sample)
            except Exception as error:  # fail-open
                self.failures.append(f"{type(error).__name__}: {error}")
        finish()

    def _readers(self) -> tuple[Callable[[int], list[AnySample]], Callable[[], None]]:
        process = ProcessSampler(self._identity)
        if not is_node_leader(self._identity):
            return (lambda at_ns: [process.sample(at_ns)]), process.close
        node, gpus = NodeSampler(self._identity), GpuSampler(self._identity.node_rank)

        def read_all(at_ns: int) -> list[AnySample]:
            return [process.sample(at_ns), node.sample(at_ns, gpus.no_gpu_because), *gpus.sample(at_ns)]

        def close_all() -> None:
            for sampler in (process, node, gpus):
                sampler.close()

        return read_all, close_all


def is_node_leader(identity: RankIdentity) -> bool:
    """Return whether a rank is the one that samples its node."""
    return identity.local_rank == 0


def _machine_pressure(resource: str) -> list[HostFile]:
    return [machine_pressure_file(resource)]


def _major_faults() -> int | None:
    """Return the major page faults of this process so far; None if the system does not count them."""
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:
        return None
    return getrusage(RUSAGE_SELF).ru_majflt


def throttle_reasons(constants: Mapping[str, Any]) -> dict[int, str]:
    """Return NVML's throttle reasons by their bit, named like ``sw_power_cap``; idling is left out."""
    found: dict[int, str] = {}
    for prefix in _THROTTLE_PREFIXES:
        for name, bit in constants.items():
            short = name.removeprefix(prefix)
            if name.startswith(prefix) and isinstance(bit, int) and short not in _NO_REASON:
                found.setdefault(bit, _snake(short))
    return found


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _is_loopback(interface: str) -> bool:
    return interface == "lo" or interface.startswith(("lo0", "Loopback"))


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _psutil() -> ModuleType:
    try:
        return importlib.import_module("psutil")
    except ImportError:
        raise MissingExtraError("system metrics need psutil: pip install 'sfapp[stream]'") from None
