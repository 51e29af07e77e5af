"""The worked cases of accounting.md §8 and the paper's own figures."""

from __future__ import annotations

import pytest

from sfapp.accounting import diagnose, measure
from sfapp.model import Gates
from tests.builders import BACKWARD, DATA, FORWARD, by_rank, window_of


def test_the_paper_s_first_figure_charges_the_stall_once_to_data() -> None:
    # given three ranks of which r0 reaches its data boundary late and the others wait in backward
    window = window_of(
        by_rank((6.0, 1.0, 1.2), (1.0, 1.0, 6.2), (1.1, 1.0, 6.0)), stages=(DATA, FORWARD, BACKWARD)
    )
    # when the window is diagnosed
    diagnosis = diagnose(window)
    # then the exposed time splits exactly, and per-stage maxima are seen to count 5 s twice
    assert diagnosis.advances_ns == {DATA: 6_000_000_000, FORWARD: 1_000_000_000, BACKWARD: 1_200_000_000}
    assert diagnosis.exposed_makespan_ns == 8_200_000_000
    maxima = next(rival for rival in diagnosis.rivals if rival.rule == "per_stage_max")
    assert maxima.overcount * 8.2 == pytest.approx(13.2)
    assert diagnosis.static_gain == pytest.approx({DATA: 0, FORWARD: 0, BACKWARD: 0})
    assert diagnosis.excess == pytest.approx({DATA: 0.598, FORWARD: 0, BACKWARD: 0}, abs=5e-4)
    assert diagnosis.label_names == ("frontier_accounting", "co_critical")
    assert set(diagnosis.co_critical_stages or ()) == {DATA, BACKWARD}


def test_with_a_declared_wait_model_the_same_window_is_a_likely_wait() -> None:
    window = window_of(
        by_rank((6.0, 1.0, 1.2), (1.0, 1.0, 6.2), (1.1, 1.0, 6.0)),
        stages=(DATA, FORWARD, BACKWARD),
        model_fit=True,
    )
    diagnosis = diagnose(window, Gates.preset("paper"))
    assert diagnosis.label_names == ("frontier_accounting", "sync_wait_dependent", "likely_sync_wait")


def test_two_ranks_that_may_or_may_not_wait_for_each_other_stay_co_critical() -> None:
    diagnosis = diagnose(window_of(by_rank((10, 0), (0, 10)), stages=(DATA, BACKWARD)))
    assert diagnosis.shares == {DATA: 1.0, BACKWARD: 0.0}
    assert diagnosis.labels[1].label == "co_critical"
    assert diagnosis.labels[1].reasons == ("low_static_gain",)
    assert set(diagnosis.co_critical_stages or ()) == {DATA, BACKWARD}


def test_each_boundary_names_its_own_leader_and_hand_overs_are_counted() -> None:
    # given the paper's second figure: r0 leads at data, r1 at forward, r2 at backward
    durations = by_rank((4.0, 1.0, 1.0), (3.0, 3.0, 1.0), (2.0, 2.0, 4.5))
    measures = measure(window_of(durations, stages=(DATA, FORWARD, BACKWARD)))
    assert measures.advance_SN[:, 0].tolist() == [4_000_000_000, 2_000_000_000, 2_500_000_000]
    assert measures.leader_SN[:, 0].tolist() == [0, 1, 2]
    assert [(h.stage, h.from_rank, h.to_rank, h.count) for h in measures.handovers()] == [
        (FORWARD, 0, 1, 1),
        (BACKWARD, 1, 2, 1),
    ]
