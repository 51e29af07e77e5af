"""The rolling verdict of a running job, drawn and in words."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from sfapp.accounting import (
    Onset,
    RankDelays,
    RollingHistory,
    RollingVerdict,
    rolling_verdict,
    step_times,
)
from sfapp.model import RankIdentity, RankTable
from sfapp.model.live_rows import LiveRows
from sfapp.views.figures import Figure
from sfapp.views.figures.live import live_steps
from sfapp.views.figures.live_lateness import MOST_TILES, live_lateness
from sfapp.views.figures.live_node import live_courses
from sfapp.views.figures.live_stages import live_stages
from sfapp.views.text import rolling_words
from tests.builders import BACKWARD, DATA, MS, ddp_job, late_in_data
from tests.live_rows import live_rows


def table(rows: LiveRows) -> RankTable:
    return RankTable.of([rank.identity for rank in rows.ranks])


def shades(figure: Figure) -> np.ndarray:
    """The values behind the tiles' colours."""
    z = figure["data"][0]["z"]
    found = np.frombuffer(base64.b64decode(z["bdata"]), "<f4")
    return found.reshape([int(part) for part in z["shape"].split(",")])


def crowd(ranks: int, late: int, size: int = 8) -> tuple[RollingVerdict, RankTable]:
    """A verdict on a small job, with the lateness of many ranks in its place; one is late by a quarter."""
    found = rolling_verdict(live_rows(late_in_data(2)))
    assert found.step_ns is not None
    identities = [
        RankIdentity(rank, rank % size, rank // size, f"node-{rank // size}") for rank in range(ranks)
    ]
    behind_R = np.linspace(0, 0.01, ranks) * found.step_ns
    behind_R[late] = 0.25 * found.step_ns
    late_BR = np.zeros((6, ranks))
    late_BR[0] = behind_R
    delays = RankDelays(RankTable.of(identities), behind_R, found.delays.stages, late_BR)
    finding = replace(found.finding, ranks=(late,))
    return replace(found, delays=delays, finding=finding), delays.ranks


def test_a_node_marks_the_late_rank_although_all_ranks_have_one_step_time() -> None:
    rows = live_rows(late_in_data(2))
    found = rolling_verdict(rows)
    places = range(len(table(rows)))
    times = step_times(table(rows), [np.array([[step, 100 * MS] for step in range(20)]) for _ in places])
    node = times.ranks.node_rank[2]
    drawn = live_courses(times, node, found)
    labels = drawn["layout"]["yaxis"]["ticktext"]
    (late,) = [label for label in labels if "▶" in label]
    assert re.fullmatch(r"<b>▶ rank 2</b><br>\+\d+(\.\d+)?\s%", late)
    assert all(label.endswith("on time") for label in labels if label != late)
    assert [trace["name"] for trace in drawn["data"]] == ["ranks", "ranks that hold the job"]
    assert drawn["layout"]["meta"]["alt"].endswith("The job waits for rank 2.")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(
    "rows",
    [
        live_rows(ddp_job(ranks=4, steps=20)),
        live_rows(late_in_data(1), without=[3], silent={0: 9.0}, left=[2]),
        live_rows(ddp_job(ranks=1, steps=20)),
        live_rows(ddp_job(ranks=40, steps=6), ranks_per_node=40),
    ],
    ids=["healthy", "incomplete", "one rank", "wide node"],
)
def test_tiles_are_valid_and_have_a_text(rows: LiveRows, dark: bool) -> None:
    found = rolling_verdict(rows)
    drawn = live_lateness(found, table(rows), dark=dark)
    go.Figure(drawn)  # raises on anything that is not in plotly's schema
    json.dumps(drawn["data"], allow_nan=False)
    assert drawn["layout"]["meta"]["alt"].endswith(".")


def test_ranks_that_do_not_report_have_a_mark_each_and_no_shade() -> None:
    rows = live_rows(late_in_data(1), without=[3], silent={0: 9.0}, left=[2])
    drawn = live_lateness(rolling_verdict(rows), table(rows))
    marked = {trace["name"]: trace["x"] for trace in drawn["data"][1:]}
    assert marked == {"never reported": [3], "silent": [0], "disconnected": [2]}
    assert np.isnan(shades(drawn)[0]).tolist() == [True, False, True, True]


def test_the_named_rank_is_framed_and_its_stage_stands_in_its_hover() -> None:
    rows = live_rows(late_in_data(2))
    drawn = live_lateness(rolling_verdict(rows), table(rows))
    (frame,) = drawn["layout"]["shapes"]
    assert (frame["x0"], frame["x1"]) == (1.5, 2.5)
    assert "data +13 ms" in drawn["data"][0]["hovertext"][0][2]


@pytest.mark.parametrize(("ranks", "late"), [(1_024, 777), (1_024, 0), (100_000, 77_777), (100_000, 99_999)])
def test_however_many_ranks_the_tiles_are_bounded_and_the_latest_is_seen(ranks: int, late: int) -> None:
    found, known = crowd(ranks, late)
    drawn = live_lateness(found, known)
    values = shades(drawn)
    assert np.count_nonzero(~np.isnan(values)) <= MOST_TILES
    row, column = np.unravel_index(np.nanargmax(values), values.shape)
    assert values[row, column] == pytest.approx(0.25)
    assert f"rank {late}" in drawn["data"][0]["hovertext"][row][column]
    (frame,) = drawn["layout"]["shapes"]
    assert (frame["x0"] + 0.5, frame["y0"] + 0.5) == (column, row)
    assert len(json.dumps(drawn)) < 500_000


def test_one_rank_missing_among_many_marks_its_tile() -> None:
    found, known = crowd(100_000, 5)
    roll = replace(found.roll, absent=(50_000,), silent=((60_000, 9.0),))
    others = RankTable.of([known.identity(place) for place in range(len(known)) if place != 50_000])
    drawn = live_lateness(replace(found, roll=roll), others)
    marked = {trace["name"]: len(trace["x"]) for trace in drawn["data"][1:]}
    assert marked == {"never reported": 1, "silent": 1}


def history(*parts: np.ndarray) -> RollingHistory:
    """What verdicts on parts of a job show, one after the other."""
    found, first = RollingHistory(), 100
    for part in parts:
        found = found.extended(rolling_verdict(live_rows(part, first_step=first)))
        first += part.shape[1]
    return found


def test_exposed_time_goes_on_step_by_step_and_adds_up() -> None:
    job = ddp_job(ranks=4, steps=40)
    found = history(job[:, :20], job[:, 20:])
    assert found.step_N.tolist() == list(range(100, 140))
    assert found.advance_BN.shape == (6, 40)
    drawn = live_stages(found)
    go.Figure(drawn)
    assert [trace["name"] for trace in drawn["data"]][:3] == ["data", "forward", "backward"]
    assert "backward" in drawn["layout"]["meta"]["alt"]


def test_an_onset_is_kept_once_it_lasted_and_marked_in_the_step_times() -> None:
    late = late_in_data(2, since=10, steps=20)
    healthy = ddp_job(ranks=4, steps=20, seed=5)
    found = history(healthy, late, late_in_data(2, steps=20), healthy)
    assert [(onset.stage, onset.ranks, onset.began, onset.is_exact) for onset in found.onsets] == [
        (DATA, (2,), 130, True)
    ]
    assert found.onsets[0].ended is not None
    ranks = RankTable.of([RankIdentity(rank, rank, 0, "node") for rank in range(4)])
    times = step_times(ranks, [np.array([[step, MS] for step in range(100, 180)])] * 4)
    drawn = live_steps(times, onsets=found.onsets)
    go.Figure(drawn)
    (line,) = drawn["layout"]["shapes"]
    assert line["x0"] == 130
    assert drawn["layout"]["annotations"][0]["text"] == "rank 2 in data"


def test_what_was_over_at_once_is_no_onset() -> None:
    blip = ddp_job(ranks=4, steps=20, extra={(BACKWARD, 1): 60 * MS}, since=18)
    found = history(ddp_job(ranks=4, steps=20), blip, ddp_job(ranks=4, steps=20), ddp_job(ranks=4, steps=20))
    assert found.onsets == ()


@pytest.mark.parametrize(
    ("how", "tone", "headline"),
    [
        ({}, "live", "Healthy: no rank holds the job over the last 20 steps, "),
        ({"without": [3]}, "alarm", "Incomplete data: rank 3 has never reported"),
        (
            {"silent": {1: 30.0, 2: 40.0}},
            "alarm",
            "Incomplete data: no message from ranks 1–2 for 30 s or longer",
        ),
        (
            {"idle_s": 12.0, "stopped": {2: 29}},
            "alarm",
            "Standing still for 12 s after step 129: rank 2 has not finished it",
        ),
        (
            {"idle_s": 12.0},
            "alarm",
            "Standing still for 12 s after step 129: all ranks have finished it, and none the next one",
        ),
        (
            {"idle_s": 8.0, "silent": {3: 8.0}},
            "alarm",
            "Standing still for 8 s after step 129: no message from rank 3 for 8 s",
        ),
        (
            {"idle_s": 8.0, "silent": dict.fromkeys(range(4), 8.0)},
            "alarm",
            "Incomplete data: no message from any rank for 8 s; look at the job, network and aggregator",
        ),
        ({"left": range(4)}, "ended", "The job has ended: all ranks disconnected."),
        ({"stopped": dict.fromkeys(range(4), 3)}, "live", "Waiting for the first steps"),
    ],
)
def test_the_state_of_the_job_is_the_headline(how: dict[str, Any], tone: str, headline: str) -> None:
    shown = rolling_words(rolling_verdict(live_rows(ddp_job(ranks=4, steps=30), **how)))
    assert shown.tone == tone
    assert shown.headline.startswith(headline)


def test_a_late_rank_is_the_headline_with_its_cost_interval_and_steps() -> None:
    shown = rolling_words(rolling_verdict(live_rows(late_in_data(2, since=10))))
    assert shown.headline == (
        "Rank 2 holds the job in data: 6.48 ms (6.05–6.48 ms) of 74.7 ms per step, in 10 of the last 20 steps"
    )
    assert shown.tone == "alarm"
    assert shown.details[0].startswith("Rank 2 on node-0, since step 110, 13.0 ms in each of these steps.")
    known = rolling_words(rolling_verdict(live_rows(late_in_data(2))), Onset(DATA, (2,), 77, True))
    assert known.details[0].startswith("Rank 2 on node-0, since step 77.")


def test_all_ranks_of_a_node_are_named_as_the_node() -> None:
    duration = ddp_job(ranks=8, steps=20, extra={(DATA, rank): 20 * MS for rank in range(4, 8)})
    shown = rolling_words(rolling_verdict(live_rows(duration)))
    assert shown.headline.startswith("Node 1 (ranks 4–7) holds the job in data: ")


def test_a_rank_far_behind_the_others_is_reported() -> None:
    rows = live_rows(ddp_job(ranks=4, steps=64), stopped={3: 10})
    headline = rolling_words(rolling_verdict(rows)).headline
    assert headline == "Incomplete data: rank 3 is 54 steps behind"
