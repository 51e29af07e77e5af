"""Host evidence of an unmodified script: CPU times are assigned to stages as durations are."""

from __future__ import annotations

import gc
import math
from pathlib import Path

import pytest

from sfapp.model import BETWEEN, Window
from sfapp.model.host_evidence import EVIDENCE_KEY, GC, cpu_channel
from sfapp.packets import read_window
from sfapp.recorder.auto.steps import BATCH, Kind
from sfapp.recorder.side_channels.host_evidence import VARIABLE
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER
from tests.recorder.auto.test_session import Loop, SessionClock

MS = 1_000_000
SHARE = {"data": 0.1, "forward": 0.9, "backward": 0.5}
"""CPU time of each stage as a fraction of its duration."""


class WorkingLoop(Loop):
    """A loop whose stages last milliseconds, and use the CPU for a part of it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.cpu = SessionClock()
        self.session._evidence._state.record_cpu(self.cpu)

    def spend(self, kind: Kind, ns: int, mark: int | None = None) -> None:
        entered = self.session.enter(kind, 1, mark)
        self.clock.now += ns * MS // 100
        self.cpu.now += int(ns * MS // 100 * SHARE[kind])
        if entered:
            self.session.leave(kind, BATCH if kind == "data" else None)

    def update(self) -> None:
        self.session.optimizer_step_begins(self.optimizer)
        self.clock.now += 8 * MS
        self.cpu.now += 4 * MS
        self.session.optimizer_step_ends(self.optimizer)
        self.clock.now += 2 * MS  # logging
        self.cpu.now += 1 * MS


def cpu_of(window: Window, stage: str) -> list[float]:
    return [float(value) for value in window.side[cpu_channel(stage)].value_NR[:, 0]]


def test_steps_have_the_cpu_times_of_their_stages_also_while_micro_steps_were_learned(tmp_path: Path) -> None:
    loop = WorkingLoop(tmp_path)
    loop.steps(6, micro_steps=2)
    loop.session.close()
    window = read_window(tmp_path)
    assert window.duration_SNR.shape[1] == 6
    for micro in range(2):
        assert cpu_of(window, f"{DATA}[{micro}]") == pytest.approx([0.1] * 6, abs=0.01)
        assert cpu_of(window, f"{FORWARD}[{micro}]") == pytest.approx([1.8] * 6, abs=0.01)
        assert cpu_of(window, f"{BACKWARD}[{micro}]") == pytest.approx([1.5] * 6, abs=0.01)
    assert cpu_of(window, OPTIMIZER) == pytest.approx([4.0] * 6, abs=0.01)
    assert cpu_of(window, CALLBACKS) == pytest.approx([0, *[1.0] * 5], abs=0.01)
    assert cpu_of(window, BETWEEN) == [0.0] * 6


def test_counters_are_those_at_the_end_of_each_step(tmp_path: Path) -> None:
    loop = WorkingLoop(tmp_path)
    gc.disable()
    try:
        for step in range(5):
            if step == 1:  # Before the recorder exists.
                gc.collect()
            loop.steps(1)
        loop.session.close()
    finally:
        gc.enable()
    collected = read_window(tmp_path).side[GC].value_NR[:, 0].tolist()
    assert math.isnan(collected[0])
    assert collected[1] > 0
    assert collected[2:] == [0, 0, 0]


def test_the_environment_turns_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    callbacks = list(gc.callbacks)
    loop = Loop(tmp_path)
    assert gc.callbacks == callbacks
    loop.steps(4)
    loop.session.close()
    window = read_window(tmp_path)
    assert EVIDENCE_KEY not in window.manifest.extra
    assert window.side == {}


def test_a_session_that_gives_up_leaves_no_hook(tmp_path: Path) -> None:
    callbacks = list(gc.callbacks)
    loop = Loop(tmp_path)
    loop.session.give_up("no reason")
    assert gc.callbacks == callbacks
