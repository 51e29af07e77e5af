"""Loaders of torchdata, as torchtitan uses them: their waits are recorded without changes to the script."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.builders import CALLBACKS, DATA
from tests.recorder.auto.test_run_command import LOOPS, run, windows

MS = 1_000_000


@pytest.mark.torchrun
@pytest.mark.skipif(find_spec("torchdata") is None, reason="needs torchdata, of the extra dev")
def test_waits_for_batches_that_are_all_fetched_before_the_step(tmp_path: Path) -> None:
    run(tmp_path, "--window-steps=6", LOOPS, "stateful", "--steps=6")
    (window,) = windows(tmp_path)
    assert window.manifest.faults == ()
    assert window.manifest.accumulation.factor == 2
    median_of = dict(zip(window.stages, np.median(window.duration_SNR[:, :, 0], axis=1), strict=True))
    assert median_of[f"{DATA}[0]"] >= 8 * MS  # two batches of two samples, 2 ms each
    assert median_of[CALLBACKS] < 4 * MS
