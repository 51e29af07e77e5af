"""The verdict on a window and the causes in its operators: whether they agree, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from sfapp.accounting import diagnose
from sfapp.model import BETWEEN, Window
from sfapp.operators import AGREEMENT_REASONS, Agreement, agreement, examine, examine_stages
from sfapp.operators.agreement import stage_of
from tests.builders import BACKWARD, DATA, FORWARD, MS, window_of
from tests.operators.lanes import Event, event, operators

RANKS, STEPS = 6, 8
CULPRIT = 2

Delays = Mapping[tuple[str, int], float]
"""ms added to an operator on a rank, in every step."""


def job(delays: Delays, *, recorded: int = STEPS, offset_ms: float = 0.0) -> tuple[Window, list[Event]]:
    """Each step: load, look up, exchange (a collective within forward), compute, and reduce in backward.

    Args:
        recorded: the operators of so many steps are there, the window has all of them.
        offset_ms: each rank's clock lies this much before that of the next.
    """
    generator = np.random.default_rng(1)
    clock = np.zeros(RANKS)
    events: list[Event] = []
    spent = np.zeros((3, STEPS, RANKS))

    def run(step: int, name: str, ms: float, category: str, stage: int, is_collective: bool = False) -> None:
        begin = clock.copy()
        for rank in range(RANKS):
            own = ms + generator.uniform(0, 0.05) + delays.get((name, rank), 0.0)
            clock[rank] += own
        if is_collective:
            clock[:] = begin.max() + ms
        spent[stage, step] += clock - begin
        tie = {"group": name, "sequence": step} if is_collective else {}
        for rank in range(RANKS if step < recorded else 0):
            shift = 1000 * offset_ms * rank
            events.append(
                event(
                    *(rank, "thread 1", name, 1000 * begin[rank] + shift, 1000 * clock[rank] + shift),
                    category=category,
                    step=step,
                    **tie,
                )
            )

    for step in range(STEPS):
        run(step, "enumerate(DataLoader)", 5, "data", 0)
        run(step, "look_up", 10, "host", 1)
        run(step, "exchange", 2, "collective", 1, is_collective=True)
        run(step, "compute", 10, "host", 1)
        run(step, "autograd::engine", 20, "autograd", 2)
        run(step, "all_reduce", 3, "collective", 2, is_collective=True)
    duration = np.rint(spent * MS).astype(np.int64)
    return window_of(duration, stages=(DATA, FORWARD, BACKWARD)), events


def agreement_of(window: Window, events: list[Event]) -> Agreement:
    return agreement(diagnose(window), examine(operators(events)), window)


def test_a_slow_loader_is_what_both_name() -> None:
    found = agreement_of(*job({("enumerate(DataLoader)", CULPRIT): 20}))

    assert found.kind == "agree"
    assert (found.stage, found.rank) == (DATA, CULPRIT)
    assert found.cause is not None
    assert (found.cause.name, found.cause.rank) == ("enumerate(DataLoader)", CULPRIT)
    assert found.cause_stage == DATA
    assert found.weight == pytest.approx(20 / 70, rel=0.05)
    assert not found.reasons


def test_a_wait_within_the_culprits_own_stage_hides_it_from_the_packet() -> None:
    """All ranks leave the exchange together, so forward takes all of them equally long."""
    window, events = job({("look_up", CULPRIT): 20})
    found = agreement_of(window, events)

    assert diagnose(window).is_healthy
    assert found.kind == "kair_only"
    assert (found.stage, found.rank) == (None, None)
    assert found.cause is not None
    assert (found.cause.name, found.cause.rank, found.cause_stage) == ("look_up", CULPRIT, FORWARD)
    assert found.reasons == ("wait_within_stage",)


def test_what_no_operator_shows_is_the_frontiers_alone() -> None:
    """The packet's steps are slow in data, the operators recorded are those of an undisturbed job."""
    slow, _ = job({("enumerate(DataLoader)", CULPRIT): 20})
    _, events = job({}, recorded=3)
    found = agreement_of(slow, events)

    assert found.kind == "frontier_only"
    assert (found.stage, found.rank, found.cause) == (DATA, CULPRIT, None)
    assert found.reasons == ("other_steps",)


def test_another_place_in_each_is_a_difference() -> None:
    slow, _ = job({("enumerate(DataLoader)", CULPRIT): 20})
    _, events = job({("compute", 4): 20})
    found = agreement_of(slow, events)

    assert found.kind == "differ"
    assert (found.rank, found.cause.rank if found.cause else None) == (CULPRIT, 4)
    assert found.cause_stage == FORWARD
    assert "wait_within_stage" in found.reasons  # this packet's forward is equal on all ranks


def test_a_healthy_job_has_neither_a_cause_nor_a_suspect() -> None:
    assert agreement_of(*job({})).kind == "quiet"


def test_different_clocks_are_reported() -> None:
    """Only durations are compared then, which still show the slow look-up."""
    found = agreement_of(*job({("look_up", CULPRIT): 20}, offset_ms=400))

    assert found.kind == "kair_only"
    assert found.cause is not None
    assert (found.cause.name, found.cause.rank) == ("look_up", CULPRIT)
    assert "clocks_differ" in found.reasons


def test_causes_from_stages_are_marked() -> None:
    window, _ = job({("enumerate(DataLoader)", CULPRIT): 20})
    healthy, _ = job({})
    found = agreement(diagnose(window), examine_stages(healthy, sync_stages=[BACKWARD]), window)

    assert found.kind == "frontier_only"
    assert "from_stages" in found.reasons


def test_two_ranks_are_too_few_to_name_an_operator() -> None:
    window, events = job({("enumerate(DataLoader)", 1): 20})
    two = Window(
        manifest=window.manifest,
        duration_SNR=window.duration_SNR[:, :, :2],
        wall_NR=window.wall_NR[:, :2],
        step_N=window.step_N,
        ranks=window.ranks.select([0, 1]),
    )
    found = agreement_of(two, [each for each in events if each[0] < 2])

    assert found.kind == "frontier_only"
    assert "too_few_ranks" in found.reasons


def test_every_reason_is_a_sentence() -> None:
    assert all(text.endswith(".") and text[0].isupper() for text in AGREEMENT_REASONS.values())


def test_an_event_lies_where_the_stages_of_its_rank_place_it() -> None:
    window, events = job({})
    findings = examine(operators(events))
    stages = {
        findings.operators.name(place): stage_of(place, findings, window)
        for place in np.flatnonzero(findings.operators.step_E == 1).tolist()
    }

    assert stages == {
        "enumerate(DataLoader)": DATA,
        "look_up": FORWARD,
        "exchange": FORWARD,
        "compute": FORWARD,
        "autograd::engine": BACKWARD,
        "all_reduce": BACKWARD,
    }


def test_a_kernel_lies_where_it_was_launched() -> None:
    """It runs while the host is in backward already."""
    window = window_of(np.array([[[5]], [[10]], [[20]]]) * MS, stages=(DATA, FORWARD, BACKWARD))
    events = [
        event(0, "thread 1", "next", 0, 5_000, category="data"),
        event(0, "thread 1", "cudaLaunchKernel", 6_000, 6_010, category="runtime", correlation=7),
        event(0, "stream 7", "gemm", 18_000, 19_000, category="kernel", correlation=7),
    ]
    findings = examine(operators(events))
    kernel = findings.operators.names.index("gemm")
    place = int(np.flatnonzero(findings.operators.name_E == kernel)[0])

    assert stage_of(place, findings, window) == FORWARD


@pytest.mark.parametrize("idle", [True, False])
def test_an_event_of_a_step_does_not_lie_before_it_because_nothing_was_traced_there(idle: bool) -> None:
    """1 ms between steps, then 20 µs of forward and 20 of backward, both marked."""
    between = np.full((1, 1, 3), 1 * MS)
    window = window_of(
        np.concatenate([between, np.full((2, 1, 3), MS // 50)]), stages=(BETWEEN, FORWARD, BACKWARD)
    )
    events: list[Event] = []
    for rank in range(3):
        if not idle:
            events.append(event(rank, "thread 1", "collect", 100, 900))
        for name, begin in ((FORWARD, 1000), (BACKWARD, 1020)):
            events.append(event(rank, "thread 1", name, begin, begin + 20, category="stage"))
        events.append(event(rank, "thread 2", "compute", 1005, 1015))
    findings = examine(operators(events))
    of = {findings.operators.name(place): place for place in range(len(findings.operators))}
    assert stage_of(of["compute"], findings, window) == FORWARD
    if not idle:
        assert stage_of(of["collect"], findings, window) == BETWEEN
