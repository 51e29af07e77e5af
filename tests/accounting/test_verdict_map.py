"""Where verdicts change, found exactly: the map and the judge never differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.accounting import (
    judge,
    measure,
    nearest_changes,
    reference_of,
    routing_intervals,
    sensitivity,
    stage_verdict,
    verdict_map,
)
from sfapp.model import GATE_DOCS, Diagnosis, Frontier
from sfapp.packets import read_windows
from tests.builders import BACKWARD, DATA, FORWARD, by_rank, window_of

SHARE = st.floats(0, 1)
STAGES = (DATA, FORWARD, BACKWARD)
WINDOWS = [
    window_of(np.random.default_rng(seed).integers(1, 900, (3, 12, 4)) * 1_000_000, stages=STAGES)
    for seed in range(6)
]
MEASURED = [measure(window) for window in WINDOWS]
SAMPLE = Path(__file__).parent.parent.parent / "sample_data" / "packets" / "gpt-small-ddp"


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


@pytest.mark.parametrize("tau_c", [0.5, 0.9])
@pytest.mark.parametrize("alpha", [0.01, 0.0001])
def test_the_map_of_a_window_compared_with_its_reference_agrees_with_the_judge(
    tau_c: float, alpha: float
) -> None:
    # Given a map that is drawn again under other gates, as while a threshold is dragged
    healthy, late = sample(1, 3)
    reference = reference_of(healthy)
    verdict_map(late, judge(late, reference=reference))
    gates = judge(late).gates.with_values(tau_c=tau_c, alpha=alpha, min_effect=0.5)
    diagnosis = judge(late, gates, reference=reference)
    found = verdict_map(late, diagnosis)
    assert found is not None
    # Then it is the judge's under these gates and with this reference
    for gamma_a, gamma_g in ((0.1, 0.0), (0.1, 0.9), (0.9, 0.0), (found.share, found.gains[0])):
        other = judge(late, gates.with_values(gamma_a=gamma_a, gamma_g=gamma_g), reference=reference)
        assert found.at(gamma_a, gamma_g) == stage_verdict(other), (gamma_a, gamma_g)


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


def sample(*numbers: int) -> list[sensitivity.Measures]:
    windows = read_windows([SAMPLE / f"{number:08}.parquet" for number in numbers]).windows
    return [measure(found.window) for found in windows]


def strong(diagnosis: Diagnosis) -> bool:
    return "likely_sync_wait" in diagnosis.label_names


def test_a_change_of_verdict_is_that_of_the_window_compared_with_its_reference() -> None:
    # Given a late rank, and a healthy window from which the growth is known as well
    healthy, late = sample(1, 3)
    reference = reference_of(healthy)
    diagnosis = judge(late, reference=reference)
    assert strong(diagnosis)
    # Then each gate's nearest change is what the judge says there
    found = nearest_changes(late, diagnosis, tuple(doc.name for doc in GATE_DOCS))
    assert sum(map(len, found.values())) > 5
    for change in (change for changes in found.values() for change in changes):
        value = int(change.value) if change.gate == "floor_ns" else change.value
        gates = diagnosis.gates.with_values(**{change.gate: value})
        assert judge(late, gates, reference=reference).label_names == change.labels, change


@pytest.mark.parametrize("number", [3, 6, 13])
def test_the_smallest_effect_changes_the_verdict_where_a_grid_shows_it(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy, late = sample(1, number)
    diagnosis = judge(late, reference=reference_of(healthy))
    assert strong(diagnosis)
    from_findings = nearest_changes(late, diagnosis, ("min_effect",))
    assert from_findings["min_effect"]
    monkeypatch.delitem(sensitivity.COMPARED_WITH, "min_effect")
    assert nearest_changes(late, diagnosis, ("min_effect",)) == from_findings


def test_gates_of_noise_try_no_value_where_no_label_claims_more_than_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (healthy,) = sample(1)
    diagnosis = judge(healthy)
    assert not strong(diagnosis)
    tried: list[object] = []

    def noted(*given: Any) -> Diagnosis:
        tried.append(given)
        return judge(*given)

    monkeypatch.setattr(sensitivity, "judge", noted)
    assert nearest_changes(healthy, diagnosis, ("alpha", "min_effect")) == {"alpha": (), "min_effect": ()}
    assert tried == []
