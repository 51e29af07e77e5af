"""The pattern that late ranks form in the parallel layout, and that noise forms none."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from sfapp.accounting import judge, layout_axes, layout_table, measure
from sfapp.model import Diagnosis, Window
from sfapp.model.parallel_layout import LayoutPattern, LayoutTable
from sfapp.views.figures.parallel_layout import parallel_layout
from tests.builders import BACKWARD, DATA, FORWARD, MS, ddp_job, reduced, window_of

DP, PP, TP = 4, 4, 2
RANKS = DP * PP * TP

LAYOUT = {
    "dp": [rank // TP % DP for rank in range(RANKS)],
    "pp": [rank // (TP * DP) for rank in range(RANKS)],
    "tp": [rank % TP for rank in range(RANKS)],
}
"""Megatron's order: tensor, then data, then pipeline parallelism."""


def ranks_at(**coordinates: int) -> tuple[int, ...]:
    """Return the ranks with these coordinates."""
    return tuple(
        rank
        for rank in range(RANKS)
        if all(LAYOUT[name][rank] == place for name, place in coordinates.items())
    )


def job(
    late: Iterable[int] = (), ms: int = 10, seed: int = 0, also: Iterable[int] = (), **settings: Any
) -> Window:
    """A job of 32 ranks on nodes of four: some are late in forward, others by 5 ms in data."""
    extra: dict[tuple[str, int | str], int] = {(FORWARD, rank): ms * MS for rank in late}
    extra |= {(DATA, rank): 5 * MS for rank in also}
    durations = ddp_job(ranks=RANKS, steps=20, seed=seed, extra=extra)
    return window_of(durations, layout=LAYOUT, **settings)


def table_of(window: Window) -> LayoutTable:
    found = judge(measure(window)).layout
    assert found is not None
    return found


def pattern_of(window: Window) -> LayoutPattern | None:
    return table_of(window).pattern


@pytest.mark.parametrize(
    ("kind", "late", "coordinates", "host"),
    [
        ("worker", (13,), {"dp": 2, "pp": 1, "tp": 1}, "node-3"),
        ("tensor_group", ranks_at(dp=1, pp=2), {"dp": 1, "pp": 2}, "node-4"),
        ("host", (8, 9, 10, 11), {"pp": 1}, "node-2"),
        ("pipeline_stage", ranks_at(pp=3), {"pp": 3}, None),
        ("pipeline_stage", ranks_at(pp=1), {"pp": 1}, None),
        ("data_row", ranks_at(dp=2), {"dp": 2}, None),
    ],
)
def test_the_pattern_of_late_ranks_is_named(
    kind: str, late: tuple[int, ...], coordinates: dict[str, int], host: str | None
) -> None:
    for seed in range(3):
        found = pattern_of(job(late, seed=seed))
        assert found is not None
        assert (found.kind, found.also, found.ranks) == (kind, (), late)
        assert (found.coordinates, found.hostname) == (coordinates, host)
        assert found.late_ns == pytest.approx(10 * MS, rel=0.2)
        assert found.slowdown > 0.2  # of about 26 ms outside of backward, where ranks wait


def healthy(seed: int) -> Window:
    """Ranks of slightly different speed whose steps are noisy, with long ones now and then."""
    random = np.random.default_rng(seed)
    base = np.array([2.0, 20.0, 40.0, 3.0]) * MS
    speed = 1 + 0.003 * random.standard_normal(RANKS)
    noise = 1 + 0.04 * random.standard_t(3, (4, 25, RANKS)).clip(-10, 10)
    return window_of((base[:, None, None] * speed * noise).clip(0).astype(np.int64), layout=LAYOUT)


def test_a_healthy_window_has_no_pattern() -> None:
    assert [seed for seed in range(60) if pattern_of(healthy(seed)) is not None] == []


def test_a_difference_too_small_to_matter_is_no_pattern() -> None:
    # 1 ms of 66 is far beyond noise, but below min_effect
    assert pattern_of(job(ranks_at(pp=3), ms=1)) is None


@pytest.mark.parametrize("late", [(1, 12, 27), ranks_at(pp=3)[:4:3], (*ranks_at(dp=0), *ranks_at(dp=1))])
def test_late_ranks_that_are_no_group_form_no_pattern(late: tuple[int, ...]) -> None:
    assert pattern_of(job(late)) is None


def test_a_group_in_which_nearly_all_ranks_are_late_is_named() -> None:
    stage = ranks_at(pp=3)
    found = pattern_of(job((*stage[:-1], 2)))  # 7 of 9 ranks are late and of the stage
    assert found is not None
    assert (found.kind, found.ranks) == ("pipeline_stage", stage)
    assert pattern_of(job((24, 25, 28, 29, 30))) is None  # 5 of the 8, and of no host most


def test_a_rank_that_is_much_later_than_the_others_is_named_alone() -> None:
    found = pattern_of(job((13,), ms=40, also=ranks_at(pp=3)))
    assert found is not None
    assert (found.kind, found.ranks) == ("worker", (13,))


def test_groups_of_the_same_ranks_are_named_together() -> None:
    found = pattern_of(job(ranks_at(pp=2), ranks_per_node=8))
    assert found is not None
    assert (found.kind, found.also, found.hostname) == ("host", ("pipeline_stage",), "node-2")


def test_a_cell_has_the_values_of_its_slowest_rank() -> None:
    table = table_of(job((13,)))
    assert table.dimensions == ("dp", "pp")
    assert (table.rows, table.columns) == ((0, 1, 2, 3), (0, 1, 2, 3))
    assert table.rank[2][1] == 13
    late = [value for row in table.late_ns for value in row if value is not None]
    assert len(late) == 16
    assert max(late) == table.late_ns[2][1] == pytest.approx(10 * MS, rel=0.1)
    assert sorted(late)[-2] < MS
    assert table.hidden == (BACKWARD,)


def test_own_time_is_that_of_the_stages_in_which_ranks_do_not_wait() -> None:
    window = job((13,))
    table = table_of(window)
    shown = [place for place, stage in enumerate(window.stages) if stage != BACKWARD]
    own_R = window.duration_SNR[shown].sum(axis=0).mean(axis=0)
    assert table.own_ns[2][1] == own_R[13]
    assert table.slowdown[2][1] == pytest.approx(own_R[13] / np.median(own_R) - 1)


def test_measured_waits_do_not_count_as_own_time() -> None:
    # Given a rank that is slow inside backward, where the others wait for it for a measured time
    window = job()
    backward = window.stages.index(BACKWARD)
    durations = window.duration_SNR.copy()
    durations[backward] += 20 * MS
    wait_NR = np.full(window.wall_NR.shape, 20 * MS)
    wait_NR[:, 13] = 0
    waited = replace(window_of(durations, layout=LAYOUT), waits={BACKWARD: wait_NR})
    # Then it is the late worker
    found = pattern_of(waited)
    assert found is not None
    assert (found.kind, found.ranks) == ("worker", (13,))
    assert table_of(waited).hidden == ()


def test_rows_and_columns_can_be_any_two_dimensions() -> None:
    measures = measure(job((13,)))
    diagnosis = judge(measures)
    table = layout_table(measures, diagnosis, ("pp", "tp"))
    assert table is not None
    assert (table.dimensions, table.columns) == (("pp", "tp"), (0, 1))
    assert table.rank[1][1] == 13
    assert table.pattern == table_of(measures.window).pattern
    absent = layout_table(measures, diagnosis, ("dp", "cp"))
    assert absent is not None
    assert absent.columns == (0,)


def test_a_place_without_ranks_is_an_empty_cell() -> None:
    node = job((13,)).of_group("node:3")
    sparse = replace(node, ranks=replace(node.ranks, layout={"dp": (0, 0, 1, 1), "pp": (0, 1, 1, 1)}))
    table = table_of(sparse)
    assert table.rank[1][0] is None
    assert table.own_ns[1][0] is None
    assert table.rank[1][1] in (14, 15)


@pytest.mark.parametrize(
    ("layout", "axes"),
    [
        ({"dp": [0, 1], "pp": [0, 1]}, (("dp", "pp"),)),
        ({"dp": [0, 1], "pp": [0, 0]}, (("dp", "pp"),)),
        ({"dp": [0, 0], "tp": [0, 1]}, (("dp", "tp"),)),
        ({"dp": [0, 1], "tp": [0, 1]}, (("dp", "tp"),)),
        ({"ep": [0, 1]}, (("dp", "ep"),)),
        ({"dp": [0, 0]}, (("dp", "pp"),)),
        ({"dp": [0, 1], "pp": [0, 1], "cp": [0, 1]}, (("dp", "pp"), ("dp", "cp"), ("pp", "cp"))),
    ],
)
def test_the_axes_are_those_along_which_ranks_differ(
    layout: dict[str, list[int]], axes: tuple[tuple[str, str], ...]
) -> None:
    assert layout_axes(layout) == axes


def small() -> Window:
    durations = ddp_job(ranks=4, steps=8)
    return window_of(durations, layout={"dp": range(4)})


@pytest.mark.parametrize(
    "window",
    [
        window_of(ddp_job(ranks=4, steps=8)),  # without coordinates
        window_of(ddp_job(ranks=4, steps=4), layout={"dp": range(4)}),
        window_of(ddp_job(ranks=1, steps=8), layout={"dp": [0]}),
        reduced(small()),
    ],
)
def test_without_coordinates_or_own_times_there_is_no_table(window: Window) -> None:
    diagnosis = judge(measure(window))
    assert diagnosis.layout is None
    assert "layout" not in diagnosis.document()


def test_the_window_document_has_the_table() -> None:
    diagnosis = judge(measure(job((13,))))
    document = json.loads(json.dumps(diagnosis.document()))
    assert document["layout"]["dimensions"] == ["dp", "pp"]
    assert document["layout"]["rank"][2][1] == 13
    assert document["layout"]["pattern"]["kind"] == "worker"
    assert document["layout"]["pattern"]["coordinates"] == {"dp": 2, "pp": 1, "tp": 1}
    # and a store gets the diagnosis back
    assert msgspec.json.decode(msgspec.json.encode(diagnosis), type=Diagnosis).layout == diagnosis.layout


def test_a_large_table_is_left_to_the_plot() -> None:
    window = window_of(np.full((1, 6, 1100), MS), stages=[DATA], layout={"dp": range(1100)})
    measures = measure(window)
    diagnosis = judge(measures)
    assert diagnosis.layout is not None
    assert (len(diagnosis.layout.rows), diagnosis.layout.own_ns) == (1100, ())
    drawn = layout_table(measures, diagnosis)
    assert drawn is not None
    assert len(drawn.own_ns) == 1100


def test_coordinates_of_which_no_two_ranks_share_any_take_no_table() -> None:
    """A packet may claim any coordinates: 3,000 ranks would make nine million places."""
    ranks = 3000
    own = list(range(ranks))
    window = window_of(ddp_job(ranks=ranks, steps=6), layout={"dp": own, "pp": own})
    measures = measure(window)
    diagnosis = judge(measures)
    table = layout_table(measures, diagnosis)
    assert table is not None
    assert (len(table.rows), len(table.columns)) == (ranks, ranks)
    assert table.own_ns == table.late_ns == table.slowdown == table.rank == ()
    shown = json.dumps(parallel_layout(measures, diagnosis))
    assert "3,000 dp rows by 3,000 pp columns are too many places to draw" in shown
