"""Evidence for a verdict in words: independent sources, checks and the chips that doubt it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from sfapp.accounting import diagnose, diagnose_runs, judge, measure
from sfapp.model import Diagnosis, Label, Window
from sfapp.model.findings import Finding
from sfapp.model.gates import Frontier
from sfapp.views import text as words
from tests.builders import BACKWARD, CALLBACKS, MS, OPTIMIZER, lasting_fault, window_of
from tests.views import simulated_windows as jobs


def card(kind: str, frontier: Frontier = "carry_over") -> words.Verdict:
    measures, diagnosis = jobs.against_healthy(jobs.ALL[kind](), frontier)
    return words.verdict(diagnosis, measures.window.ranks)


def test_evidence_is_counted_and_dissent_named() -> None:
    verdict = card("slow_callback", "step")
    assert verdict.evidence_summary == "1 of 2 sources agree"
    assert verdict.dissent == "per-step share points to backward"
    marks = {line.name: line.mark for line in verdict.evidence}
    assert marks["frontier_share"] == "✗"
    assert marks["carry_over_share"] == "✓"
    assert marks["device_events"] == "–"


def test_a_healthy_window_has_no_suspect_that_its_checks_could_agree_with() -> None:
    # Given a healthy window, in whose largest stage ranks wait for each other
    verdict = card("healthy")
    wait = next(line for line in verdict.evidence if line.name == "wait_fit")
    assert wait.text.startswith("ranks wait in backward (slope ")
    # Then nothing agrees and nothing conflicts
    number = verdict.numbers[2]
    assert (number.value, number.note) == ("no suspect", "the window is healthy")
    assert verdict.dissent == ""
    assert {line.mark for line in verdict.evidence} == {"–"}


def test_a_window_that_lacks_data_has_no_suspect_and_is_not_called_healthy() -> None:
    verdict = words.verdict(judge(measure(jobs.ddp(missing_ranks=(8,)))))
    number = verdict.numbers[2]
    assert (number.value, number.note) == ("no suspect", "no straggler found among the ranks that reported")
    assert verdict.why[-1] == "Largest share: backward; no straggler found among the ranks that reported."


def test_a_healthy_first_window_is_no_baseline_and_is_not_denied() -> None:
    # Given a run whose only complete window is healthy, and is its first
    (diagnosis,) = diagnose_runs([late_in_data(0)])
    verdict = words.verdict(diagnosis)
    # Then its page claims no lack of healthy windows
    assert verdict.headline == "Healthy: no straggler found"
    assert verdict.numbers[0].note == "no baseline to compare with"
    texts = (*verdict.unknown, *(line.text for line in verdict.evidence))
    assert "No baseline: the run has no complete healthy window after its first yet." in texts
    assert not any("no healthy window" in text for text in texts)


def test_a_single_source_agrees_or_its_checks_differ() -> None:
    # Given a late rank in a run without a healthy window, and waits inferred in the same stage
    measures, diagnosis = jobs.look(jobs.data_tail())
    assert diagnosis.aim is not None
    lines = tuple(
        replace(line, agrees=False) if line.name == "wait_fit" else line for line in diagnosis.aim.evidence
    )
    verdict = words.verdict(diagnosis.changed(aim=replace(diagnosis.aim, evidence=lines)))
    assert words.verdict(diagnosis, measures.window.ranks).evidence_summary == "one source, agrees"
    assert verdict.evidence_summary == "one source, its checks differ"
    assert verdict.dissent.endswith("inferred wait lies in the suspect stage")


def test_a_wait_that_no_packet_holds_is_called_inferred() -> None:
    titles = {line.name: line.title for line in card("slow_callback").evidence}
    assert titles["wait_fit"] == "inferred wait"


def test_the_card_promises_no_saving_besides_the_what_if() -> None:
    # Given a rank whose fix saves less than the imbalance of all ranks and stages
    number = card("slow_callback").numbers[1]
    assert number.title == "Exposed imbalance"
    assert re.fullmatch(r"[\d.]+.ms of each step, of all ranks and stages together", number.note)
    assert not any("sav" in number.note for number in card("slow_everywhere").numbers)


def test_jitter_next_to_a_named_rank_is_what_remains_without_it() -> None:
    jitter = Finding("jitter", CALLBACKS, (), None, 0.11, 0.05, 0.2, None)
    _, diagnosis = jobs.against_healthy(jobs.periodic_callback(), "carry_over")
    assert diagnosis.aim is not None
    rank = diagnosis.aim.rank
    late = [finding for finding in diagnosis.findings if finding.kind == "rank"]
    late.append(replace(late[0], ranks=(0,), needs_attention=False))
    sentences = words.verdict(diagnosis.changed(findings=(*late, jitter))).explanation
    (sentence,) = [sentence for sentence in sentences if "jitter" in sentence.lower()]
    assert sentence.startswith(f"Besides rank {rank}, jitter costs 11.0")
    assert sentence.endswith(" of the step, mostly in callbacks: no other rank stands out.")
    # Where no rank is late, the slowest one changes
    _, healthy = jobs.against_healthy(jobs.healthy(), "carry_over")
    sentences = words.verdict(healthy.changed(findings=(jitter,))).explanation
    assert any(sentence.endswith("the slowest rank changes, none is at fault.") for sentence in sentences)


def test_checks_of_one_matrix_are_one_source() -> None:
    # Given a delay after the last sync, on the frontier that follows it into the next step
    verdict = card("slow_callback")
    # Then the step-aligned share, the same durations under the other accounting, contradicts nothing
    assert verdict.evidence_summary == "2 of 2 sources agree"
    assert verdict.dissent == ""
    assert verdict.numbers[2].note == "independent: this window's durations, the run's other windows"
    sources = {line.name: line.source for line in verdict.evidence}
    assert sources["delta"] == "the run's other windows"
    assert {
        sources[name] for name in ("frontier_share", "carry_over_share", "excess", "rank_persistence")
    } == {"this window's durations"}


def test_one_eligible_step_shows_no_persistence() -> None:
    measures, diagnosis = jobs.look(jobs.one_off(), "carry_over")
    assert diagnosis.culprit is not None
    assert diagnosis.culprit.eligible_steps == 1
    lines = {line.name: line for line in words.verdict(diagnosis, measures.window.ranks).evidence}
    assert (lines["rank_persistence"].mark, lines["rank_persistence"].agrees) == ("–", None)
    assert "a single step" in lines["rank_persistence"].text


def test_tied_stages_are_a_doubt_only_if_evidence_disagrees_and_no_rank_is_late_in_every_step() -> None:
    def tones(diagnosis: Diagnosis) -> dict[str, str]:
        return {chip.terms[0].name: chip.tone for chip in words.verdict(diagnosis).chips}

    def tones_of(kind: str, frontier: Frontier = "carry_over") -> dict[str, str]:
        return tones(jobs.against_healthy(jobs.ALL[kind](), frontier)[1])

    assert tones_of("healthy")["co_critical"] == "fact"
    assert tones_of("slow_callback", "step")["co_critical"] == "fact"
    assert tones_of("slow_callback")["carry_over"] == "fact"
    # Growth on all ranks, in the stage in which they wait
    diagnosis = jobs.against_healthy(jobs.slow_everywhere(), "carry_over")[1]
    assert diagnosis.aim is not None
    lines = tuple(
        replace(line, agrees=False) if line.name == "wait_fit" else line for line in diagnosis.aim.evidence
    )
    doubted = diagnosis.changed(
        aim=replace(diagnosis.aim, evidence=lines), labels=(Label("co_critical", ("share_tie",)),)
    )
    assert tones(doubted)["co_critical"] == "doubt"


def late_in_data(number: int, late_ms: float = 0.0) -> Window:
    """256 ranks that compute longest in backward, where they wait; rank 77 may be late in data."""
    random = np.random.default_rng(number)
    scale_S = np.array([2.0, 20.0, 40.0, 1.0, 3.0, 0.1]).reshape(-1, 1, 1) * MS
    duration_SNR = (scale_S * (1 + 0.05 * random.random((6, 40, 256)))).astype(np.int64)
    duration_SNR[0, :, 77] += int(late_ms * MS)
    arrival_NR = duration_SNR[:3].sum(axis=0)
    duration_SNR[2] += arrival_NR.max(axis=-1, keepdims=True) - arrival_NR
    return window_of(duration_SNR, window=number, first_step=40 * number, ranks_per_node=8)


def test_a_stage_that_is_always_the_largest_is_no_evidence_against_a_late_rank() -> None:
    # Given a rank that is late in data in every step, while backward still has the largest share
    found = diagnose_runs([late_in_data(0), late_in_data(1), late_in_data(2, 30)])
    verdict = words.verdict(found[2])
    assert verdict.headline == "data on rank 77"
    assert found[2].top_stage == BACKWARD
    # Then all sources agree, and the table says why the share shows nothing
    assert (verdict.evidence_summary, verdict.dissent) == ("2 of 2 sources agree", "")
    (share,) = [line for line in verdict.evidence if line.name == "carry_over_share"]
    assert share.mark == "–"
    assert re.fullmatch(
        r"backward, \d+ % \(the largest share when healthy too, \d+ %\)",
        share.text.replace("\N{NO-BREAK SPACE}", " "),
    ), share.text
    # And no chip doubts the rank, or the saving by fixing it
    chip = next(chip for chip in verdict.chips if chip.terms[0].name == "co_critical")
    assert (chip.text, chip.tone) == ("stages or ranks tied · little gain in backward alone", "fact")
    # Without a healthy window, neither
    alone = words.verdict(diagnose(late_in_data(2, 30)))
    assert (alone.headline, alone.evidence_summary) == ("data on rank 77", "one source, agrees")


def test_little_gain_by_clipping_a_stage_is_no_chip_where_a_rank_is_late_in_it() -> None:
    found = lasting_fault(OPTIMIZER, ranks=2)
    diagnosis = diagnose_runs(found)[5]
    doubted = diagnosis.changed(labels=(Label("co_critical", ("low_static_gain",)),))
    assert doubted.aim is not None
    assert doubted.aim.stage == doubted.top_stage
    assert words.verdict(doubted).chips[0].text == "stages or ranks tied"


def test_absent_evidence_names_the_gate_it_waits_for() -> None:
    lines = {line.name: line.text for line in card("slow_callback").evidence}
    assert lines["static_gain"] == "n/a: the largest gain, 1 %, is below γG 0.10."
    assert lines["device_events"] == "n/a: no device events were sampled."
