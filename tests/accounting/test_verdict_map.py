"""Where verdicts change, found exactly: the map and the judge never differ."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.accounting import (
    judge,
    measure,
    nearest_changes,
    routing_intervals,
    sensitivity,
    stage_verdict,
    verdict_map,
)
from sfapp.model import Frontier
from tests.builders import BACKWARD, DATA, FORWARD, by_rank, window_of

SHARE = st.floats(0, 1)
STAGES = (DATA, FORWARD, BACKWARD)
WINDOWS = [
    window_of(np.random.default_rng(seed).integers(1, 900, (3, 12, 4)) * 1_000_000, stages=STAGES)
    for seed in range(6)
]
MEASURED = [measure(window) for window in WINDOWS]


@given(place=st.integers(0, 5), gamma_a=SHARE, gamma_g=SHARE, edge=st.booleans())
def test_the_map_agrees_with_the_judge_everywhere_its_edges_included(
    place: int, gamma_a: float, gamma_g: float, edge: bool
) -> None:
    measures = MEASURED[place]
    diagnosis = judge(measures)
    found = verdict_map(measures, diagnosis)
    assert found is not None
    if edge:
        gamma_a, gamma_g = found.share, found.gains[0]
    gates = diagnosis.gates.with_values(gamma_a=gamma_a, gamma_g=gamma_g)
    assert found.at(gamma_a, gamma_g) == stage_verdict(judge(measures, gates))


@given(place=st.integers(0, 5), gamma_a=SHARE, gamma_g=SHARE)
def test_regions_cover_the_plane_and_show_the_verdict_inside_them(
    place: int, gamma_a: float, gamma_g: float
) -> None:
    measures = MEASURED[place]
    found = verdict_map(measures, judge(measures))
    assert found is not None
    area = sum(np.diff(r.gamma_a)[0] * np.diff(r.gamma_g)[0] for r in found.regions)
    assert area == pytest.approx(1)
    inside = [
        region.verdict
        for region in found.regions
        if region.gamma_a[0] < gamma_a < region.gamma_a[1] and region.gamma_g[0] < gamma_g < region.gamma_g[1]
    ]
    assert all(verdict == found.at(gamma_a, gamma_g) for verdict in inside)
    assert len(inside) <= 1


@pytest.mark.parametrize("frontier", ["step", "carry_over"])
@given(place=st.integers(0, 5), tau_c=SHARE)
def test_routing_intervals_agree_with_the_judge(frontier: Frontier, place: int, tau_c: float) -> None:
    diagnosis = judge(MEASURED[place], frontier=frontier)
    intervals = routing_intervals(diagnosis)
    assert [i.high for i in intervals[:-1]] == [i.low for i in intervals[1:]]
    (stages,) = (i.stages for i in intervals if i.low < tau_c <= i.high or i.low == tau_c == 0)
    gates = diagnosis.gates.with_values(tau_c=tau_c)
    assert stages == judge(MEASURED[place], gates, frontier).routing_set


def test_the_gates_of_eligibility_know_where_the_leader_stops_to_rotate() -> None:
    # given a leader that changes every step, for certain
    turns = [by_rank((9, 1), (1, 1)), by_rank((1, 1), (9, 1))]
    window = window_of(np.concatenate([*turns, *turns], axis=1), stages=(DATA, BACKWARD))
    measures = measure(window)
    diagnosis = judge(measures, frontier="step")
    assert diagnosis.label_names[-1] == "co_critical"
    # then asking for a larger share of the step than the stage has takes the label away
    (change,) = nearest_changes(measures, diagnosis, ("gamma_elig",))["gamma_elig"]
    assert change.direction == "above"
    assert change.value == pytest.approx(0.91)


def test_a_gate_without_listed_values_is_tried_on_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    measures = measure(window_of(by_rank((30, 40, 30), (90, 40, 30)), stages=STAGES))
    diagnosis = judge(measures)
    from_evidence = nearest_changes(measures, diagnosis, ("gamma_a",))
    assert from_evidence["gamma_a"]
    monkeypatch.delitem(sensitivity.COMPARED_WITH, "gamma_a")
    assert nearest_changes(measures, diagnosis, ("gamma_a",)) == from_evidence
