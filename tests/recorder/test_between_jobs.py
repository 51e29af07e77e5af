"""A rank that is late between two of its steps is named, though the others wait for it in backward."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sfapp.accounting import diagnose
from sfapp.model import BETWEEN, Window
from sfapp.packets import read_windows
from tests.forked_jobs import run_job
from tests.forked_ranks import forked

pytestmark = [pytest.mark.torchrun, pytest.mark.quiet]  # which rank is late is a matter of milliseconds

JOB = Path(__file__).parent / "between_jobs.py"
RUNS = ("periodic", "once", "evaluating")
LATE_RANK, PAUSE_NS = 2, 200_000_000
LATE_STEPS = (5, 15, 25, 35)
"""The pause after step 4 lies before step 5, and so on."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Window]:
    """A window of each run, all from one job."""
    root = tmp_path_factory.mktemp("packets")
    result = run_job(forked(4, JOB, root, *RUNS), timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    return {found.window.run_id: found.window for found in read_windows([root]).windows}


@pytest.mark.parametrize("run_id", RUNS)
def test_the_time_between_steps_closes_the_steps_of_every_rank(
    recorded: dict[str, Window], run_id: str
) -> None:
    window = recorded[run_id]
    assert window.manifest.faults == ()
    assert window.stages[0] == BETWEEN
    assert window.duration_SNR.sum(axis=0).tolist() == window.wall_NR.tolist()
    late_NR = np.asarray(window.duration_SNR[0]) >= PAUSE_NS
    late_ranks = range(4) if run_id == "evaluating" else (LATE_RANK,)
    expected = {(step, rank) for step in LATE_STEPS for rank in late_ranks}
    assert {*zip(*(places.tolist() for places in np.nonzero(late_NR)), strict=True)} == (
        {(LATE_STEPS[0], LATE_RANK)} if run_id == "once" else expected
    )


def test_a_rank_that_pauses_every_tenth_step_is_named_with_its_period(recorded: dict[str, Window]) -> None:
    diagnosis = diagnose(recorded["periodic"])
    aim, culprit = diagnosis.aim, diagnosis.culprit
    assert aim is not None
    assert (aim.stage, aim.rank, aim.steps) == (BETWEEN, LATE_RANK, "every 10")
    assert culprit is not None
    assert (culprit.stage, culprit.kind, culprit.rank, culprit.period) == (BETWEEN, "periodic", LATE_RANK, 10)
    assert diagnosis.severity is not None
    assert diagnosis.severity > 0.2  # 0.6 where nothing else runs


def test_a_pause_of_one_step_is_named_with_that_step(recorded: dict[str, Window]) -> None:
    diagnosis = diagnose(recorded["once"])
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank, diagnosis.aim.steps) == (BETWEEN, LATE_RANK, (5,))
    assert diagnosis.culprit is not None
    assert diagnosis.culprit.kind == "one-off"


def test_what_all_ranks_do_between_steps_is_no_rank_s_delay(recorded: dict[str, Window]) -> None:
    diagnosis = diagnose(recorded["evaluating"])
    advances = diagnosis.carry_over_advances_ns
    assert advances is not None
    assert max(advances, key=lambda stage: advances[stage]) == BETWEEN
    assert advances[BETWEEN] >= len(LATE_STEPS) * PAUSE_NS
    assert diagnosis.aim is None or (diagnosis.aim.stage, diagnosis.aim.rank) != (BETWEEN, LATE_RANK)
