"""Ctrl-C at any moment of the recorder's work: training ends, and no completed step is lost."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import sfapp
from sfapp.packets import read_windows

PACKAGE = str(Path(sfapp.__file__).parent)
WINDOW, STEPS = 3, 8


class CtrlC:
    """Ctrl-C at one of the moments at which Python calls signal handlers within the package's functions.

    Attributes:
        moments: how many there have been in the ``with`` blocks.
    """

    def __init__(self, moment: int) -> None:
        self.moments = 0
        self._moment = moment

    @contextmanager
    def possible(self) -> Iterator[None]:
        """Let it come within the block."""
        sys.setprofile(self._follow)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _follow(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE):
            self.moments += 1
            if self.moments == self._moment:
                signal.raise_signal(signal.SIGINT)


def train(output: Path, moment: int, *, closes: bool) -> tuple[list[int], int]:
    """Train until Ctrl-C, and close the recorder.

    Args:
        moment: 0 for none. closes: whether it comes while the recorder is closed instead of between steps.

    Returns:
        The completed steps, and the number of moments.
    """
    interruption = CtrlC(moment)
    completed: list[int] = []
    perf = sfapp.Recorder(output, run_id="run", window_steps=WINDOW)
    with suppress(KeyboardInterrupt), perf, nullcontext() if closes else interruption.possible():
        for step in range(STEPS):
            with perf.step(), perf.stage("data.next_wait"):
                pass
            completed.append(step)
        if closes:
            with interruption.possible():
                perf.close()
    return completed, interruption.moments


@pytest.mark.parametrize(("closes", "every"), [(False, 3), (True, 1)])
def test_ctrl_c_at_any_moment_loses_no_completed_step(tmp_path: Path, closes: bool, every: int) -> None:
    _, moments = train(tmp_path / "0", 0, closes=closes)
    assert moments > 100
    for moment in range(1, moments + 1, every):
        completed, _ = train(tmp_path / str(moment), moment, closes=closes)
        packets = sorted(tmp_path.glob(f"{moment}/run/*.parquet"))
        windows = [item.window for item in read_windows(packets).windows]
        recorded = sorted(step for window in windows for step in window.step_N.tolist())
        assert recorded[: len(completed)] == completed, moment
        assert len(recorded) <= len(completed) + 1
