"""Where only a packet exists, the same stages run on its stages, and say that they did."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sfapp.errors import WindowError
from sfapp.model import Window
from sfapp.operators import examine, examine_stages, operators_of
from tests.builders import BACKWARD, DATA, MS, reduced, window_of

SLOW, RANKS, STEPS = 3, 8, 12


def window() -> Window:
    """Data, forward, backward; one rank's data is 30 ms late, and the others wait for it in backward."""
    base = np.broadcast_to(np.array([20, 40, 90])[:, None, None], (3, STEPS, RANKS)) * MS
    jitter = torch.randint(0, MS // 5, base.shape, generator=torch.Generator().manual_seed(1)).numpy()
    late = np.zeros_like(base)
    late[0, :, SLOW] = 30 * MS
    late[2] = 30 * MS
    late[2, :, SLOW] = 0
    duration = base + jitter + late
    prefix = duration.sum(0)
    duration[2] += prefix.max(axis=1, keepdims=True) - prefix  # all leave backward together
    return window_of(duration)


def test_a_packet_alone_names_rank_and_stage() -> None:
    found = examine_stages(window(), sync_stages=[BACKWARD])

    assert found.source == "stages"
    assert "stage durations" in found.note
    assert found.similarity.ranks[found.similarity.order_R[0]] == SLOW
    cause = found.blame.causes[0]
    assert (cause.kind, cause.nature, cause.rank, cause.name) == ("operator", "input", SLOW, DATA)
    assert len(cause.steps) == STEPS
    assert {each.verdict for each in found.blame.collectives} <= {"transfer", "mixed"}


def test_stage_events_keep_every_duration() -> None:
    made = operators_of(window())
    assert len(made) == 3 * STEPS * RANKS
    assert made.duration_ns_E.sum() == int(window().duration_SNR.sum())
    assert made.steps == tuple(range(STEPS))
    assert not made.groups


def test_operator_events_confirm_it() -> None:
    assert examine(operators_of(window())).source == "operators"


def test_a_reduced_window_is_no_cohort() -> None:
    whole = window_of(np.full((3, 4, 4), MS), stages=(DATA, BACKWARD, "step.other_cpu_wall"))
    with pytest.raises(WindowError, match="too few to compare"):
        operators_of(reduced(whole))


def test_stages_without_time_are_no_events() -> None:
    with pytest.raises(WindowError, match="no stage"):
        operators_of(window_of(np.zeros((3, 2, 3))))
