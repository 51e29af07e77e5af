"""A window from which ranks are missing is never shown as healthy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfapp.accounting import diagnose_runs
from sfapp.model import Diagnosis
from sfapp.views.text import headline_of, verdict
from tests.builders import ddp_job, window_of


@pytest.fixture(scope="module")
def healthy() -> Diagnosis:
    (diagnosis,) = diagnose_runs([window_of(ddp_job(seed=1))])
    assert diagnosis.is_quiet
    return diagnosis


def test_the_missing_rank_is_the_headline_in_red(healthy: Diagnosis) -> None:
    text = verdict(replace(healthy, missing_ranks=(7,), ranks=7))
    assert (text.tone, text.kicker) == ("alarm", "Data missing")
    assert text.sentence == "Rank 7 is missing (no straggler found among 7 other ranks)"


def test_several_missing_ranks_and_a_failed_gather_are_said(healthy: Diagnosis) -> None:
    assert headline_of(replace(healthy, missing_ranks=(2, 3, 4, 7)))[0] == "Ranks 2–4 and 7 are missing"
    assert headline_of(replace(healthy, gather_ok=False))[0] == "A gather failed"


def test_a_window_with_all_its_data_is_healthy(healthy: Diagnosis) -> None:
    assert verdict(healthy).tone == "quiet"
