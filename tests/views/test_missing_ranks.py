"""A window from which ranks are missing is never shown as healthy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_windows import timeline_row

from sfapp.accounting import diagnose_runs
from sfapp.model import Diagnosis
from sfapp.views import palette
from sfapp.views.figures.history import run_history
from sfapp.views.figures.window_timeline import window_timeline
from sfapp.views.text import headline_of, verdict
from tests.builders import DATA, MS, ddp_job, window_of


@pytest.fixture(scope="module")
def healthy() -> Diagnosis:
    (diagnosis,) = diagnose_runs([window_of(ddp_job(seed=1))])
    assert diagnosis.is_healthy
    return diagnosis


def test_the_missing_rank_is_the_headline_in_red(healthy: Diagnosis) -> None:
    text = verdict(replace(healthy, missing_ranks=(7,), ranks=7))
    assert (text.tone, text.kicker) == ("alarm", "Data missing")
    assert text.sentence == "Rank 7 is missing (no straggler found among 7 other ranks)"


def test_several_missing_ranks_and_a_failed_gather_are_reported(healthy: Diagnosis) -> None:
    assert headline_of(replace(healthy, missing_ranks=(2, 3, 4, 7)))[0] == "Ranks 2–4 and 7 are missing"
    assert headline_of(replace(healthy, gather_ok=False))[0] == "A gather failed"


def test_a_late_rank_does_not_hide_a_missing_one() -> None:
    (slow,) = diagnose_runs([window_of(ddp_job(seed=1, extra={(DATA, 3): 80 * MS}))])
    text = verdict(replace(slow, missing_ranks=(8,)))
    assert text.tone == "alarm"
    assert text.sentence == "Rank 8 is missing; data on rank 3 (node-0), every step"


def test_the_timeline_and_the_history_mark_it_in_red(healthy: Diagnosis) -> None:
    theme = palette.theme(False)
    lost = replace(healthy, missing_ranks=(7,), window=1)
    rows = [timeline_row(healthy), timeline_row(lost), timeline_row(replace(lost, window=2))]
    drawn = window_timeline(rows)
    strip = next(trace for trace in drawn["data"] if trace["name"] == "severity")
    assert strip["marker"]["color"] == [theme.quiet, theme.alarm, theme.alarm]
    assert "healthy" in strip["hovertext"][0]
    assert "rank 7 missing" in strip["hovertext"][1]
    assert "healthy" not in strip["hovertext"][1]
    assert drawn["layout"]["meta"]["alt"] == "3 windows; these need attention: rank 7 missing."
    (named,) = (note for note in drawn["layout"]["annotations"] if "missing" in note["text"])
    assert named["font"]["color"] == theme.alarm
    steps = next(trace for trace in run_history(rows)["data"] if trace["name"] == "mean step")
    assert steps["marker"]["color"] == [theme.quiet, theme.alarm, theme.alarm]
    assert steps["marker"]["symbol"] == ["circle", "x", "x"]


def test_many_windows_keep_the_red_strip(healthy: Diagnosis) -> None:
    rows = [timeline_row(replace(healthy, window=number)) for number in range(500)]
    rows[250] = timeline_row(replace(healthy, window=250, gather_ok=False))
    strip = next(trace for trace in window_timeline(rows)["data"] if trace["name"] == "severity")
    (colours,) = strip["z"]
    assert (colours[0], colours[250]) == (0, 1)
    assert strip["colorscale"][1][1] == palette.theme(False).alarm


def test_a_window_with_all_its_data_is_healthy(healthy: Diagnosis) -> None:
    assert verdict(healthy).tone == "quiet"
