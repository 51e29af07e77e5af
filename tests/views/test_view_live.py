"""What is drawn of a job while it runs: valid for Plotly, in words too, safe, and true to the numbers."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from sfapp.accounting import StepTimes, step_times
from sfapp.errors import WindowError
from sfapp.model import RankIdentity, RankTable
from sfapp.views import figures, format
from sfapp.views.figures import Figure
from sfapp.views.live_tables import NODE_COLUMNS, node_rows
from sfapp.views.words.hints import LIVE_HINTS

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
    rows = sampled()
    return {
        "live_steps": figures.live_steps(times, run=NAUGHTY, dark=dark),
        "live_skew": figures.live_skew(times, run=NAUGHTY, dark=dark),
        "live_ranks": figures.live_ranks(times, {3: 34.4}, run=NAUGHTY, dark=dark),
        "samples_over_time": figures.samples_over_time(rows, "cpu_percent", title="CPU", dark=dark),
    }


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
    ],
    ids=["whole", "ahead", "naughty", "one rank", "no steps", "many ranks"],
)
@pytest.mark.parametrize("dark", [False, True])
def test_every_live_figure_is_valid_and_says_itself_in_words(times: StepTimes, dark: bool) -> None:
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
    assert set(every_figure(job())) == set(LIVE_HINTS)


def test_steps_of_ranks_at_different_places_lie_side_by_side() -> None:
    rows = [np.array([[4, 40], [5, 50], [5, 55], [6, 60]]), np.array([[5, 51]]), np.zeros((0, 2), np.int64)]
    times = step_times(table(1, 3), rows, newest=2)
    assert times.step_N.tolist() == [5, 6]
    assert np.array_equal(
        times.wall_NR, [[55, 51, np.nan], [60, np.nan, np.nan]], equal_nan=True
    )  # a step that was done again counts once
    with pytest.raises(WindowError, match="1 ranks for 3"):
        step_times(table(1, 3), rows[:1])


def test_the_slowest_rank_and_the_median_are_drawn() -> None:
    nodes, slowest, median = figures.live_steps(job())["data"]
    assert numbers(median["y"]) == pytest.approx(np.full(30, 100))
    assert numbers(slowest["y"]) == pytest.approx(np.full(30, 130))
    assert set(slowest["text"]) == {"rank 6 on node-1"}
    assert np.isnan(numbers(nodes["y"])).sum() == 2  # a gap after each node


def test_skew_is_that_of_the_design() -> None:
    ranks, nodes = figures.live_skew(job())["data"]
    assert numbers(ranks["y"]) == pytest.approx(np.full(30, 0.3))
    assert numbers(nodes["y"]) == pytest.approx(np.zeros(30))
    assert figures.live_skew(job())["layout"]["meta"]["alt"] == (
        "In step 36 the slowest rank is 30.0 % above the median rank."
    )


def test_a_rank_that_is_silent_says_for_how_long() -> None:
    figure = figures.live_ranks(job(), {3: 34.4, 5: 1.0})
    (heat,) = figure["data"]
    z = numbers(heat["z"])
    assert np.isnan(z[0, 3])
    assert z[1, 2] == pytest.approx(0.3)
    assert "no data for 34 s" in heat["hovertext"][0][3]
    assert "no data" not in heat["hovertext"][1][1]
    assert figure["layout"]["meta"]["alt"].endswith("no data from rank 3.")


def test_what_was_not_read_is_a_gap_and_units_are_those_of_the_name() -> None:
    first, second = figures.samples_over_time(sampled(), "cpu_percent", title="CPU")["data"]
    assert np.isnan(numbers(first["y"])[2])
    assert (first["name"], second["text"][-1]) == ("node 0", "41 %")
    network = figures.samples_over_time(sampled(), "network_sent_bytes_per_s", title="Sent")
    assert network["layout"]["yaxis"]["ticksuffix"] == " GB/s"
    assert numbers(network["data"][0]["y"]) == pytest.approx(np.full(5, 2.5))
    nothing = figures.samples_over_time([], "cpu_percent", title="CPU")
    assert "nothing is known of cpu percent" in nothing["layout"]["meta"]["alt"]


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
    samples = [{"node_rank": 1, "cpu_percent": 87.0, "memory_used_bytes": 64_000_000_000}]
    first, second = node_rows(job(ahead=2), samples, {0: 0.2, 6: 12.0})
    assert [first[column.shown] for column in NODE_COLUMNS] == [
        0, "node-0", 4, "100.0 ms", 0, "100.0 ms", "0.0 %", "0.0 %", "n/a", "n/a", "just now",
    ]  # fmt: skip
    assert [second[column.shown] for column in NODE_COLUMNS] == [
        1, "node-1", 4, "100.0 ms", 6, "130.0 ms", "30.0 %", "0.0 %", "87 %", "64 GB", "12 s ago",
    ]  # fmt: skip


def test_a_node_that_has_done_nothing_yet_has_a_row() -> None:
    rows = node_rows(step_times(table(), [np.zeros((0, 2), np.int64)] * 8))
    assert [row["median_ns_text"] for row in rows] == ["n/a", "n/a"]
    assert [row["worst_rank"] for row in rows] == [None, None]
