"""Windows that are measured together have the verdicts that each has alone."""

from __future__ import annotations

import pytest

from benchmarks.ensemble.simulated_jobs import jobs, simulate
from sfapp.accounting import judge, measure, measured
from sfapp.model import Window


@pytest.mark.parametrize("waits", [False, True], ids=["waits unknown", "waits known"])
@pytest.mark.parametrize("seed", range(3))
def test_lateness_found_for_many_windows_is_that_of_each_alone(seed: int, waits: bool) -> None:
    windows = [window for job in jobs(6, seed, healthy=False) for window in simulate(job, waits=waits)]
    together = [judge(measures) for measures in measured(windows)]
    alone = [judge(measure(window)) for window in windows]
    assert together == alone
    assert any(finding.kind == "rank" for diagnosis in alone for finding in diagnosis.findings)


@pytest.fixture
def window() -> Window:
    return simulate(next(jobs(1, 0, healthy=True)), waits=False)[0]


def test_a_changed_diagnosis_is_a_copy(window: Window) -> None:
    first = judge(measure(window))
    second = first.changed(run_id="other", severity=0.5)
    assert (second.run_id, second.severity) == ("other", 0.5)
    assert first.run_id == window.run_id
    assert second.changed(run_id=first.run_id, severity=first.severity) == first
