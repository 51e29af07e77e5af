"""Host evidence shows whether a stage computed or waited, and why; what the system forbids is stated once."""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfapp.model import Accumulation, Window
from sfapp.model.host_evidence import (
    EVIDENCE,
    EVIDENCE_KEY,
    EVIDENCE_PREFIX,
    GC,
    INVOLUNTARY,
    VOLUNTARY,
    cpu_channel,
)
from sfapp.model.stages import RESIDUAL
from sfapp.packets import read_window, read_windows
from sfapp.packets.window_rows import MAX_CHANNELS
from sfapp.recorder import Recorder
from sfapp.recorder.side_channels.host_evidence import MAX_CPU_STAGES
from tests.builders import BACKWARD, DATA, FORWARD
from tests.recorder.clocked_recorder import Clock

MS = 1e-6

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counters of a thread exist on Linux")


def recorder(root: Path, **options: Any) -> Recorder:
    return Recorder(root, run_id="run", **{"window_steps": 100, "stages": (DATA, FORWARD), **options})


def spin(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def values(window: Window, channel: str) -> list[float]:
    return [float(value) for value in window.side[channel].value_NR[:, 0]]


@linux
class TestSteps:
    @pytest.fixture
    def no_collections(self) -> Iterator[None]:
        """No garbage collection but the test's own."""
        gc.disable()
        yield
        gc.enable()

    @pytest.fixture
    def window(self, tmp_path: Path, hot_path: str, no_collections: None) -> Window:
        """Five steps: data waits; forward computes, with a garbage collection in the fourth step."""
        callbacks = list(gc.callbacks)
        with recorder(tmp_path) as perf:
            for step in range(5):
                with perf.step():
                    with perf.stage(DATA):
                        time.sleep(0.03)
                    with perf.stage(FORWARD):
                        spin(0.03)
                        if step == 3:
                            gc.collect()
        assert gc.callbacks == callbacks
        return read_window(tmp_path)

    def test_the_cpu_time_separates_a_stage_that_waits_from_one_that_computes(self, window: Window) -> None:
        wall_SN = window.duration_SNR[:, :, 0] * MS
        data, forward, other = (window.stages.index(name) for name in (DATA, FORWARD, RESIDUAL))
        cpu_SN = np.array([values(window, cpu_channel(stage)) for stage in window.stages])
        assert (cpu_SN <= wall_SN + 0.001).all()
        assert (cpu_SN[data] < 0.2 * wall_SN[data]).all()
        assert (cpu_SN[forward] >= 29.9).all()
        assert (cpu_SN[other] <= wall_SN[other] + 0.001).all()
        assert all(window.side[cpu_channel(stage)].sampled_NR.all() for stage in window.stages)

    def test_counters_are_of_one_step_each_and_begin_with_the_second(self, window: Window) -> None:
        collected, *_ = (values(window, name) for name in (GC,))
        assert np.isnan(collected[0])
        assert collected[3] > 0
        assert [collected[step] for step in (1, 2, 4)] == [0, 0, 0]
        assert min(values(window, VOLUNTARY)[1:]) >= 1  # It sleeps once a step.
        assert window.side[INVOLUNTARY].sampled_NR[:, 0].tolist() == [False, True, True, True, True]

    def test_on_short_steps_one_in_four_has_evidence_and_its_counters_cover_the_others(
        self, tmp_path: Path, clock: Clock, hot_path: str, no_collections: None
    ) -> None:
        with recorder(tmp_path, clock=clock, evidence=["cpu", "gc", "switches"]) as perf:
            for step in range(12):
                with perf.step(), perf.stage(FORWARD):
                    time.sleep(0.001)
                    clock.tick(2_000_000)
                    if step == 6:
                        gc.collect()
        window = read_window(tmp_path)
        assert window.side[cpu_channel(FORWARD)].sampled_NR[:, 0].tolist() == [
            step in (0, 1, 5, 9)  # after each reading, the next step's
            for step in range(12)
        ]
        switches = window.side[VOLUNTARY]
        assert np.flatnonzero(switches.sampled_NR[:, 0]).tolist() == [4, 8]
        assert [switches.value_NR[step, 0] >= 4 for step in (4, 8)] == [True, True]
        # Collections are timed by a callback, so every step has its own.
        assert [step for step, ms in enumerate(values(window, GC)) if ms > 0] == [6]

    def test_the_packet_states_what_is_recorded_and_why_the_rest_is_not(self, window: Window) -> None:
        stated = window.manifest.extra[EVIDENCE_KEY]
        assert {"cpu", "gc", "switches", "faults"} <= set(stated["recorded"])
        assert set(stated["recorded"]) | set(stated["unavailable"]) == set(EVIDENCE)
        assert not set(stated["recorded"]) & set(stated["unavailable"])
        assert all(stated["unavailable"].values())


class TestWhatStepsMove:
    """CPU times follow the durations that are moved between steps and windows."""

    @pytest.fixture
    def cpu(self) -> Clock:
        return Clock()

    def perf(self, root: Path, clock: Clock, cpu: Clock, **options: Any) -> Recorder:
        perf = recorder(root, clock=clock, evidence=["cpu"], **options)
        perf._state.record_cpu(cpu)
        perf._state.evidence_steps = 1
        return perf

    @staticmethod
    def work(clock: Clock, cpu: Clock, ms: int, of_it: int) -> None:
        clock.tick(ms * 1_000_000)
        cpu.tick(of_it * 1_000_000)

    def test_the_wait_for_a_batch_counts_in_the_step_that_uses_it(
        self, tmp_path: Path, clock: Clock, cpu: Clock, hot_path: str
    ) -> None:
        def batches() -> Iterator[int]:
            for batch in range(3):
                self.work(clock, cpu, 10, 3)
                yield batch

        perf = self.perf(tmp_path, clock, cpu)
        for _ in perf.batches(batches()):
            with perf.step(), perf.stage(FORWARD):
                self.work(clock, cpu, 8, 7)
            self.work(clock, cpu, 4, 2)
        perf.close()
        window = read_window(tmp_path)
        assert values(window, cpu_channel(DATA)) == [3, 3, 3]
        assert values(window, cpu_channel(FORWARD)) == [7, 7, 7]
        assert values(window, cpu_channel("step.between_cpu_wall")) == [0, 2, 2]
        assert values(window, cpu_channel(RESIDUAL)) == [0, 0, 0]

    def test_a_prefetched_batch_s_wait_is_moved_to_the_next_step(
        self, tmp_path: Path, clock: Clock, cpu: Clock, hot_path: str
    ) -> None:
        def batches() -> Iterator[int]:
            for batch in range(4):
                self.work(clock, cpu, 10, 3)
                yield batch

        perf = self.perf(tmp_path, clock, cpu)
        ahead = iter(perf.batches(batches()))
        next(ahead)
        for _ in range(3):
            with perf.step(), perf.stage(FORWARD):
                self.work(clock, cpu, 8, 7)
                next(ahead)
        perf.close()
        window = read_window(tmp_path)
        assert values(window, cpu_channel(DATA)) == [3, 3, 3]
        assert values(window, cpu_channel(FORWARD)) == [7, 7, 7]
        assert values(window, cpu_channel(RESIDUAL)) == [0, 0, 0]

    def test_a_step_that_begins_another_window_keeps_its_evidence(
        self, tmp_path: Path, clock: Clock, cpu: Clock, hot_path: str
    ) -> None:
        accumulation = Accumulation(factor=2, ordered=False)
        perf = self.perf(tmp_path, clock, cpu, accumulation=accumulation, gather="local")
        for step in range(4):
            with perf.step():
                for micro in range(2):
                    with perf.micro_step(micro, sync=step < 2 or micro == 1), perf.stage(FORWARD):
                        self.work(clock, cpu, 8, step + 1)
        perf.close()
        first, second = (item.window for item in read_windows([tmp_path]).windows)
        assert values(first, cpu_channel(FORWARD)) == [2, 4]
        assert values(second, cpu_channel(FORWARD)) == [6, 8]

    def test_a_dropped_step_leaves_nothing(
        self, tmp_path: Path, clock: Clock, cpu: Clock, hot_path: str
    ) -> None:
        perf = self.perf(tmp_path, clock, cpu)
        for step in range(3):
            try:
                with perf.step(), perf.stage(FORWARD):
                    self.work(clock, cpu, 8, step + 1)
                    if step == 1:
                        raise MemoryError
            except MemoryError:
                continue
        perf.close()
        window = read_window(tmp_path)
        assert window.step_N.tolist() == [0, 2]
        assert values(window, cpu_channel(FORWARD)) == [1, 3]

    def test_ctrl_c_during_a_collection_ends_training(self, tmp_path: Path, hot_path: str) -> None:
        """Python ignores what a callback of a collection raises, so no bytecode may run in it."""
        if hot_path != "C":
            pytest.skip("in Python the callback is bytecode, in which a signal's handler may run")
        others, gc.callbacks[:] = list(gc.callbacks), []  # Those of Hypothesis are in Python.
        garbage = [[] for _ in range(300_000)]
        previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with recorder(tmp_path, evidence=["gc"]):
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                with pytest.raises(KeyboardInterrupt):
                    gc.collect()
        finally:
            signal.signal(signal.SIGALRM, previous)
            gc.callbacks[:] = others
        assert len(garbage) == 300_000

    def test_a_step_timed_elsewhere_has_no_cpu_times_but_counters(self, tmp_path: Path, clock: Clock) -> None:
        with recorder(tmp_path, clock=clock, evidence=["cpu", "gc"]) as perf:
            for _ in range(2):
                perf.add_step(100, [{DATA: 10, FORWARD: 20}])
                gc.collect()
        window = read_window(tmp_path)
        assert not window.side[cpu_channel(DATA)].sampled_NR.any()
        assert values(window, GC)[1] > 0


class TestBounds:
    def test_evidence_takes_no_channel_from_the_user(self, tmp_path: Path) -> None:
        with recorder(tmp_path) as perf:
            for _ in range(2):
                with perf.step():
                    for number in range(MAX_CHANNELS):
                        perf.observe(f"x{number}", 1.0)
        window = read_window(tmp_path)
        own = [name for name in window.side if not name.startswith(EVIDENCE_PREFIX)]
        assert len(own) == MAX_CHANNELS
        assert cpu_channel(DATA) in window.side

    def test_its_names_are_refused_to_others(self, tmp_path: Path) -> None:
        with recorder(tmp_path, evidence=False) as perf, perf.step():
            perf.observe(GC, 1.0)
        window = read_window(tmp_path)
        assert window.side == {}
        assert GC in window.manifest.extra["side_faults"]

    def test_many_stages_have_no_cpu_times(self, tmp_path: Path) -> None:
        names = tuple(f"stage{number}" for number in range(MAX_CPU_STAGES))
        with recorder(tmp_path, stages=names) as perf, perf.step():
            pass
        window = read_window(tmp_path)
        assert not [name for name in window.side if name.startswith("host.cpu.")]
        assert GC in window.side

    def test_steps_on_another_thread_raise_nothing(self, tmp_path: Path, hot_path: str) -> None:
        from threading import Thread

        with recorder(tmp_path, stages=(DATA, BACKWARD)) as perf:

            def train() -> None:
                for _ in range(3):
                    with perf.step(), perf.stage(BACKWARD):
                        spin(0.001)

            thread = Thread(target=train)
            thread.start()
            thread.join()
            train()
        window = read_window(tmp_path)
        assert len(window.step_N) == 6
        cpu = np.array(values(window, cpu_channel(BACKWARD)))
        assert (np.nan_to_num(cpu) <= window.duration_SNR[2, :, 0] * MS + 0.001).all()
