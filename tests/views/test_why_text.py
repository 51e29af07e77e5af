"""Why that rank, in sentences (accounting.md §21)."""

from __future__ import annotations

from dataclasses import replace

from sfapp.accounting import diagnose
from sfapp.model import Diagnosis
from sfapp.views.text.host_evidence import no_evidence_sentence, period_sentence
from sfapp.views.text.verdict import verdict
from tests.accounting.simulated_hosts import host_job
from tests.builders import DATA, MS, ddp_job, window_of


def test_the_first_sentence_states_how_much_of_the_delay_is_accounted_for() -> None:
    reasons = verdict(diagnose(host_job("blocked"))).reasons
    assert reasons[0].startswith("Rank 3 is late in data by ")
    assert "blocked, not computing; no throttling, no collections, no faults" in reasons[0]
    assert reasons[0].endswith(": it waits for its storage or its workers.")


def test_collections_are_named_with_their_evidence() -> None:
    reasons = verdict(diagnose(host_job("gc"))).reasons
    assert "garbage collection; no throttling" in reasons[0]
    assert reasons[1].startswith("Garbage collection: ")
    assert "rank correlation with its lateness 0." in reasons[1] or "lateness 1.00" in reasons[1]
    assert "chance below 0.1 %" in reasons[1]


def test_nothing_explains_it_is_another_answer_than_nothing_was_recorded() -> None:
    unexplained = diagnose(host_job("gc", recorded=False, unrecorded=(f"host.cpu.{DATA}_ms",)))
    silent = diagnose(window_of(ddp_job(extra={(DATA, 3): 30 * MS})))
    words = verdict(unexplained)
    assert words.reasons[0].startswith("Nothing recorded on the host explains why rank 3 is late in data by")
    assert "Not recorded: more computing or blocking." in words.reasons[1]
    assert verdict(silent).reasons == ()
    assert no_evidence_sentence(silent) in verdict(silent).unknown
    assert no_evidence_sentence(unexplained) == ""


def test_a_healthy_window_has_no_reasons() -> None:
    assert verdict(diagnose(host_job())).reasons == ()


def test_a_spacing_that_fits_a_known_period_has_a_name_to_check() -> None:
    diagnosis: Diagnosis = diagnose(host_job("blocked"))
    known = replace(diagnosis, periods={"the checkpoint interval": 10, "the loader's number of workers": 4})
    assert period_sentence(known, 10) == "To check, as its period fits: the checkpoint interval (10)."
    assert period_sentence(known, 20).endswith(
        "the checkpoint interval (10) or the loader's number of workers (4)."
    )
    assert period_sentence(known, 7) == ""


def test_the_pattern_in_the_parallel_layout_is_in_the_verdict() -> None:
    layout = {"dp": [0, 0, 1, 1, 2, 2, 3, 3], "pp": [0, 1] * 4}
    late = ddp_job(extra={(DATA, rank): 30 * MS for rank in (6, 7)})
    words = verdict(diagnose(window_of(late, layout=layout, ranks_per_node=8)))
    assert any(sentence.startswith("One data-parallel replica (dp 3") for sentence in words.reasons)
