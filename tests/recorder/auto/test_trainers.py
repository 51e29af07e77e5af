"""Scripts that leave their loop to Lightning or to Hugging Face's Trainer are recorded without changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import BACKWARD, DATA
from tests.recorder.auto.test_run_command import SCRIPTS, run, windows

MS = 1_000_000


@pytest.mark.torchrun
@pytest.mark.parametrize(("kind", "library"), [("lightning", "lightning"), ("trainer", "transformers")])
def test_a_late_rank_s_data_is_in_its_data_stage(tmp_path: Path, kind: str, library: str) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed", exc_type=ImportError)
    run(tmp_path, "--window-steps=6", "--nproc-per-node=2", SCRIPTS / "trainer_loops.py", kind)
    first, second = windows(tmp_path)
    for window in (first, second):
        assert (window.manifest.gather_ok, window.manifest.faults) == (True, ())
        assert (window.manifest.wrapper, window.manifest.accumulation.factor) == ("ddp", 1)
        assert int(window.duration_SNR[-1].sum()) < 0.05 * int(window.wall_NR.sum())
    waited = np.median(second.duration_SNR[second.stages.index(DATA)], axis=0)
    assert waited[1] >= 50 * MS > 25 * MS > waited[0]
    assert np.median(second.waits[BACKWARD][:, 0]) > 25 * MS
