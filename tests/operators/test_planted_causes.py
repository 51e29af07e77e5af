"""Causes planted in generated jobs, with all evidence and with some of it missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.kair_graphs import PLANTS, US, Plant, job
from sfapp.model import Operators
from sfapp.operators import blame


@settings(max_examples=50, deadline=None)
@given(
    what=st.sampled_from(PLANTS),
    half_ranks=st.integers(2, 8),
    layers=st.integers(2, 4),
    seed=st.integers(0, 2**30),
    noise=st.floats(0, 0.03),
    delay_us=st.integers(300, 8_000),
    data=st.data(),
)
def test_a_planted_cause_comes_first(
    what: str, half_ranks: int, layers: int, seed: int, noise: float, delay_us: int, data: st.DataObject
) -> None:
    # A transfer of all ranks is compared with the same collective in the two other steps. Their difference,
    # about 4 % of 900 µs, must stay below the delay / (3 · 1.4826) for the delay to exceed three robust
    # deviations.
    assume(what != "transfer" or delay_us >= 600)
    ranks = 2 * half_ranks
    plant = Plant(
        what,
        rank=data.draw(st.integers(0, ranks - 1)),
        step=data.draw(st.integers(0, 2)),
        layer=data.draw(st.integers(0, layers - 1)),
        delay_ns=delay_us * US,
    )
    made, truth = job(ranks, 3, layers, plant, noise, seed)
    cause = blame(made).causes[0]

    assert (cause.kind, cause.name, cause.nature) == (truth.kind, truth.name, truth.nature)
    assert cause.rank in truth.ranks
    # Three robust deviations of a few ranks are sometimes exceeded by noise, in another step of the same
    # operator.
    assert plant.step in cause.steps
    assert cause.delay_ns - cause.worst_ns < plant.delay_ns / 2
    assert cause.holds_up
    assert np.isclose(cause.worst_ns, plant.delay_ns, rtol=0.5)


def without(made: Operators, what: str) -> Operators:
    none = np.full(len(made), -1)
    if what == "collectives":
        return replace(made, group_E=none.astype(np.int32), sequence_E=none)
    if what == "device":
        return made.select(~made.is_device_E)
    return replace(made, correlation_E=none)


@settings(max_examples=40, deadline=None)
@given(
    what=st.sampled_from(PLANTS),
    missing=st.sampled_from(["collectives", "device", "launches"]),
    half_ranks=st.integers(3, 8),
    seed=st.integers(0, 2**30),
    delay_us=st.integers(1_000, 8_000),
    data=st.data(),
)
def test_where_evidence_is_missing_no_victim_is_blamed(
    what: str, missing: str, half_ranks: int, seed: int, delay_us: int, data: st.DataObject
) -> None:
    """What stands for as much time as was planted lies on the culprit's rank, or is not named."""
    rank = data.draw(st.integers(0, 2 * half_ranks - 1))
    plant = Plant(what, rank, data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2)), delay_us * US)
    made, truth = job(2 * half_ranks, 3, 3, plant, 0.02, seed)
    for cause in blame(without(made, missing)).causes:
        assert cause.rank in truth.ranks or cause.worst_ns < plant.delay_ns / 2
