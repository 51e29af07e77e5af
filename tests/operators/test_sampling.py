"""When a closer look is asked for, and at whom; never more often than cooldown and budget allow."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.accounting import diagnose
from sfapp.errors import CaptureError
from sfapp.model import SideChannel, Window
from sfapp.model.capture import PROFILED, CaptureLimits, CaptureRequest
from sfapp.operators.sampling import (
    Rule,
    Sampling,
    SamplingState,
    WindowObservation,
    chosen_ranks,
    observed,
    propose,
    spread_of,
)
from tests.builders import BACKWARD, DATA, MS, ddp_job, reduced, window_of

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def look(window: Window) -> WindowObservation:
    return observed(window, diagnose(window))


def healthy(number: int = 0) -> WindowObservation:
    return look(window_of(ddp_job(seed=number), window=number))


def straggling(number: int = 0, rank: int = 5, extra: int = 40 * MS) -> WindowObservation:
    return look(window_of(ddp_job(seed=number, extra={(DATA, rank): extra}), window=number))


def ask(
    found: WindowObservation, state: SamplingState, settings: Sampling, at: datetime
) -> CaptureRequest | None:
    return propose(found, state, settings, at, "a-1").request


def test_own_work_is_compared_not_the_step_which_all_ranks_share() -> None:
    window = window_of(ddp_job(extra={(DATA, 5): 40 * MS}))
    wall = window.wall_NR.mean(axis=0)
    assert float(wall.std() / wall.mean()) < 0.1
    found = spread_of(window, [BACKWARD])
    assert found is not None
    assert found > 0.1
    assert (spread_of(window) or 0) > 0.1  # and where nothing says in which stage ranks wait


def test_counts_without_information_have_no_spread() -> None:
    window = window_of(ddp_job())
    profiled = SideChannel(np.ones((40, 8)), np.ones((40, 8), dtype=np.bool_))
    assert spread_of(reduced(window)) is None
    assert spread_of(window_of(np.ones((6, 4, 1)))) is None
    assert spread_of(window_of(ddp_job(), side={PROFILED: profiled})) is None


def test_a_straggler_is_looked_at_together_with_healthy_peers_of_other_nodes() -> None:
    found = straggling(rank=5)
    request = ask(found, SamplingState(), Sampling(suspects=1, peers=2), NOON)
    assert request is not None
    assert 5 in request.ranks
    peers = [rank for rank in request.ranks if rank != 5]
    assert len(peers) == 2
    assert all(rank < 4 for rank in peers), "node 0: the suspect is on node 1"
    assert "differs by" in request.reason
    assert request.first_step is None


def test_each_window_draws_other_peers_but_always_the_same_ones() -> None:
    drawn = [chosen_ranks(straggling(number), Sampling(suspects=1)) for number in range(8)]
    again = [chosen_ranks(straggling(number), Sampling(suspects=1)) for number in range(8)]
    assert drawn == again
    assert len(set(drawn)) > 1


def test_peers_do_the_suspects_work_if_any_rank_does() -> None:
    roles = ["first", "last"] * 4
    window = window_of(ddp_job(extra={(DATA, 5): 40 * MS}), roles=roles)
    found = look(window)
    found = replace(found, diagnosis=diagnose(window_of(ddp_job(extra={(DATA, 5): 40 * MS}))))
    ranks = chosen_ranks(found, Sampling(suspects=1, peers=3))
    assert {roles[rank] for rank in ranks} == {"last"}


def test_a_healthy_run_is_left_alone() -> None:
    state = SamplingState()
    for number in range(6):
        proposal = propose(healthy(number), state, Sampling(), NOON, "a-1")
        state = proposal.state
        assert proposal.request is None
        assert proposal.reason == "no trigger fired"
    assert len(state.spreads) == 6


def test_what_is_usual_of_a_run_triggers_nothing_again() -> None:
    settings = Sampling(cooldown_seconds=60)
    state, asked = SamplingState(), []
    for number in range(6):
        proposal = propose(straggling(number), state, settings, NOON + timedelta(hours=number), "a-1")
        state = proposal.state
        asked.append(proposal.request is not None)
    assert asked == [True, False, False, False, False, False]
    worse = propose(straggling(6, extra=400 * MS), state, settings, NOON + timedelta(hours=6), "a-1")
    assert worse.request is not None
    assert "usually" in worse.reason


def test_operators_set_triggers_of_their_own() -> None:
    found = straggling()
    never = Sampling(spread=1e9)
    assert ask(found, SamplingState(), never, NOON) is None
    for text, holds in (
        ("severity>=5%", True),
        ("severity >= 0.99", False),
        (f"stage={DATA},rank=5", True),
        (f"stage={DATA},rank=4", False),
        ("label=frontier_accounting", True),
        ("spread>=10%", True),
        ("change>=1%", False),
    ):
        request = ask(found, SamplingState(), replace(never, rules=(Rule.of(text),)), NOON)
        assert (request is not None) == holds, text
        assert request is None or request.reason == f"window 0: {text} holds"


@pytest.mark.parametrize(
    "text", ["", "severity", "severity>=x", "severity=5%", "label=none", "cost>=1", "a,b"]
)
def test_a_rule_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CaptureError, match="is not a condition"):
        Rule.of(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"steps": 21},
        {"suspects": 0, "peers": 0},
        {"peers": 65},
        {"per_hour": -1},
        {"cooldown_seconds": float("nan")},
        {"spread": float("nan")},
    ],
)
def test_settings_are_held_to_what_a_capture_may_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(CaptureError):
        Sampling(**wrong)


@pytest.mark.parametrize("name", ["cooldown_seconds", "longest_seconds", "expires_seconds"])
@pytest.mark.parametrize("wrong", [-1.0, float("nan")])
def test_limits_of_a_recorder_are_times(name: str, wrong: Any) -> None:
    with pytest.raises(CaptureError):
        CaptureLimits(**{name: wrong})


WINDOWS = [
    healthy(),
    straggling(),
    straggling(1, rank=2, extra=400 * MS),
    look(reduced(window_of(ddp_job()))),
]


@given(
    order=st.lists(
        st.tuples(st.integers(0, 3), st.floats(-600, 5000, allow_nan=False)), min_size=1, max_size=60
    ),
    cooldown=st.floats(0, 2000),
    per_hour=st.integers(0, 5),
    total=st.integers(0, 60),
    steps=st.integers(1, 20),
)
def test_no_more_is_asked_for_than_cooldown_and_budget_allow(
    order: list[tuple[int, float]], cooldown: float, per_hour: int, total: int, steps: int
) -> None:
    settings = Sampling(
        spread=0.0,
        times_usual=0.0,
        rules=(Rule.of("label=frontier_accounting"),),
        steps=steps,
        cooldown_seconds=cooldown,
        per_hour=per_hour,
        total_steps=total,
    )
    state, now, asked = SamplingState(), NOON, []
    for which, seconds in order:
        now += timedelta(seconds=seconds)
        proposal = propose(WINDOWS[which], state, settings, now, "a-1")
        state = proposal.state
        if proposal.request is not None:
            asked.append(proposal.request)
    assert sum(request.steps for request in asked) <= total
    for place, request in enumerate(asked):
        before = [earlier.asked_at for earlier in asked[:place]]
        ages = [max(0.0, (request.asked_at - at).total_seconds()) for at in before]
        assert all(age >= cooldown for age in ages)
        assert sum(age < 3600 for age in ages) < max(per_hour, 1)
    assert not asked or per_hour
