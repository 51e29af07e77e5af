"""What is drawn of a job while it runs: valid for Plotly, in words too, safe, and true to the numbers."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from sfapp.accounting import RankDelays, StepTimes, paced_steps, step_times
from sfapp.errors import WindowError
from sfapp.model import RankIdentity, RankTable, SideChannel, Window
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.figures import Figure
from sfapp.views.figures.live import live_skew, live_steps
from sfapp.views.figures.live_node import live_courses, live_layers
from sfapp.views.figures.live_ranks import live_ranks
from sfapp.views.figures.live_samples import no_gpus, samples_over_time
from sfapp.views.live_tables import (
    NODE_COLUMNS,
    RANK_COLUMNS,
    SHARD_COLUMNS,
    node_rows,
    rank_rows,
    shard_rows,
)
from sfapp.views.plot_registry import PLOTS, LiveInput
from tests.builders import window_of

MS = 1_000_000
NAUGHTY = "<img src=x onerror=alert(1)>%{y}"


def table(nodes: int = 2, size: int = 4, host: str = "node") -> RankTable:
    return RankTable.of(
        [
            RankIdentity(node * size + local, local, node, f"{host}-{node}")
            for node in range(nodes)
            for local in range(size)
        ]
    )


def job(steps: int = 30, host: str = "node", ahead: int = 0) -> StepTimes:
    """Two nodes of four ranks, 100 ms a step; rank 6 takes 130 ms, and rank 0 is some steps ahead."""
    ranks = table(host=host)
    rows = []
    for rank in ranks.rank:
        count = steps + (ahead if rank == 0 else 0)
        wall = np.full(count, (130 if rank == 6 else 100) * MS)
        rows.append(np.stack([np.arange(count) + 7, wall, wall], axis=1))
    return step_times(ranks, rows)


def sampled(count: int = 5) -> list[dict[str, Any]]:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        {
            "sampled_at": begin + timedelta(seconds=second),
            "node_rank": node,
            "cpu_percent": None if second == 2 else 10.0 * second + node,
            "network_sent_bytes_per_s": 2.5e9,
        }
        for node in (0, 1)
        for second in range(count)
    ]


def every_figure(times: StepTimes, dark: bool = False) -> dict[str, Figure]:
    """Every figure of a live page by the name of its help; one that is not listed here is drawn from its
    declaration."""
    rows = sampled()
    drawn = {
        "live_steps": live_steps(times, run=NAUGHTY, dark=dark),
        "live_skew": live_skew(times, run=NAUGHTY, dark=dark),
        "live_ranks": live_ranks(times, {3: 34.4}, run=NAUGHTY, dark=dark),
        "live_courses": live_courses(times, 0, run=NAUGHTY, dark=dark),
        "live_layers": live_layers(finished(), 0, run=NAUGHTY, dark=dark),
        "samples_over_time": samples_over_time(rows, "cpu_percent", title="CPU", dark=dark),
    }
    given = LiveInput(run=NAUGHTY, times=times, node_samples=rows, window=finished())
    for spec in PLOTS.of(LiveInput):
        if spec.help_name not in drawn:
            drawn[spec.help_name] = spec.build(given, dark)
    return drawn


def finished() -> Window:
    """A window of two ranks with shards; a layer of a bad name was timed in one step of two."""
    rank = np.array([0.0, 1.0], dtype=np.float64)

    def channel(value: float, of_rank: float = 0.0) -> SideChannel:
        value_NR = np.stack([rank * math.nan, value + of_rank * rank])
        return SideChannel(value_NR, ~np.isnan(value_NR))

    side = {
        f"layer.{NAUGHTY}.forward_ms": channel(2, 1),
        f"layer.{NAUGHTY}.backward_ms": channel(4),
        "layer.head.forward_ms": channel(1),
        "memory.parameter_shard_bytes": channel(250e6, 50e6),
        "memory.parameter_full_bytes": channel(1e9),
    }
    return window_of([[[5, 6], [5, 6]]], stages=("a",), side=side)


def numbers(array: dict[str, Any]) -> np.ndarray:
    found = np.frombuffer(base64.b64decode(array["bdata"]), "<f4")
    return found.reshape([int(part) for part in array["shape"].split(",")]) if "shape" in array else found


@pytest.mark.parametrize(
    "times",
    [
        job(),
        job(ahead=3),
        job(1, host=NAUGHTY),
        step_times(table(1, 1), [np.array([[1, MS]])]),
        step_times(table(), [np.zeros((0, 2), np.int64)] * 8),
        step_times(table(9, 8), [np.array([[5, MS], [6, 2 * MS]])] * 72),
        step_times(table(17, 1), [np.array([[5, MS], [6, 2 * MS]])] * 17),
    ],
    ids=["whole", "ahead", "naughty", "one rank", "no steps", "many ranks", "many nodes"],
)
@pytest.mark.parametrize("dark", [False, True])
def test_every_live_figure_is_valid_and_has_a_text(times: StepTimes, dark: bool) -> None:
    for name, figure in every_figure(times, dark).items():
        go.Figure(figure)  # raises on anything that is not in plotly's schema
        meta = figure["layout"]["meta"]
        assert meta["title"], name
        assert meta["alt"].endswith("."), name
        text = json.dumps(
            {"data": figure["data"], "notes": figure["layout"].get("annotations")}, allow_nan=False
        )
        assert "<img" not in text
        assert NAUGHTY not in text


def test_every_live_figure_has_a_hint_how_to_read_it() -> None:
    assert set(every_figure(job())) == {spec.help_name for spec in PLOTS.of(LiveInput)}


def test_steps_of_ranks_at_different_places_are_aligned() -> None:
    rows = [np.array([[4, 40], [5, 50], [5, 55], [6, 60]]), np.array([[5, 51]]), np.zeros((0, 2), np.int64)]
    times = step_times(table(1, 3), rows, newest=2)
    assert times.step_N.tolist() == [5, 6]
    assert np.array_equal(
        times.wall_NR, [[55, 51, np.nan], [60, np.nan, np.nan]], equal_nan=True
    )  # a step that was done again counts once
    with pytest.raises(WindowError, match="1 ranks for 3"):
        step_times(table(1, 3), rows[:1])


def test_the_slowest_rank_and_the_median_are_drawn() -> None:
    nodes, slowest, median = live_steps(job())["data"]
    assert numbers(median["y"]) == pytest.approx(np.full(30, 100))
    assert numbers(slowest["y"]) == pytest.approx(np.full(30, 130))
    assert set(slowest["text"]) == {"rank 6 on node-1"}
    assert np.isnan(numbers(nodes["y"])).sum() == 2  # a gap after each node


def test_medians_of_very_many_nodes_are_a_band() -> None:
    rows = [np.array([[5, (100 + node) * MS]]) for node in range(17)]
    fastest, slowest, _, median = live_steps(step_times(table(17, 1), rows))["data"]
    assert [numbers(trace["y"]).tolist() for trace in (fastest, slowest, median)] == [[100], [116], [108]]
    assert slowest["text"] == ["slowest node 16"]


def test_skew_is_that_of_the_design() -> None:
    ranks, nodes = live_skew(job())["data"]
    assert numbers(ranks["y"]) == pytest.approx(np.full(30, 0.3))
    assert numbers(nodes["y"]) == pytest.approx(np.zeros(30))
    assert live_skew(job())["layout"]["meta"]["alt"] == (
        "In step 36 the slowest rank is 30.0 % above the median rank."
    )


def test_a_silent_rank_shows_the_duration() -> None:
    figure = live_ranks(job(), {3: 34.4, 5: 1.0})
    (heat,) = figure["data"]
    z = numbers(heat["z"])
    assert np.isnan(z[0, 3])
    assert z[1, 2] == pytest.approx(0.3)
    assert "no data for 34 s" in heat["hovertext"][0][3]
    assert "no data" not in heat["hovertext"][1][1]
    assert figure["layout"]["meta"]["alt"].endswith("no data from rank 3.")


def test_what_was_not_read_is_a_gap_and_units_are_those_of_the_name() -> None:
    first, second = samples_over_time(sampled(), "cpu_percent", title="CPU")["data"]
    assert np.isnan(numbers(first["y"])[2])
    assert (first["name"], second["text"][-1]) == ("node 0", "41 %")
    network = samples_over_time(sampled(), "network_sent_bytes_per_s", title="Sent")
    assert network["layout"]["yaxis"]["ticksuffix"] == " GB/s"
    assert numbers(network["data"][0]["y"]) == pytest.approx(np.full(5, 2.5))
    nothing = samples_over_time([], "cpu_percent", title="CPU")
    assert "no samples of this value" in nothing["layout"]["meta"]["alt"]


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("power_watts", 512.31, "512 W"),
        ("temperature_celsius", 61.0, "61 °C"),
        ("sm_clock_mhz", 1980.0, "1,980 MHz"),
        ("cpu_percent", 3.45, "3.5 %"),
        ("rss_bytes", 1_200_000, "1.2 MB"),
        ("disk_read_bytes_per_s", 0.0, "0 B/s"),
        ("wall_mean_ns", 149_900_000, "149.9 ms"),
        ("threads", 40, "40"),
        ("threads", None, "n/a"),
    ],
)
def test_a_sampled_value_is_in_the_unit_of_its_name(field: str, value: float | None, text: str) -> None:
    assert format.measured(field, value) == text


def test_a_row_a_node_by_the_newest_step_that_all_have_finished() -> None:
    samples = [
        {"node_rank": 1, "cpu_percent": 87.0, "memory_used_bytes": 64_000_000_000}
        | {"clock_offset_ns": -3_421_000.0, "clock_uncertainty_ns": 40_000.0}
    ]
    first, second = node_rows(job(ahead=2), samples, {0: 0.2, 6: 12.0})
    assert [first[column.shown] for column in NODE_COLUMNS] == [
        0, "node-0", 4, "100.0 ms", 0, "100.0 ms", "0.0 %", "0.0 %", "n/a", "n/a", "n/a", "just now",
    ]  # fmt: skip
    assert [second[column.shown] for column in NODE_COLUMNS] == [
        1, "node-1", 4, "100.0 ms", 6, "130.0 ms", "30.0 %", "0.0 %", "87 %", "64 GB",
        "−3.42 ms ± 40 µs", "12 s ago",
    ]  # fmt: skip


def test_a_node_that_has_done_nothing_yet_has_a_row() -> None:
    rows = node_rows(step_times(table(), [np.zeros((0, 2), np.int64)] * 8))
    assert [row["median_ns_text"] for row in rows] == ["n/a", "n/a"]
    assert [row["worst_rank"] for row in rows] == [None, None]


def test_a_rank_that_is_behind_within_a_row_of_steps_shows_its_own_step() -> None:
    # Given reports of ten steps each, and rank 1 that stopped at the fourth of them
    times = paced_steps(
        table(1, 2), np.array([0, 1, 0, 1]), np.array([9, 9, 19, 13]), np.array([10, 10, 10, 4]), [MS] * 4
    )
    counts = {"lost_steps": 0, "duplicates": 0, "has_left": False}
    links = [{"rank": rank, "local_rank": rank, "node_rank": 0, **counts} for rank in (0, 1)]
    assert [row["step"] for row in rank_rows(times, links, [], {0: 0.1, 1: 0.1}, 0)] == [19, 13]


def test_rows_of_several_steps_are_labelled() -> None:
    times = replace(job(), steps_each=50)
    assert "every 50 steps, their mean" in live_steps(times)["layout"]["meta"]["subtitle"]
    assert "mean of the newest 50 steps" in live_ranks(times)["layout"]["meta"]["subtitle"]


@pytest.mark.parametrize("dark", [False, True])
def test_without_a_gpu_the_plot_gives_the_reason(dark: bool) -> None:
    figure = no_gpus(NAUGHTY, dark=dark)
    go.Figure(figure)
    assert "<img" not in json.dumps(figure["layout"]["annotations"])
    assert "n/a" in figure["layout"]["meta"]["alt"]


def test_few_rows_of_many_steps_have_few_ticks() -> None:
    rows = step_times(table(1, 1), [np.array([[5, MS], [1_000_000, MS]])])
    for times in (replace(job(5), steps_each=100), rows):
        for figure in (live_steps(times), live_skew(times), live_courses(times, 0)):
            assert "dtick" not in figure["layout"]["xaxis"]  # a browser would draw a million


def test_a_node_s_ranks_have_a_line_each_on_one_scale() -> None:
    (line,) = live_courses(job(), 1)["data"]
    level = numbers(line["y"]).reshape(4, 31)
    assert level[2, 0] == pytest.approx(0.85 - 2)
    assert level[0, 0] == pytest.approx(0.85 * 100 / 130)
    assert np.isnan(level[:, -1]).all()
    without_ranks = live_courses(job(), 7)["layout"]["meta"]["alt"]
    assert "no rank of node 7 has finished a step yet" in without_ranks


def test_layers_are_means_over_what_was_sampled() -> None:
    figure = live_layers(finished(), 0)
    forward, backward = figure["data"]
    assert (forward["x"], backward["x"]) == ([2.5, 1], [4, 0])
    assert "<img" not in str(forward["hovertext"])


@pytest.mark.parametrize(
    ("window", "why"),
    [(None, "no window is finished yet"), (window_of([[[5]]], stages=("a",)), "no layer is timed")],
)
def test_without_layer_times_the_figure_gives_the_reason(window: Window | None, why: str) -> None:
    assert why in live_layers(window, 0)["layout"]["meta"]["alt"]
    assert shard_rows(window, 0) == []


def test_shards_are_listed_by_rank() -> None:
    rows = shard_rows(finished(), 0)
    assert [[row[column.shown] for column in SHARD_COLUMNS] for row in rows] == [
        [0, "250 MB", "1.0 GB", "25.0 %"],
        [1, "300 MB", "1.0 GB", "30.0 %"],
    ]
    assert shard_rows(finished(), 3) == []


def link(rank: int, **values: Any) -> dict[str, Any]:
    defaults = {"lost_steps": 0, "duplicates": 0, "has_left": False}
    return {"rank": rank, "node_rank": rank // 4, "local_rank": rank % 4, **defaults, **values}


def test_a_row_a_rank_of_the_node() -> None:
    links = [link(3), link(6, lost_steps=4), link(7, has_left=True)]
    processes = [{"rank": 6, "cpu_percent": 180.0, "rss_bytes": 2_500_000_000}]
    late = RankDelays(table(), np.array([0, 0, 0, 0, 0, 0, 25e6, -4e6]), (), np.empty((0, 8)))
    first, second = rank_rows(job(), links, processes, {6: 12.0}, 1, late)
    assert [first[column.shown] for column in RANK_COLUMNS] == [
        6, 2, 36, "", "130.0 ms", "25.0 ms", "180 %", "2.5 GB", 4, 0, "12 s ago",
    ]  # fmt: skip
    assert second["behind_ns_text"] == "0 ms"
    unjudged, _ = rank_rows(job(), links, processes, {6: 12.0}, 1)
    assert unjudged["behind_ns_text"] == format.ABSENT
    assert (second["rank"], second["silent_s_text"]) == (7, "disconnected")


@pytest.mark.parametrize(
    ("silent_s", "left", "expected", "kind"),
    [
        ({0: 0.4, 1: 0.2}, set(), "Live: 2 ranks reporting.", "live"),
        ({0: 0.4}, {1}, "Live: 1 rank reporting, 1 disconnected.", "live"),
        ({0: 0.4, 1: 34.0}, set(), "1 of 2 ranks silent.", "stale"),
        ({0: 130.0, 1: 190.0}, set(), "No rank has reported for 2 min.", "stale"),
        ({}, {0, 1}, "The job has ended: all ranks disconnected.", "ended"),
    ],
)
def test_how_the_job_stands(silent_s: dict[int, float], left: set[int], expected: str, kind: str) -> None:
    assert words.standing(2, silent_s, left) == (expected, kind)


def test_silent_ranks_are_named_with_how_long() -> None:
    assert words.silences({12: 34.2, 3: 1.0, 4: 7200.0}) == (
        "rank 4: no data for 2 h",
        "rank 12: no data for 34 s",
    )
    assert words.silences({rank: 40.0 + rank for rank in range(8)}) == (
        "ranks 0–7: no data for 40 s or longer",
    )


def test_losses_are_counted_by_rank() -> None:
    counts = {"malformed": 7, "oversized": 0, "newer_version": 1, "last_fault": "10.0.0.9: no map"}
    lost, twice, refused = words.counters([link(3), link(6, lost_steps=4, duplicates=2)], counts)
    assert lost[:2] == ("4 steps lost by rank 6", "warn")
    assert twice[:2] == ("2 duplicates", "muted")
    assert refused[:2] == ("8 messages refused", "warn")
    assert refused[2] == "7 malformed and 1 of a newer version; the newest from 10.0.0.9: no map"
    assert [kind for _, kind, _ in words.counters([link(3)], None)] == ["muted"] * 3
