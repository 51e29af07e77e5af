"""The rank × step heatmap of many ranks: named ranks have rows of their own, bands keep extremes."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sfapp.model.view import Quantity
from sfapp.views.figures import Figure
from sfapp.views.figures.heatmap import rank_step_heatmap
from sfapp.views.figures.heatmap_rows import BANDS
from tests.views import simulated_windows as jobs

STAGE = "data.next_wait"
SLOW_MS = 50


def rows_by_name(figure: Figure) -> dict[str, list[np.ndarray]]:
    """The drawn rows by the name that the hover text shows, from top to bottom."""
    heat: dict[str, Any] = figure["data"][0]
    flat = np.frombuffer(base64.b64decode(heat["z"]["bdata"]), dtype="<f4")
    value_KN = flat.reshape([int(part) for part in heat["z"]["shape"].split(",")])
    found: dict[str, list[np.ndarray]] = {}
    for name, row in zip(heat["y"], value_KN, strict=True):
        found.setdefault(name.rstrip("\u200b"), []).append(row)
    assert len(set(heat["y"])) == len(heat["y"])  # else Plotly would draw two rows in one place
    return found


def labels(figure: Figure) -> list[str]:
    return [text.removeprefix("<b>").removesuffix("</b>") for text in figure["layout"]["yaxis"]["ticktext"]]


@pytest.mark.parametrize(("ranks", "planted", "steps"), [(16, 9, 12), (1_024, 777, 12), (100_000, 54_321, 3)])
def test_the_slow_rank_is_a_row_of_its_own_with_its_values(ranks: int, planted: int, steps: int) -> None:
    # Given one rank that is slow in every step
    slow = jobs.ddp(ranks=ranks, steps=steps, extra_SNR={"data": jobs.on(planted, SLOW_MS, ranks, steps)})
    measures, diagnosis = jobs.look(slow)
    assert diagnosis.aim is not None
    assert diagnosis.aim.rank == planted
    figure = rank_step_heatmap(measures, diagnosis, STAGE)
    # Then it has a row, or several that are drawn as one, with its own times and its name beside it
    own = slow.duration_SNR[0, :, planted] / 1e6
    found = rows_by_name(figure)
    name = f"rank {planted} on {slow.ranks.hostname[planted]}"
    assert all(row == pytest.approx(own, rel=1e-6) for row in found[name])
    assert labels(figure)[0 if ranks > 16 else planted] == f"▶ r{planted}"
    # And a label of 12 pixels has room in the lowest plot, whose rows share 275 pixels
    rows = sum(map(len, found.values()))
    assert 275 * len(found[name]) / rows >= 15


@pytest.mark.parametrize(("ranks", "planted", "steps"), [(1_024, 1_001, 12), (100_000, 99_999, 3)])
def test_a_selected_rank_and_the_slowest_have_rows_where_another_is_the_suspect(
    ranks: int, planted: int, steps: int
) -> None:
    slow = jobs.ddp(ranks=ranks, steps=steps, extra_SNR={"data": jobs.on(planted, SLOW_MS, ranks, steps)})
    measures, diagnosis = jobs.look(slow)
    # Given another stage than that of the suspect
    figure = rank_step_heatmap(measures, diagnosis, "model.fwd_loss_cpu_wall", selected=[7, 40])
    forward_R = slow.duration_SNR[1].mean(axis=0)
    expected = [f"▶ r{planted}", "r7", "r40", f"r{int(forward_R.argmax())}"]
    assert labels(figure)[:4] == list(dict.fromkeys(expected))


def test_bands_keep_the_largest_value_of_each_step() -> None:
    # Given one step in which one rank that is nowhere named is slow
    once = np.zeros((12, 1_024))
    once[5, 333] = SLOW_MS
    subject = jobs.ddp(ranks=1_024, steps=12, extra_SNR={"data": once})
    figure = rank_step_heatmap(*jobs.look(subject), STAGE, selected=[0])
    found = rows_by_name(figure)
    bands = {name: rows[0] for name, rows in found.items() if " ranks, " in name}
    assert len(bands) <= BANDS
    (where,) = [name for name, row in bands.items() if row.max() > SLOW_MS]
    first, last = (int(part) for part in where.split(", ")[1].split(" to "))
    assert first <= 333 <= last
    assert bands[where] == pytest.approx(
        subject.duration_SNR[0, :, first : last + 1].max(axis=1) / 1e6, rel=1e-6
    )
    (note,) = figure["layout"]["meta"]["notes"]
    assert "each cell shows the largest duration of 16 ranks" in note


@pytest.mark.parametrize("quantity", ["slack", "lag"])
def test_bands_keep_what_is_furthest_from_the_median(quantity: Quantity) -> None:
    # Given a rank that is late at every step, so that its slack is the least and its lag the largest
    late = jobs.ddp(ranks=1_024, steps=12, extra_SNR={"data": jobs.on(777, SLOW_MS, 1_024, 12)})
    figure = rank_step_heatmap(*jobs.look(late), "model.fwd_loss_cpu_wall", quantity)
    bands = {name: rows[0] for name, rows in rows_by_name(figure).items() if " ranks, " in name}
    apart = {name: abs(float(np.median(row) - np.median([*bands.values()]))) for name, row in bands.items()}
    first, last = (
        int(part) for part in max(apart, key=lambda name: apart[name]).split(", ")[1].split(" to ")
    )
    assert first <= 777 <= last
    assert "furthest from the median" in figure["layout"]["meta"]["notes"][0]
    assert "average on rank 777" in figure["layout"]["meta"]["alt"]


def test_labels_of_nodes_have_room_whatever_the_number_of_their_ranks() -> None:
    # Given nodes of one rank between nodes of many
    slow = jobs.ddp(ranks=40, steps=12, extra_SNR={"data": jobs.on(20, SLOW_MS, 40, 12)})
    nodes = tuple(node for node, size in enumerate((1, 1, 1, 2, 1, 16, 18)) for _ in range(size))
    measures, diagnosis = jobs.look(replace(slow, ranks=replace(slow.ranks, node_rank=nodes)))
    figure = rank_step_heatmap(measures, diagnosis, STAGE)
    # Then no two labels are closer than 12 pixels in the lowest plot, and the large nodes have one
    rows = sorted(figure["layout"]["yaxis"]["tickvals"])
    apart = 275 / len(figure["data"][0]["y"]) * np.diff(rows).min()
    assert apart >= 12
    assert {"node 5", "node 6"} <= set(labels(figure))
