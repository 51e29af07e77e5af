"""A window from which ranks are missing is never shown as healthy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_windows import timeline_row

from sfapp.accounting import diagnose_runs
from sfapp.model import Diagnosis, Window
from sfapp.views import palette
from sfapp.views.figures.heatmap import rank_step_heatmap
from sfapp.views.figures.history import run_history
from sfapp.views.figures.node import node_ranks
from sfapp.views.figures.window_timeline import window_timeline
from sfapp.views.text import headline_of, verdict
from tests.builders import DATA, MS, ddp_job, window_of
from tests.views import simulated_windows as jobs
from tests.views.figure_contents import numbers, texts, trace


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


def without(window: Window, lost: int) -> Window:
    """Return a window from which a rank is missing."""
    kept = [place for place, rank in enumerate(window.ranks.rank) if rank != lost]
    manifest = replace(window.manifest, missing_ranks=(lost,), gather_ok=False)
    return replace(
        window,
        duration_SNR=window.duration_SNR[:, :, kept],
        wall_NR=window.wall_NR[:, kept],
        ranks=window.ranks.select(kept),
        manifest=manifest,
    )


@pytest.mark.parametrize(("lost", "node", "other"), [(5, 1, 0), (7, 1, 0), (0, 0, 1), (3, 0, 1)])
def test_a_missing_rank_is_an_empty_tile_of_its_node(lost: int, node: int, other: int) -> None:
    measures, diagnosis = jobs.look(without(jobs.ddp(), lost))
    drawn = node_ranks(measures, diagnosis, node)
    hatched = trace(drawn, "missing")
    assert hatched["marker"]["pattern"]["shape"] == "/"
    assert hatched["hovertext"] == [f"<b>rank {lost}</b> did not report"]
    assert f"rank {lost}</b> missing" in texts(drawn)
    # And its tile is where it would be if it had reported
    cells = numbers(drawn["data"][0]["z"])
    assert np.isnan(cells).sum() == 1
    assert (hatched["x"], hatched["base"]) == ([lost % 4], [-0.46])
    assert "missing" not in {each.get("name") for each in node_ranks(measures, diagnosis, other)["data"]}


@pytest.mark.parametrize(("ranks", "lost"), [(8, 5), (64, 17)])
def test_a_missing_rank_is_an_empty_row_above_the_others(ranks: int, lost: int) -> None:
    measures, diagnosis = jobs.look(without(jobs.ddp(ranks=ranks, steps=12), lost))
    drawn = rank_step_heatmap(measures, diagnosis)
    hatched = trace(drawn, "missing")
    heat = drawn["data"][0]
    empty = len(hatched["y"])
    assert hatched["y"] == heat["y"][:empty]
    assert np.isnan(numbers(heat["z"])[:empty]).all()
    others = [row for row, name in enumerate(heat["y"]) if row >= empty and name.strip()]
    assert np.isfinite(numbers(heat["z"])[others]).all()
    assert drawn["layout"]["yaxis"]["ticktext"][0] == f"<b>✕ r{lost}</b>"


def test_a_whole_window_has_no_hatched_marks() -> None:
    measures, diagnosis = jobs.look(jobs.ddp())
    for drawn in (node_ranks(measures, diagnosis, 0), rank_step_heatmap(measures, diagnosis)):
        assert len(drawn["data"]) == 1
