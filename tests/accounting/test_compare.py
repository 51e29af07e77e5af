"""Windows and runs side by side: the split adds up exactly, whatever is compared (accounting.md §14)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfapp
from sfapp.accounting import Comparison, compare, reference_of, with_reference
from sfapp.errors import ComparisonError
from sfapp.model import Diagnosis, Gates, Window
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, MS, ddp_job, reduced, window_of

SLOW = 80 * MS


def job(number: int, slow: int = 0, *, stage: str = DATA, run: str = "job", **settings: int) -> Diagnosis:
    """A window of eight ranks, rank 3 slow in one stage."""
    durations = ddp_job(seed=number, extra={(stage, 3): slow}, **settings)
    return sfapp.diagnose(window_of(durations, run_id=run, window=number))


@pytest.fixture(scope="module")
def healthy() -> Diagnosis:
    return job(1)


@pytest.fixture(scope="module")
def sick() -> Diagnosis:
    return job(2, SLOW)


@pytest.fixture(scope="module")
def repaired() -> Diagnosis:
    return job(3)


def waiting(number: int, transfer: int, slow: int = 0, run: str = "job") -> Diagnosis:
    """Ranks that meet at the end of backward, with known waits; rank 3 is slow inside it."""
    own_SNR = np.random.default_rng(number).integers(19 * MS, 21 * MS, (3, 20, 8))
    own_SNR[2, :, 3] += slow
    arrived_NR = own_SNR.sum(axis=0)
    wait_NR = arrived_NR.max(axis=1, keepdims=True) - arrived_NR + transfer
    own_SNR[2] += wait_NR
    window = window_of(own_SNR, stages=(DATA, FORWARD, BACKWARD), run_id=run, window=number)
    return sfapp.diagnose(replace(window, waits={BACKWARD: wait_NR}))


def test_a_change_in_a_stage_with_waits_is_split_into_own_time_and_waiting() -> None:
    found = compare(waiting(1, 2 * MS), waiting(2, 12 * MS, slow=SLOW))

    assert found.waiting_ns(found.a, found.b) == {BACKWARD: 10 * MS}
    (document,) = found.document()["changes"]["a_to_b"]["waits"].items()
    assert document[0] == BACKWARD
    assert document[1]["waiting_ns"] == 10 * MS
    assert document[1]["own_ns"] == pytest.approx(SLOW, rel=0.05)
    assert sum(document[1].values()) == pytest.approx(float(found.main.delta_ns[BACKWARD]))
    leader = found.b.leaders[BACKWARD]
    assert leader is not None
    assert leader.rank == 3


def test_runs_add_up_their_windows_waits() -> None:
    found = compare([waiting(1, 2 * MS), waiting(2, 4 * MS)], [waiting(3, 9 * MS), waiting(4, 9 * MS)])

    assert found.waiting_ns(found.a, found.b) == {BACKWARD: 6 * MS}


def test_waits_of_one_side_alone_split_no_change() -> None:
    without = replace(waiting(2, 12 * MS), wait_advances_ns=None)

    for pair in ((waiting(1, 2 * MS), without), (without, waiting(1, 2 * MS))):
        found = compare(*pair)
        assert found.waiting_ns(found.a, found.b) == {}
        assert found.document()["changes"]["a_to_b"]["waits"] == {}


shapes = st.tuples(st.integers(1, 6), st.integers(1, 7), st.integers(1, 5))


@st.composite
def windows(draw: st.DrawFn, stages: int, number: int) -> Window:
    """Any durations from nothing to minutes; sometimes with gaps between steps."""
    steps, ranks = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    size = stages * steps * ranks
    values = draw(st.lists(st.integers(0, 10**11), min_size=size, max_size=size))
    spacing = draw(st.sampled_from([1, 3]))
    return window_of(
        np.array(values).reshape(stages, steps, ranks),
        window=number,
        steps=range(0, steps * spacing, spacing),
    )


def parts_add_up(comparison: Comparison) -> None:
    for frontier in ("carry_over", "step"):
        for before, after in ((comparison.a, comparison.b), (comparison.b, comparison.a)):
            change = comparison.change(before, after, frontier)
            if change is not None:
                assert sum(change.delta_ns.values()) == change.total_ns
                assert change.total_ns == change.after.step_ns - change.before.step_ns


@given(st.data(), st.integers(1, 6))
def test_the_parts_of_any_change_add_up_to_it_exactly(data: st.DataObject, stages: int) -> None:
    one, other = (sfapp.diagnose(data.draw(windows(stages, number))) for number in (0, 1))
    parts_add_up(compare(one, other))


@given(st.data(), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_runs_add_up_as_exactly_as_windows_do(data: st.DataObject, stages: int, few: int, many: int) -> None:
    one, other = (
        [sfapp.diagnose(data.draw(windows(stages, number))) for number in range(count)]
        for count in (few, many)
    )
    comparison = compare(one, other)
    parts_add_up(comparison)
    # and a run's step is that of all its steps, however they fall into windows
    exposed, steps = sum(found.exposed_makespan_ns for found in one), sum(found.steps for found in one)
    assert comparison.a.on("step").step_ns == Fraction(exposed, steps)


@given(st.data(), st.integers(1, 4))
def test_the_way_back_and_what_is_left_add_up_to_the_way_there(data: st.DataObject, stages: int) -> None:
    a, b, c = (sfapp.diagnose(data.draw(windows(stages, number))) for number in range(3))
    found = compare(a, b, c)
    there, back = found.change(found.a, found.b), found.change(found.b, found.c)
    left = found.change(found.a, found.c)
    for stage in found.stages:
        assert there.delta_ns[stage] + back.delta_ns[stage] == left.delta_ns[stage]
    if found.recovery is not None:
        assert found.recovery == 1 - left.total_ns / there.total_ns


def test_a_comparison_shows_the_verdicts_note_on_its_reference(healthy: Diagnosis, sick: Diagnosis) -> None:
    verdict = with_reference(sick, reference_of(healthy))
    change = compare(healthy, sick).main
    assert {stage: float(delta) for stage, delta in change.delta_ns.items()} == pytest.approx(
        verdict.delta_ns, abs=1e-6
    )
    assert float(change.relative) == pytest.approx(verdict.change)


def test_an_a_b_a_comparison_names_the_stage_and_the_rank_and_shows_the_recovery(
    healthy: Diagnosis, sick: Diagnosis, repaired: Diagnosis
) -> None:
    found = compare(healthy, sick, repaired)
    assert float(found.main.delta_ns[DATA]) == pytest.approx(SLOW, rel=0.02)
    assert float(found.main.total_ns) == pytest.approx(SLOW, rel=0.02)
    assert found.recovery == pytest.approx(1, abs=0.02)
    assert found.a.leaders[DATA] is None
    leader = found.b.leaders[DATA]
    assert (leader.rank, leader.hostname, leader.led, leader.eligible) == (3, "node-0", 40, 40)
    assert "likely_sync_wait" in found.labels_gained(found.a, found.b)
    assert "likely_sync_wait" in found.labels_gained(found.c, found.b)
    assert found.b.routing_set("step") == sick.routing_set
    assert found.b.shares("step") == sick.shares
    assert found.caveats == ()


def test_the_recovery_ratio_of_hand_made_steps() -> None:
    # Given steps of 100, 180 and 120 ms
    a, b, c = (
        sfapp.diagnose(window_of(np.full((1, 2, 2), step * MS), window=number))
        for number, step in enumerate((100, 180, 120))
    )
    # Then three quarters of what was lost came back
    assert compare(a, b, c).recovery == Fraction(3, 4)
    assert compare(a, b).recovery_reason == "no_third_window"
    # and where nothing was lost there is nothing to recover
    unchanged = compare(a, a, c)
    assert (unchanged.recovery, unchanged.recovery_reason) == (None, "no_change")
    assert unchanged.caveats == ("same_windows",)


def test_a_callback_that_reaches_the_others_in_the_next_step_is_found_on_the_carry_over_frontier(
    healthy: Diagnosis,
) -> None:
    found = compare(healthy, job(2, SLOW, stage=CALLBACKS))
    assert found.split_on == "carry_over"
    assert float(found.main.delta_ns[CALLBACKS]) > 0.9 * SLOW
    aligned = found.change(found.a, found.b, "step")
    assert max(aligned.delta_ns, key=aligned.delta_ns.get) == BACKWARD


def test_a_run_counts_every_step_once_and_shows_how_its_windows_spread() -> None:
    # Given a run of two short windows and a long one, and one in which every window is slow
    before = [job(0, steps=10), job(1, steps=10), job(2, SLOW, steps=40)]
    after = [job(number, SLOW, run="after") for number in range(2)]
    found = compare(before, after)
    # Then the long window weighs four times as much
    weighted = sum(sum(one.carry_over_advances_ns.values()) for one in before)
    assert found.main.before.step_ns == Fraction(weighted, 60)
    assert (found.a.window, found.a.steps) == (None, 60)
    # and the spread shows each window
    spread = found.a.spread("carry_over")
    means = [one.step_time.mean_ns for one in before]
    assert (spread.least, spread.most) == pytest.approx((min(means), max(means)))
    assert [window.window for window in found.a.windows] == [0, 1, 2]
    # and labels are counted in windows, leaders in steps
    assert found.a.labels["likely_sync_wait"] == 1
    assert found.a.leaders[DATA].led == 40
    assert found.b.leaders[DATA].led == found.b.leaders[DATA].eligible == 80


def test_where_steps_have_gaps_only_the_step_frontier_is_compared(healthy: Diagnosis) -> None:
    gapped = sfapp.diagnose(window_of(ddp_job(seed=5), steps=range(0, 80, 2), window=5))
    found = compare(healthy, gapped)
    assert found.split_on == "step"
    assert found.change(found.a, found.b, "carry_over") is None
    assert "steps_not_consecutive" in found.caveats


def test_other_rank_counts_are_compared_with_a_caveat(healthy: Diagnosis) -> None:
    found = compare(healthy, job(2, SLOW, ranks=4))
    assert "rank_counts_differ" in found.caveats
    assert found.b.ranks == (4,)


def test_reduced_windows_are_compared_with_others_with_a_caveat(healthy: Diagnosis) -> None:
    as_reduced = [sfapp.diagnose(reduced(window_of(ddp_job(seed=seed), window=seed))) for seed in (5, 6)]
    assert compare(healthy, as_reduced[0]).caveats == ("reduced_rows",)
    assert compare(*as_reduced).caveats == ()


def test_below_the_floor_time_is_compared_and_shares_are_absent(healthy: Diagnosis) -> None:
    short = sfapp.diagnose(window_of(np.full((6, 2, 3), 1_000), window=2))
    found = compare(healthy, short)
    assert found.main.total_ns < 0
    assert (found.b.shares("step"), found.b.routing_set("step")) == (None, None)
    assert "denominator_floor" in found.caveats
    assert found.document()["changes"]["a_to_b"]["shares"] is None


def test_groups_are_compared_with_groups() -> None:
    one, other = (
        sfapp.diagnose(window_of(ddp_job(seed=n, extra={(DATA, 3): n * SLOW}), window=n), group="node:0")
        for n in (0, 1)
    )
    assert compare(one, other).b.leaders[DATA].rank == 3


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (("x", "y", "z"), "only the first has 'data.next_wait'"),
        (
            ("model.fwd_loss_cpu_wall", DATA, BACKWARD),
            "the same stages in another order, from 'data.next_wait'",
        ),
        ((DATA, FORWARD, "refined"), "only the second has 'refined'"),
    ],
)
def test_other_stages_cannot_be_compared(other: tuple[str, ...], message: str) -> None:
    durations = np.full((3, 4, 2), MS)
    one = sfapp.diagnose(window_of(durations))
    two = sfapp.diagnose(window_of(durations, stages=other, window=7))
    with pytest.raises(ComparisonError, match="run 'run', window 7") as refused:
        compare(one, two)
    assert message in str(refused.value)
    assert "compare windows that were recorded with the same ordered list" in str(refused.value)


def test_what_was_judged_differently_cannot_be_compared(healthy: Diagnosis, sick: Diagnosis) -> None:
    with pytest.raises(ComparisonError, match="other gates"):
        compare(healthy, replace(sick, gates=Gates(tau_c=0.9)))
    with pytest.raises(ComparisonError, match="diagnose the same group on both"):
        compare(healthy, replace(sick, group="node:1"))


def test_a_side_is_windows_of_one_run(healthy: Diagnosis) -> None:
    with pytest.raises(ComparisonError, match="A has no windows"):
        compare([], healthy)
    with pytest.raises(ComparisonError, match="B holds windows of 2 runs"):
        compare(healthy, [healthy, job(2, run="other")])


def test_the_document_holds_whole_numbers_from_which_every_delta_follows(
    healthy: Diagnosis, sick: Diagnosis, repaired: Diagnosis
) -> None:
    document = compare(healthy, sick, repaired).document()
    a, b = document["a"], document["b"]
    for stage, delta in document["changes"]["a_to_b"]["carry_over"]["stages_ns"].items():
        ours = Fraction(b["advance_ns"]["carry_over"][stage], b["steps"])
        theirs = Fraction(a["advance_ns"]["carry_over"][stage], a["steps"])
        assert float(ours - theirs) == delta
    assert set(document["changes"]) == {"a_to_b", "b_to_c", "a_to_c"}
    assert document["b"]["leaders"][DATA]["rank"] == 3
    assert DATA not in document["changes"]["a_to_c"]["routing_gained"]
