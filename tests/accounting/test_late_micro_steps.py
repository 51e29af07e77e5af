"""A rank that is late in one micro-step is found although ranks wait for each other in every one (§17)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfapp.accounting import diagnose
from sfapp.model import Accumulation, Window
from sfapp.model.stages import expand_stages
from tests.builders import BACKWARD, DATA, FORWARD, MS, window_of

STEPS, RANKS, DELAY = 20, 4, 50 * MS


def sharded_job(micro_steps: int, late_in: tuple[int, ...], sync: tuple[int, ...]) -> Window:
    """Return a window in which rank 1 waits for its data in some micro-steps.

    Args:
        sync: micro-steps in whose backward pass ranks wait for each other; their waits are measured.
    """
    stages = expand_stages((DATA, FORWARD, BACKWARD), (DATA, FORWARD, BACKWARD), micro_steps)
    random = np.random.default_rng(0)
    duration_SNR = (random.normal(1.0, 0.05, (len(stages), STEPS, RANKS)) * 4 * MS).astype(np.int64)
    waits = {}
    for micro in range(micro_steps):
        if micro in late_in:
            duration_SNR[3 * micro, :, 1] += DELAY
        if micro in sync:
            arrival_NR = duration_SNR[: 3 * micro + 3].sum(axis=0)
            wait_NR = arrival_NR.max(axis=1, keepdims=True) - arrival_NR + MS // 10
            duration_SNR[3 * micro + 2] += wait_NR
            waits[stages[3 * micro + 2]] = wait_NR
    exchange = "every" if len(sync) == micro_steps else "last"
    accumulation = Accumulation(factor=micro_steps, ordered=True, sync=exchange)
    return replace(window_of(duration_SNR, stages=stages, accumulation=accumulation), waits=waits)


@pytest.mark.parametrize(
    ("late_in", "sync"),
    [((0,), (0, 1, 2, 3)), ((2,), (0, 1, 2, 3)), ((0,), (3,)), ((0, 3), (0, 1, 2, 3)), ((0, 3), (3,))],
)
def test_the_rank_is_named_with_what_its_delays_cost(late_in: tuple[int, ...], sync: tuple[int, ...]) -> None:
    window = sharded_job(4, late_in, sync)
    found = diagnose(window)
    (finding,) = (finding for finding in found.findings if finding.needs_attention)
    assert (finding.kind, finding.stage, finding.ranks) == ("rank", DATA, (1,))
    step_ns = window.wall_NR.max(axis=1).mean()
    assert finding.effect == pytest.approx(len(late_in) * DELAY / step_ns, rel=0.05)
    assert found.aim is not None
    assert (found.aim.stage, found.aim.rank) == (DATA, 1)


def test_a_delay_that_is_caught_up_before_the_next_wait_costs_nothing() -> None:
    window = sharded_job(2, (), (1,))
    duration_SNR = np.array(window.duration_SNR)
    duration_SNR[0, :, 1] += 3 * MS
    duration_SNR[3, :, 1] -= 3 * MS
    found = diagnose(replace(window, duration_SNR=duration_SNR))
    assert [finding for finding in found.findings if finding.needs_attention] == []
