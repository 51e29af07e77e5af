"""Thresholds that decide labels never change the headline, and the card says so where one is moved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sfapp.accounting import Measures, judge
from sfapp.model import Diagnosis, Gates, Window
from sfapp.model.gates import GATE_BY_NAME, LABEL_GATES
from sfapp.views.text import verdict
from sfapp.views.text.moved_gates import headline_stays
from tests.views import simulated_windows as jobs

KINDS = (
    jobs.healthy,
    jobs.slow_callback,
    jobs.rotating_data_tail,
    jobs.periodic_callback,
    jobs.one_off,
    jobs.slow_everywhere,
    jobs.slow_inside_backward,
    jobs.accumulation,
)


def headline(diagnosis: Diagnosis) -> tuple[object, ...]:
    aim = diagnosis.aim
    assert aim is not None
    place = (aim.stage, aim.rank, aim.rank_reason, aim.steps)
    return *place, diagnosis.severity, diagnosis.needs_attention, verdict(diagnosis).sentence


@pytest.mark.parametrize("gate", sorted(LABEL_GATES))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_value_of_a_label_gate_changes_the_headline(kind: Callable[[], Window], gate: str) -> None:
    measures, diagnosis = jobs.look(kind())
    doc = GATE_BY_NAME[gate]
    for value in (doc.low, (doc.low + doc.high) / 2, doc.high):
        moved = Gates().with_values(**{gate: int(value) if doc.whole else value})
        assert headline(judged(measures, diagnosis, moved)) == headline(diagnosis), value


def judged(measures: Measures, diagnosis: Diagnosis, gates: Gates) -> Diagnosis:
    return judge(measures, gates, diagnosis.frontier, diagnosis.reference)


def test_the_card_states_that_a_moved_threshold_cannot_change_the_headline() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    assert headline_stays(diagnosis) == ""
    moved = judged(measures, diagnosis, Gates(tau_c=0.5, gamma_a=0.9))
    assert headline_stays(moved) == (
        "τC and γA cannot change this headline: labels and routing set depend on them."
    )
    assert verdict(moved).stays == headline_stays(moved)
    assert headline_stays(judged(measures, diagnosis, Gates(alpha=0.05))) == ""
