"""KAIR's findings in sentences and rows: what is named, what is not, and why."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sfapp.model.view import ViewState
from sfapp.operators import AGREEMENT_REASONS, Agreement, Findings, agreement
from sfapp.operators.causes import KINDS
from sfapp.views import straggler_tables as tables
from sfapp.views import text as words
from sfapp.views.glossary import glossary
from sfapp.views.selection import operator_shown, step_shown, suspect_and_peer
from sfapp.views.text.stragglers import COLLECTIVE_VERDICTS, COLLECTIVE_WORDS, VIAS
from tests.views import simulated_findings as found_in


def agreement_for(kind: str) -> Agreement:
    """Compare verdict and findings as if both were of one window."""
    findings = found_in.found(kind)
    return heavy(agreement(found_in.diagnosis(), findings, found_in.window()), findings)


def heavy(agreed: Agreement, findings: Findings) -> Agreement:
    """The made-up step is short beside the window's: let the first cause count all the same."""
    cause = next((cause for cause in findings.blame.causes if cause.holds_up), None)
    return replace(agreed, cause=cause, kind="differ" if cause else "frontier_only")


def headline(kind: str) -> str:
    return words.stragglers_headline(found_in.found(kind), agreement_for(kind), None)


# ---- headline ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("input", "Rank 5's next_batch (input) delayed 7 ranks: "),
        ("host", "Rank 5's layer 0 (compute) delayed"),
        ("gap", "Rank 5's gap before layer 0 (idle) delayed"),
        (
            "transfer",
            "The time after the last rank arrived in all_reduce (computing or transfer) delayed ",
        ),
        ("extra", "Rank 5's own gc.collect (compute) delayed"),
        ("two ranks", "No cause can be named: 2 ranks with events"),
        ("nothing wrong", "No operator stands out"),
        ("no events", "No cause can be named: 0 ranks with events"),
    ],
)
def test_the_headline_names_the_cause_or_the_reason_for_none(kind: str, expected: str) -> None:
    assert headline(kind).startswith(expected)


def test_the_headline_gives_host_step_and_cost() -> None:
    findings = found_in.found("input")
    ranks = found_in.window().ranks
    text = words.stragglers_headline(findings, agreement_for("input"), ranks)
    assert f"next_batch on {ranks.hostname[5]} (input)" in text
    assert text.endswith("in step 1")
    twice = replace(findings.blame.causes[0], steps=(0, 1))
    text = words.stragglers_headline(findings, replace(agreement_for("input"), cause=twice), ranks)
    assert text.endswith("over 2 steps")


def test_a_cause_that_costs_next_to_nothing_is_reported_as_such() -> None:
    agreed = replace(agreement_for("input"), cause=None, kind="quiet")
    text = words.stragglers_headline(found_in.found("input"), agreed, None)
    assert text.startswith("No long delay: at most ")


def test_a_cause_that_nothing_waited_for_is_reported_as_such() -> None:
    findings = found_in.found("input")
    idle = tuple(replace(cause, holds_up=False) for cause in findings.blame.causes)
    findings = replace(findings, blame=replace(findings.blame, causes=idle))
    text = words.stragglers_headline(findings, replace(agreement_for("input"), cause=None), None)
    assert text.startswith("No rank waited for the longest event: ")


def test_a_rank_a_little_slow_in_everything_is_reported_as_such() -> None:
    findings = found_in.found("nothing wrong")
    blame = replace(findings.blame, causes=(), spread_ns={3: 2e6, 4: 12e6}, symptoms=9)
    text = words.stragglers_headline(replace(findings, blame=blame), agreement_for("nothing wrong"), None)
    assert text == "No single operator: rank 4 falls behind gradually, by up to 12.0 ms"
    assert any("Ranks 3–4: up to 12.0 ms late" in note for note in words.findings_notes(
        replace(findings, blame=blame)
    ))  # fmt: skip


def test_the_table_of_collectives_names_the_time_after_the_last_arrival_by_what_was_measured() -> None:
    rows = tables.collective_rows(found_in.found("input"))
    column = next(column for column in tables.COLLECTIVE_COLUMNS if column.field == "verdict")
    shown = {row["verdict"]: row[column.shown] for row in rows}
    assert {"skew", "transfer"} & set(shown)
    assert COLLECTIVE_WORDS.items() >= shown.items()
    assert COLLECTIVE_WORDS["transfer"] == "computing or transfer after the last rank arrived"
    assert set(COLLECTIVE_WORDS) == set(COLLECTIVE_VERDICTS)


def test_the_table_of_causes_calls_a_slow_collective_no_transfer() -> None:
    column = next(column for column in tables.CAUSE_COLUMNS if column.field == "kind")
    found = found_in.found("transfer")
    shown = {row["kind"]: row[column.shown] for row in tables.cause_rows(found)}
    assert "transfer" in shown
    assert shown["transfer"] == "after the last arrival"
    assert "transfer:" not in column.help


# ---- agreement --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "stage", "rank", "expected"),
    [
        ("agree", "data.next_wait", 5, "Verdict and operators agree: the verdict points to data on rank 5"),
        (
            "differ",
            "model.backward_cpu_wall",
            2,
            "Verdict and operators differ: the verdict points to backward",
        ),
        (
            "kair_only",
            None,
            None,
            "The verdict is healthy, but the operators name a cause: rank 5's next_batch",
        ),
    ],
)
def test_where_both_name_something_the_sentence_holds_both(
    kind: str, stage: str | None, rank: int | None, expected: str
) -> None:
    laid = replace(
        agreement_for("input"), kind=kind, stage=stage, rank=rank, cause_stage="data.next_wait", reasons=()
    )
    first, second = words.agreement_sentences(laid, found_in.diagnosis())
    assert first.startswith(expected)
    assert "rank 5's next_batch (input) in data" in first
    assert second == "Rank 5's timing pattern also differs most from the others."


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("same_durations", "No operator events confirm the verdict: it points to data on rank 5, and so do"),
        ("differ", "The verdict points to data on rank 5, its stage durations rank by rank to rank 5's"),
        ("kair_only", "The verdict is healthy, but its stage durations rank by rank point to rank 5's"),
    ],
)
def test_without_operator_events_stage_durations_are_no_second_witness(kind: str, expected: str) -> None:
    laid = replace(
        agreement_for("input"), kind=kind, stage="data.next_wait", rank=5, reasons=("from_stages",)
    )
    first, why = words.agreement_sentences(laid, found_in.diagnosis())
    assert first.startswith(expected)
    assert "operators agree" not in first
    assert why.startswith("There are no operator events")


def test_without_an_operator_that_accounts_for_the_aim_the_text_gives_the_reason() -> None:
    laid = replace(
        agreement_for("nothing wrong"), kind="frontier_only", stage="data.next_wait", rank=2,
        cause=None, reasons=("other_steps", "spread_out"),
    )  # fmt: skip
    first, *why = words.agreement_sentences(laid, found_in.diagnosis())
    assert first == "The verdict points to data on rank 2; no operator explains it."
    assert why == [AGREEMENT_REASONS["other_steps"], AGREEMENT_REASONS["spread_out"]]


def test_without_any_finding_the_text_reports_none() -> None:
    laid = replace(
        agreement_for("nothing wrong"), kind="quiet", stage=None, rank=None, cause=None, reasons=()
    )
    (only,) = words.agreement_sentences(laid, found_in.diagnosis())
    assert only.startswith("Neither the verdict nor the operators")


# ---- notes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", found_in.KINDS)
def test_every_note_is_a_sentence(kind: str) -> None:
    for note in words.findings_notes(found_in.found(kind)):
        assert note.endswith(".")
        assert note[0] == note[0].upper()
        assert "None" not in note


def test_limitations_are_listed() -> None:
    assert any("clocks" in note for note in words.findings_notes(found_in.found("clocks differ")))
    assert words.findings_notes(found_in.found("stages"))[0].startswith("Based on stages, not on operators")
    assert any("11" in note for note in words.findings_notes(found_in.found("input")))  # why no 3 σ


# ---- what is looked at ------------------------------------------------------------------------------


def test_without_a_choice_the_cause_decides_which_rank_is_shown() -> None:
    findings, diagnosis = found_in.found("input"), found_in.diagnosis()
    suspect, peer = suspect_and_peer(findings, diagnosis, ViewState())
    assert suspect == 5
    assert peer not in (None, 5)
    assert step_shown(findings, ViewState())[0] == 1
    assert operator_shown(findings, ViewState()) == "next_batch"


def test_of_two_picked_ranks_the_more_abnormal_is_the_suspect() -> None:
    findings, diagnosis = found_in.found("input"), found_in.diagnosis()
    assert suspect_and_peer(findings, diagnosis, ViewState(ranks=(1, 5))) == (5, 1)
    assert suspect_and_peer(findings, diagnosis, ViewState(ranks=(3,)))[0] == 3
    assert suspect_and_peer(findings, diagnosis, ViewState(ranks=(99,)))[0] == 5


def test_without_a_cause_the_aim_decides_which_rank_is_shown() -> None:
    findings, diagnosis = found_in.found("nothing wrong"), found_in.diagnosis()
    assert suspect_and_peer(findings, diagnosis, ViewState())[0] == 2


def test_one_rank_has_no_peer_and_no_events_have_no_suspect() -> None:
    assert suspect_and_peer(found_in.found("one rank"), found_in.diagnosis(), ViewState()) == (0, None)
    assert suspect_and_peer(found_in.found("no events"), found_in.diagnosis(), ViewState()) == (None, None)
    assert step_shown(found_in.found("no events"), ViewState()) == (None, "")
    assert operator_shown(found_in.found("no events"), ViewState()) is None


# ---- tables, glossary -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", found_in.KINDS)
def test_every_column_of_every_table_is_in_its_rows(kind: str) -> None:
    findings = found_in.found(kind)
    for columns, rows in (
        (tables.CAUSE_COLUMNS, tables.cause_rows(findings)),
        (tables.OUTLIER_COLUMNS, tables.outlier_rows(findings)),
        (tables.COLLECTIVE_COLUMNS, tables.collective_rows(findings)),
    ):
        json.dumps(rows, allow_nan=False)
        for row in rows:
            for column in columns:
                assert isinstance(row[column.shown], str | int), column.field


def test_causes_are_rows_in_their_order() -> None:
    row = tables.cause_rows(found_in.found("gap"))[0]
    assert (row["cause"], row["place"], row["rank"], row["name"]) == (0, 1, 5, "layer 0")
    assert (row["kind"], row["nature"], row["holds_up"], row["steps"]) == ("edge", "idle", "yes", "1")
    assert row["after"].endswith("of rank 5")
    assert row["delay_ns_text"].endswith("ms")


def test_outliers_are_of_one_rank_or_of_all_up_to_a_limit() -> None:
    findings = found_in.found("input")
    everyone = tables.outlier_rows(findings)
    assert {row["rank"] for row in tables.outlier_rows(findings, rank=5)} == {5}
    assert len(tables.outlier_rows(findings, limit=2)) == 2
    scores = [row["score"] for row in everyone]
    assert scores == sorted(scores, reverse=True)


def test_of_many_collectives_the_longest_are_listed_in_order_of_time() -> None:
    findings = found_in.found("input")
    rows = tables.collective_rows(findings, limit=3)
    everything = tables.collective_rows(findings)
    kept = sorted(everything, key=lambda row: -(row["skew_ns"] + row["transfer_ns"]))[:3]
    assert [row["name"] for row in rows] == [row["name"] for row in everything if row in kept]


def test_every_word_of_a_cause_is_in_the_glossary() -> None:
    rows = {(row["kind"], row["name"]) for row in glossary()}
    assert {("cause", kind) for kind in KINDS} <= rows
    assert {("agreement", reason) for reason in AGREEMENT_REASONS} <= rows
    assert {("term", name) for name in ("distance", "cohort", "blame", "robust_z")} <= rows
    # A name is part of an address
    assert not [row["name"] for row in glossary() if " " in row["name"]]


def test_every_way_to_wait_has_words() -> None:
    vias = {
        step.via for kind in found_in.KINDS for cause in found_in.found(kind).blame.causes
        for step in cause.path if step.via
    }  # fmt: skip
    assert {"program", "arrival"} <= vias <= set(VIAS)
