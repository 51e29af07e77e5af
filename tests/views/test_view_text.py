"""The verdict card in words: what an operator reads who has read no manual."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfapp.accounting import RunWaits, diagnose, diagnose_runs, judge, measure, nearest_changes
from sfapp.model import Gates, Label
from sfapp.model.gates import FRONTIERS, Frontier
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.figures.frontier import frontier_steps
from sfapp.views.text.long_steps import long_steps
from tests.builders import BACKWARD, CALLBACKS, MS, OPTIMIZER, ddp_job, lasting_fault, window_of
from tests.views import simulated_windows as jobs


def card(kind: str, frontier: Frontier = "carry_over") -> words.Verdict:
    measures, diagnosis = jobs.against_healthy(jobs.ALL[kind](), frontier)
    return words.verdict(diagnosis, measures.window.ranks)


def test_a_persistent_rank_is_named_with_its_place() -> None:
    verdict = card("slow_callback")
    assert verdict.tone == "alarm"
    assert verdict.kicker == "Likely cause"
    assert verdict.headline == "callbacks on rank 3"
    assert verdict.place == "(node-0, local 3), every step"
    assert verdict.explanation[0] == "+58 ms per step vs healthy window 3, all of it in callbacks."
    assert verdict.action.startswith("Capture rank 3 for a few steps")
    assert "persistent: rank 3 in 40 of 40 steps" in [chip.text for chip in verdict.chips]


def test_it_explains_how_other_methods_misread_a_delay_that_carries_over() -> None:
    assert card("slow_callback").explanation[1] == (
        "Step-aligned: backward 79 % instead of 40 %; rank 3, late in callbacks after the last sync, shows "
        "up in the next step's backward."
    )


def test_the_frontier_plot_explains_how_much_the_frontiers_differ_and_why() -> None:
    for frontier in FRONTIERS:
        figure = frontier_steps(*jobs.against_healthy(jobs.slow_callback(), frontier))
        assert figure["layout"]["meta"]["notes"] == [card("slow_callback", frontier).explanation[1]]
    assert frontier_steps(*jobs.against_healthy(jobs.healthy()))["layout"]["meta"]["notes"] == []


def test_a_delay_seen_in_its_own_step_makes_ranks_wait() -> None:
    assert "The other seven ranks wait for it in backward." in card("one_off").explanation


def test_no_rank_is_reported_as_waiting_without_a_measured_wait() -> None:
    sentence = " ".join(card("hand_overs").explanation)
    assert "ranks show it" not in sentence
    assert "a delay in one step shows up in the next" in sentence


def test_a_rotating_tail_explains_why_ranks_rotate_and_where_to_look() -> None:
    verdict = card("rotating_data_tail")
    assert verdict.headline == "data, on a different rank every step"
    sentence = " ".join(verdict.explanation)
    assert (
        "A different rank is slowest in the data loader at each step, so no single rank or node is at fault"
        in sentence
    )
    assert "look at what all loaders share (storage, shared workers, sample sizes)." in sentence
    assert "several ranks" in verdict.action


def test_a_periodic_callback_has_its_period() -> None:
    verdict = card("periodic_callback")
    assert verdict.place == "(node-1, local 1), every 10th step"
    assert any(
        "every 10th step" in sentence and "checkpoints" in sentence for sentence in verdict.explanation
    )


def test_a_transient_delay_has_its_step_and_may_not_recur() -> None:
    verdict = card("one_off")
    assert verdict.place.endswith("step 417")
    assert "1 step of 40; may not recur." in verdict.explanation


def test_a_single_slow_step_is_not_described_as_every_step() -> None:
    # given a rank that stood still for 14 seconds while the others waited in backward
    window = jobs.ddp(steps=100)
    stopped = window.duration_SNR.copy()
    stopped[2, 60] += 14_000_000_000
    wall = window.wall_NR.copy()
    wall[60] += 14_000_000_000
    window = replace(window, duration_SNR=stopped, wall_NR=wall)
    # when it is diagnosed beside a healthy one
    _, diagnosis = jobs.against_healthy(window)
    # then the text blames few steps, and no more than the diagnosis does
    verdict = words.verdict(diagnosis)
    most_percent = 100 * (1 - 95 * diagnosis.step_time.p95_ns / diagnosis.exposed_makespan_ns)
    assert (verdict.headline, verdict.place) == ("backward on all ranks equally", "in 5 of 100 steps at most")
    assert (
        f"At least {int(most_percent)} % of the window's time was spent in at most 5 of its 100 steps."
        in verdict.explanation
    )


@pytest.mark.parametrize("kind", sorted({*jobs.ALL} - {"below_floor"}))
def test_similar_steps_are_not_described_as_few(kind: str) -> None:
    measures, diagnosis = jobs.against_healthy(jobs.ALL[kind]())
    made = long_steps(diagnosis)
    longest = sorted(measures.makespan_N.tolist(), reverse=True)
    if made is not None:
        assert sum(longest[: made.most]) >= 0.5 * sum(longest)
    assert "at most" not in words.summary(diagnosis)


def test_a_slow_stage_on_all_ranks_blames_no_rank() -> None:
    verdict = card("slow_everywhere")
    assert verdict.headline == "forward on all ranks equally"
    assert verdict.sentence == "forward on all ranks equally, every step"
    assert "All ranks spend this time equally, so no rank stands out." in verdict.explanation
    assert not [chip for chip in verdict.chips if chip.tone == "culprit"]


def test_ranks_that_wait_inside_the_slow_stage_hide_the_late_rank() -> None:
    """Given one rank slow in backward, where all the others wait for it."""
    slow = jobs.ddp(extra_SNR={"backward": jobs.on(2, 60)})
    measures, diagnosis = jobs.against_healthy(slow)
    verdict = words.verdict(diagnosis, measures.window.ranks)
    assert verdict.headline == "backward on all ranks equally"
    assert "one late rank there would look the same" in " ".join(verdict.explanation)
    assert "Durations alone cannot identify the late rank inside backward." in verdict.unknown
    assert "one rank of every node" in verdict.action


def test_a_healthy_window_in_which_ranks_wait_lists_no_late_rank_as_unknown() -> None:
    measures, diagnosis = jobs.against_healthy(jobs.healthy())
    assert diagnosis.is_healthy
    assert diagnosis.wait_stages
    assert not [
        line for line in words.verdict(diagnosis, measures.window.ranks).unknown if "late rank" in line
    ]


LATE_ALL_ALONG = "Ranks may wait in backward for a rank that is late in every step"


@pytest.mark.parametrize("stage", [CALLBACKS, OPTIMIZER])
def test_a_rank_that_was_late_before_the_window_began_may_hide_in_backward(stage: str) -> None:
    # Given a window in the middle of a lasting fault after the last wait of each step
    lasting = ddp_job(steps=80, extra={(stage, 1): 60 * MS})[:, 40:]
    diagnosis = diagnose(window_of(lasting, window=2), reference=window_of(ddp_job(seed=9), window=1))
    # When the fit finds no wait, so that the aim is at those who wait
    assert (diagnosis.wait_stages, diagnosis.aim and diagnosis.aim.stage) == ((), BACKWARD)
    # Then the card states this limit and where to look; with a measured wait it does not
    assert any(LATE_ALL_ALONG in line for line in words.unknown(diagnosis))
    assert not any(LATE_ALL_ALONG in line for line in card("slow_callback").unknown)


@pytest.mark.parametrize("stage", [CALLBACKS, OPTIMIZER])
def test_where_ranks_wait_may_be_known_from_other_windows_of_the_run(stage: str) -> None:
    # Given a fault that lasts
    windows = lasting_fault(stage, ranks=2)
    diagnosis = diagnose_runs(windows)[5]
    # When its last window, which measures no wait itself, is read
    verdict = words.verdict(diagnosis, windows[5].ranks)
    # Then it names the rank, says from which windows the wait was inferred, and keeps no reservation
    assert verdict.headline == f"{format.short_stage(stage)} on rank 1"
    (line,) = [line for line in verdict.evidence if line.name == "wait_fit"]
    assert (line.agrees, line.text) == (
        True,
        "ranks wait in backward (inferred from the run's windows), not in the suspect stage",
    )
    assert any("inferred from the run's windows" in line for line in verdict.why)
    assert not any(LATE_ALL_ALONG in line for line in verdict.unknown)


@pytest.mark.parametrize("stage", [CALLBACKS, OPTIMIZER])
def test_a_wait_may_be_known_from_the_fit_between_syncs(stage: str) -> None:
    # Given a job that is late from its first step on, so that no window measures a wait
    window, other = lasting_fault(stage, ranks=2, seed=7)[4:]
    diagnosis, _ = diagnose_runs([window, other])
    verdict = words.verdict(diagnosis, window.ranks)
    # Then the rank is named all the same, with its basis
    assert verdict.headline == f"{format.short_stage(stage)} on rank 1"
    (line,) = [line for line in verdict.evidence if line.name == "wait_fit"]
    assert (line.agrees, line.text) == (
        True,
        "ranks wait in backward (inferred from the run's windows), not in the suspect stage",
    )
    assert any("At each sync, ranks wait for the slowest in backward" in line for line in verdict.why)
    assert not any(LATE_ALL_ALONG in line for line in verdict.unknown)


def test_a_wait_of_its_own_and_one_known_from_the_run_are_both_explained() -> None:
    # Given a window that finds a wait in backward, of a run whose best sync is after the callbacks
    waits = RunWaits((BACKWARD, CALLBACKS), CALLBACKS)
    diagnosis = judge(measure(window_of(ddp_job())).in_run(waits))
    sentence = " ".join(words.why(diagnosis))
    assert "Ranks wait for each other in backward (slope " in sentence
    assert "Ranks wait for each other in callbacks, inferred from the run's windows." in sentence


def test_mixed_roles_come_before_any_capture() -> None:
    measures, diagnosis = jobs.look(
        jobs.ddp(extra_SNR={"data": jobs.on(2, 70)}, roles=("a",) * 4 + ("b",) * 4)
    )
    assert words.verdict(diagnosis, measures.window.ranks).action.startswith(
        "Diagnose one role's group first"
    )


def test_a_healthy_verdict_is_limited_to_the_ranks_that_reported() -> None:
    measures = measure(jobs.ddp(missing_ranks=(8,)))
    sentence = words.verdict(judge(measures)).explanation[0]
    assert sentence.startswith("Of the 8 ranks that reported, ranks are balanced")


def test_a_healthy_window_needs_no_attention() -> None:
    verdict = card("healthy")
    assert verdict.tone == "quiet"
    assert verdict.headline == "Healthy: no straggler found"
    assert verdict.action == ""
    assert verdict.explanation == (
        "Ranks are balanced: 1 % of the step is imbalance, and this is the run's healthy window.",
        "This window would have shown growth of 2.5 % or one rank that is late by 3.2 % of the step "
        "(95 % power).",
    )


def test_one_rank_without_a_comparison_is_not_called_healthy() -> None:
    verdict = words.verdict(judge(measure(jobs.single_rank())))
    assert verdict.headline == "Single rank: no comparison possible"
    assert verdict.place.startswith("(largest share: backward, ")
    assert verdict.explanation == ("The window has a single rank, so imbalance cannot be measured.",)
    assert verdict.action == ""


def test_below_the_floor_nothing_is_claimed_and_nothing_is_zero() -> None:
    verdict = card("below_floor")
    assert verdict.tone == "unknown"
    assert verdict.kicker == "No verdict"
    assert "less than the floor of 1.00 ms" in verdict.explanation[0]
    assert verdict.numbers[1].value == "n/a"
    assert verdict.evidence == ()
    assert "No shares, gains or labels: the window is too short." in verdict.unknown


def test_one_rank_has_no_imbalance_to_speak_of() -> None:
    verdict = card("single_rank")
    assert verdict.numbers[1].value == "n/a"
    assert verdict.explanation[0].startswith("The window has a single rank")
    assert "Ranks cannot be compared: there is only one." in verdict.unknown


def test_growth_in_several_stages_is_listed() -> None:
    first = card("accumulation").explanation[0]
    assert first == "+89 ms per step vs healthy window 3: backward +28 ms, data +34 ms and forward +27 ms."


def test_without_a_reference_the_excess_is_given() -> None:
    measures, diagnosis = jobs.look(jobs.data_tail())
    verdict = words.verdict(diagnosis, measures.window.ranks)
    assert verdict.explanation[0].endswith("is data time in excess of a typical rank.")
    assert "No baseline: the run has no complete healthy window after its first yet." in verdict.unknown


def test_what_is_not_known_follows_from_labels_and_the_stage() -> None:
    assert "Stage timing cannot identify the callback." in card("slow_callback").unknown
    assert any("roles differ" in line for line in card("two_roles").unknown)
    assert any("step numbers have gaps" in line for line in card("gaps").unknown)
    measures = measure(jobs.ddp(missing_ranks=(8,)))
    assert "Rank 8 did not report." in words.unknown(judge(measures))


def test_a_refined_stage_is_not_called_coarse() -> None:
    assert not any("Stage timing" in line for line in card("hostile").unknown)


def test_why_names_gates_with_both_numbers() -> None:
    reasons = card("gaps", "step").why
    assert "data holds a share of 0.46, above γA 0.40." in reasons
    assert "Its static gain 0.00 is below γG 0.10." in reasons
    assert any("reaches τC 0.80" in line for line in reasons)


def test_a_suppressed_label_names_what_suppresses_it() -> None:
    assert any(
        line.startswith("Delay in the stage itself suppressed by incomplete data")
        for line in card("hostile").why
    )


def test_each_gate_shows_the_distance_to_the_next_verdict() -> None:
    measures, diagnosis = jobs.against_healthy(jobs.slow_callback(), "carry_over")
    found = words.changes(nearest_changes(measures, diagnosis), diagnosis)
    assert set(found) == {"tau_c", "gamma_a", "gamma_g"}
    assert "3 stages in the routing set" in found["tau_c"]
    assert found["gamma_g"] == "verdict stable for any value"


def test_a_gate_change_names_the_labels_that_appear_or_disappear() -> None:
    measures, diagnosis = jobs.look(jobs.gaps())
    found = words.changes(nearest_changes(measures, diagnosis), diagnosis)
    assert found["gamma_a"].startswith("γA ≥ 0.4")
    assert 'loses "stages or ranks tied"' in found["gamma_a"]


@pytest.mark.parametrize(
    ("stored", "sentence"),
    [
        ((), ""),
        (("frontier_accounting", "co_critical"), "Same labels as the recorder"),
        (
            ("frontier_accounting", "direct_exposure"),
            "adds stages or ranks tied and drops delay in the stage itself",
        ),
    ],
)
def test_the_recorders_own_verdict_is_compared(stored: tuple[str, ...], sentence: str) -> None:
    _, diagnosis = jobs.look(jobs.gaps())
    theirs = replace(diagnosis, recorder_labels=tuple(Label(name) for name in stored))
    assert sentence in words.against_recorder(theirs)


def test_a_stored_diagnosis_reads_without_its_rank_table() -> None:
    _, diagnosis = jobs.against_healthy(jobs.slow_callback())
    assert words.headline_of(diagnosis) == ("callbacks on rank 3", "(node-0), every step")
    assert words.summary(diagnosis) == "callbacks on rank 3 (node-0), every step"


@pytest.mark.parametrize("kind", sorted(jobs.ALL))
def test_every_window_has_words_for_everything(kind: str) -> None:
    for frontier in ("step", "carry_over"):
        verdict = card(kind, frontier)
        sentences = (*verdict.explanation, *verdict.why, *verdict.unknown, verdict.recorder or ".")
        assert verdict.headline
        assert all(sentence.endswith(".") for sentence in sentences), sentences
        assert "None" not in " ".join((verdict.headline, verdict.place, *sentences))
        assert all(chip.meaning for chip in verdict.chips)
        if verdict.evidence_summary != "no suspect":
            absent = [line.text for line in verdict.evidence if line.agrees is None]
            assert all("n/a" in text or text.endswith(("%)", "another stage)")) for text in absent)


def test_other_gates_lead_to_other_words() -> None:
    measures = measure(jobs.gaps())
    strict = judge(measures, Gates(gamma_a=0.9))
    assert any("not above γA 0.90: no stage label" in line for line in words.why(strict))


def test_windows_that_lack_ranks_are_not_called_healthy() -> None:
    assert words.attention_count(0, 2, 0) == "All healthy: 2 windows"
    assert words.attention_count(0, 2, 1) == "No straggler found in 2 windows; data are missing in 1"
    assert words.attention_count(1, 2, 1) == "1 of 2 windows needs attention; data are missing in 1"


@pytest.mark.parametrize(
    ("windows", "most"),
    [(21, "0.2 of 21"), (100, "1 of 100"), (1_200, "12 of 1,200"), (10**6, "10,000 of 1,000,000")],
)
def test_the_windows_that_chance_may_call_slow_are_counted(windows: int, most: str) -> None:
    assert words.attention_by_chance(windows, alpha=0.01) == f"by chance in a healthy run: at most {most}"
