"""Record host evidence: what the operating system says about the training thread (packet.md, ``host.*``).

The timers read the CPU time at the boundaries of stages and the thread's counters at the end of a step
(``timing.host_counters``), on short steps in one of four; they become side channels here, in batches when
rows are copied. What takes longer to read is read at most every ``INTERVAL_NS``. Files are opened once. What
the system forbids is stated once in the packet and not tried again. Nothing here raises into training.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import get_native_id
from time import thread_time_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.errors import RecorderError, describe_error
from sfapp.model.host_evidence import (
    BLOCK_IO,
    CPU_PRESSURE,
    EVIDENCE,
    EVIDENCE_KINDS,
    IO_PRESSURE,
    MEMORY_PRESSURE,
    THROTTLED,
    EvidenceKind,
    cpu_channels,
    kinds_among,
)
from sfapp.model.stages import MAX_NAME_LENGTH
from sfapp.packets.host_files import (
    HostFile,
    accounts_delays,
    block_io_ns,
    pressure_file,
    runnable_ns,
    task_file,
    throttling_files,
)
from sfapp.packets.window_rows import FIRST_STAGE_COLUMN, WALL_COLUMN, Rows, Values, unsampled
from sfapp.recorder.timing.host_counters import HOST_CELLS, NOT_READ, thread_usage
from sfapp.recorder.timing.timer_backend import new_collection_timer
from sfapp.recorder.timing.timers import NEVER, StepState

VARIABLE = "SFAPP_EVIDENCE"
"""Environment variable: the kinds to record, separated by commas, instead of those of the options; ``off``
for none."""

INTERVAL_NS, LONGEST_INTERVAL_NS = 100_000_000, 1_000_000_000
READING_SHARE = 5_000
"""What is read from time to time is read this many times as long after a reading as the reading took, within
both intervals: it takes 0.02 % of the time, on machines with slow files, too. While the thread is throttled,
it is read at every ``INTERVAL_NS``."""

MAX_CPU_STAGES = 64
"""Maximum number of recorded stages, up to which their CPU time is recorded."""

UNIT = 1024
"""Values in ms are multiples of 1/1024, about 1 µs: their last bytes are zero, which compresses well."""

_STEP_KINDS: tuple[EvidenceKind, ...] = ("gc", "runnable", "switches", "faults")
_STEP_CHANNELS = tuple(channel for kind in _STEP_KINDS for channel in EVIDENCE[kind])

_PRESSURES = {CPU_PRESSURE: "cpu", MEMORY_PRESSURE: "memory", IO_PRESSURE: "io"}

Chosen = bool | Collection[str]


def chosen_kinds(option: Chosen, variable: str) -> tuple[EvidenceKind, ...]:
    """Return the kinds of evidence to record.

    Args:
        option: the recorder's option: all kinds, none, or these.
        variable: value of ``VARIABLE``; names that are no kind are ignored, empty to use the option.

    Raises:
        RecorderError: the option names something else.
    """
    names = {name.strip().lower() for name in variable.split(",")} - {""}
    if names:
        return EVIDENCE_KINDS if names & {"on", "all"} else kinds_among(names)
    if isinstance(option, bool):
        return EVIDENCE_KINDS if option else ()
    unknown = [name for name in option if name not in EVIDENCE_KINDS]
    if isinstance(option, str) or unknown:
        raise RecorderError(
            f"evidence must be True, False or some of {', '.join(EVIDENCE_KINDS)}, not {option!r:.80}"
        )
    return kinds_among(option)


class IntervalReadings:
    """Counters that are read from time to time."""

    def __init__(self) -> None:
        self._files: dict[str, list[HostFile]] = {}
        self._last: dict[str, int] = {}

    def open(self, name: str, open_files: Callable[[], list[HostFile]]) -> None:
        """Add a channel whose value is the increase of the sum of some files' counters.

        Raises:
            OSError, ValueError: a file cannot be read.
        """
        self._files[name] = open_files()

    def read(self) -> Iterator[tuple[str, float]]:
        """Yield the increase of each channel since the last call, in ms; the first call yields nothing."""
        for name, files in tuple(self._files.items()):
            try:
                total = sum(file.read() for file in files)
            except (OSError, ValueError):  # The thread or the control group has gone.
                self._close(name)
                continue
            last = self._last.get(name, total)
            if name in self._last:
                yield name, round(max(0, total - last) * UNIT / 1e6) / UNIT
            self._last[name] = total

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return not self._files

    def close(self) -> None:
        """Close all files."""
        for name in tuple(self._files):
            self._close(name)

    def _close(self, name: str) -> None:
        for file in self._files.pop(name):
            file.close()


class HostEvidence:
    """Host evidence of one recorder, on the thread that creates it.

    Attributes:
        recorded: the kinds that are recorded.
        unavailable: why others are not, by kind.
    """

    def __init__(
        self,
        state: StepState,
        kinds: Collection[EvidenceKind],
        store: Callable[[str, float], None],
    ) -> None:
        """Start recording these kinds.

        Args:
            store: stores a value of the current step, by channel.
        """
        self.unavailable: dict[str, str] = {}
        self._state = state
        self._store = store
        self._task = get_native_id()
        self._readings = IntervalReadings()
        self._schedstat: HostFile | None = None
        self._collections = new_collection_timer(state).time_collection
        self._cpu = state.cpu_page
        self._host = state.host_page
        self._last = np.full(HOST_CELLS, NOT_READ, dtype=np.int64)
        self.recorded = tuple(kind for kind in kinds_among(kinds) if self._start(kind))
        state.reads_host = bool(set(_STEP_KINDS) & set(self.recorded))
        if not self._readings.is_empty:
            state.on_host, state.host_due = self._read_interval, -NEVER

    def kinds_for(self, stages: Sequence[str]) -> tuple[EvidenceKind, ...]:
        """Return the kinds that are recorded in a window of these recorded stages."""
        is_short = all(len(name) <= MAX_NAME_LENGTH for name in cpu_channels(stages))
        if len(stages) <= MAX_CPU_STAGES and is_short:
            return self.recorded
        return tuple(kind for kind in self.recorded if kind != "cpu")

    def next_page(self, cells: int) -> None:
        """Use the timers' new page (``RowChannels.next_page``)."""
        self._cpu, self._host = self._state.cpu_page, self._state.host_page

    def take(self, begin: int, row_MC: Rows, stages: Sequence[str]) -> Iterable[tuple[str, Values]]:
        """Return the evidence of complete rows, by channel (``RowChannels.take``)."""
        try:
            return [*self._take_cpu(begin, row_MC, stages), *self._take_counters(begin, row_MC)]
        except Exception as error:  # fail-open: these rows have none
            self.unavailable.setdefault("rows", describe_error(error))
            return []

    def close(self) -> None:
        """Stop recording, and close all files."""
        state, self._task = self._state, -1
        state.reads_host = state.reads_usage = False
        state.record_cpu(None)
        state.on_host, state.host_due = None, NEVER
        with suppress(ValueError):
            gc.callbacks.remove(self._collections)
        self._readings.close()
        state.schedstat = NOT_READ
        if self._schedstat is not None:
            self._schedstat.close()

    # ---- start ----------------------------------------------------------------------------------

    def _start(self, kind: EvidenceKind) -> bool:
        """Start one kind; return False if the system does not have it, and state the reason."""
        try:
            self._open(kind)
        except Exception as error:  # fail-open: this kind is not recorded
            self.unavailable[kind] = describe_error(error)
            return False
        return True

    def _open(self, kind: EvidenceKind) -> None:
        state, readings = self._state, self._readings
        if kind == "cpu":
            thread_time_ns()
            state.record_cpu(thread_time_ns)
        elif kind == "gc":
            state.gc_ns = 0
            gc.callbacks.append(self._collections)
        elif kind == "runnable":
            self._schedstat = HostFile(task_file(self._task, "schedstat"), runnable_ns)
            state.schedstat = self._schedstat.number
        elif kind in ("switches", "faults"):
            thread_usage()
            state.reads_usage = True
        elif kind == "block_io":
            if not accounts_delays():
                raise OSError("the kernel does not account delays (sysctl kernel.task_delayacct=1)")
            readings.open(BLOCK_IO, lambda: [HostFile(task_file(self._task, "stat"), block_io_ns)])
        elif kind == "throttled":
            readings.open(THROTTLED, throttling_files)
        else:
            self._open_pressure()

    def _open_pressure(self) -> None:
        refused: list[Exception] = []
        for name, resource in _PRESSURES.items():
            try:
                self._readings.open(name, partial(_pressure_files, resource))
            except (OSError, ValueError) as error:
                refused.append(error)
        if len(refused) == len(_PRESSURES):
            raise refused[0]

    @property
    def summary(self) -> dict[str, Any]:
        """What a packet says about its host evidence (packet.md)."""
        return {"recorded": list(self.recorded), "unavailable": self.unavailable}

    # ---- callbacks during a step ----------------------------------------------------------------

    def _read_interval(self, end: int) -> None:
        """Read what is read from time to time; ``end`` is the step's (clock)."""
        try:
            state = self._state
            is_throttled = False
            for name, ms in self._readings.read():
                self._store(name, ms)
                is_throttled |= name == THROTTLED and ms > 0
            # A few long intervals would not show that throttling goes with late steps.
            pause = 0 if is_throttled else (state.clock() - end) * READING_SHARE
            state.host_due = end + min(max(INTERVAL_NS, pause), LONGEST_INTERVAL_NS)
            if self._readings.is_empty:
                state.host_due = NEVER
        except Exception as error:  # fail-open: nothing more is read, and the packet says why
            self.unavailable.setdefault("interval", describe_error(error))
            self._state.host_due = NEVER

    # ---- rows -----------------------------------------------------------------------------------

    def _take_cpu(self, begin: int, row_MC: Rows, stages: Sequence[str]) -> Iterator[tuple[str, Values]]:
        if "cpu" not in self.kinds_for(stages) or len(self._cpu) < begin + row_MC.size:
            return
        cpu_MC = np.frombuffer(self._cpu[begin : begin + row_MC.size], np.int64).reshape(row_MC.shape)
        wall_M, spent_MC = row_MC[:, WALL_COLUMN], row_MC[:, FIRST_STAGE_COLUMN:]
        residual_M = np.maximum(wall_M - spent_MC.sum(axis=1), 0)
        cpu_residual_M = cpu_MC[:, WALL_COLUMN] - cpu_MC[:, FIRST_STAGE_COLUMN:].sum(axis=1)
        limit_SM = np.vstack([spent_MC.T, residual_M])
        cpu_SM = np.vstack([cpu_MC[:, FIRST_STAGE_COLUMN:].T, cpu_residual_M])
        ms_SM = _ms(np.clip(cpu_SM, 0, np.maximum(limit_SM, 0)))
        is_known_M = cpu_MC[:, WALL_COLUMN] >= 0
        yield from zip(cpu_channels(stages), np.where(is_known_M, ms_SM, unsampled(1)), strict=True)

    def _take_counters(self, begin: int, row_MC: Rows) -> Iterator[tuple[str, Values]]:
        rows, width = row_MC.shape
        first = begin // width * HOST_CELLS
        cells = self._host[first : first + rows * HOST_CELLS]
        if len(cells) < rows * HOST_CELLS:
            return
        read_MC = np.vstack([self._last, np.frombuffer(cells, np.int64).reshape(rows, HOST_CELLS)])
        newest_MC = np.maximum.accumulate(read_MC, axis=0)  # Counters never fall, and NOT_READ is less.
        known_MC = (read_MC[1:] != NOT_READ) & (newest_MC[:-1] != NOT_READ)
        increase_MC = np.diff(newest_MC, axis=0)
        self._last = newest_MC[-1].copy()
        wanted = {channel.name for kind in self.recorded for channel in EVIDENCE[kind]}
        for column, channel in enumerate(_STEP_CHANNELS):
            if channel.name in wanted:
                increase_M = increase_MC[:, column]
                values = _ms(increase_M) if channel.unit == "ms" else increase_M.astype(np.float64)
                yield channel.name, np.where(known_MC[:, column], values, unsampled(rows))


def _ms(ns: npt.NDArray[np.int64]) -> Values:
    """Return times in ms, as multiples of 1 / ``UNIT``."""
    found: Values = np.rint(ns * (UNIT / 1e6)) / UNIT
    return found


def _pressure_files(resource: str) -> list[HostFile]:
    return [pressure_file(resource)]
