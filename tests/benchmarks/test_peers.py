"""The page docs/evidence/peers.md: what other tools say is compared with what was planted."""

from __future__ import annotations

import pytest

from benchmarks.peers import hta_result, tools, traceml_result
from benchmarks.peers_job import FAULTS, SLOW_RANK
from benchmarks.peers_page import ToolFinding, peers_document, verdict
from sfapp.model.stages import BACKWARD, DATA


@pytest.mark.parametrize(
    ("finding", "fault", "expected"),
    [
        (ToolFinding("", stage=DATA, rank=SLOW_RANK), "data", "right"),
        (ToolFinding("", rank=SLOW_RANK), "data", "in part"),
        (ToolFinding("", stage=DATA), "data", "in part"),
        (ToolFinding("", stage=DATA, rank=SLOW_RANK + 1), "data", "wrong"),
        (ToolFinding("", stage=BACKWARD, rank=SLOW_RANK), "data", "wrong"),
        (ToolFinding("", is_silent=True), "data", "silent"),
        (ToolFinding("", is_silent=True), "healthy", "right"),
        (ToolFinding("", rank=SLOW_RANK), "healthy", "wrong"),
        (ToolFinding("", has_failed=True), "healthy", "fails"),
    ],
)
def test_a_finding_is_right_only_with_stage_and_rank(finding: ToolFinding, fault: str, expected: str) -> None:
    assert verdict(finding, fault) == expected


def test_a_summary_of_traceml_names_the_stage_and_rank_of_its_primary_diagnosis() -> None:
    # as TraceML 0.5.0 writes it, abridged
    primary = {
        "kind": "INPUT_STRAGGLER",
        "status": "INPUT STRAGGLER",
        "severity": "crit",
        "section": "step_time",
        "summary": "r1 waited 25.5 ms for input, compared with 5.8 ms on r0.",
    }
    summary = {"primary_diagnosis": primary, "step_time": {"diagnosis": {"ranks": [1]}}}
    found = traceml_result(summary)
    assert (found.stage, found.rank, found.is_silent) == (DATA, 1, False)
    unknown_cause = traceml_result({**summary, "primary_diagnosis": {**primary, "kind": "STRAGGLER"}})
    assert (unknown_cause.stage, unknown_cause.rank) == (None, 1)
    assert traceml_result({**summary, "primary_diagnosis": {**primary, "severity": "info"}}).is_silent


def test_a_straggler_of_hta_is_a_rank_without_a_stage() -> None:
    assert hta_result({"version": "0.5.0", "stragglers": [2]}) == ToolFinding(
        "potential straggler: rank 2", rank=2
    )
    failed = hta_result(
        {"version": "0.5.0", "error": "ValueError: attempt to get argmax of an empty sequence"}
    )
    assert failed.has_failed
    assert "argmax" in failed.text


def test_a_tool_that_is_not_installed_is_named_on_the_page() -> None:
    assert tools(None)["HolisticTraceAnalysis"] is None
    right = ToolFinding("it | says", stage=DATA, rank=SLOW_RANK)
    rows = {"data": {"sfapp": right, "HolisticTraceAnalysis": None}}
    page = peers_document(rows, {}, "the machine", 4, 200)
    assert "| data | **right**: it \\| says | not installed |" in page
    assert "| right | 1 | – |" in page
    assert set(rows) < set(FAULTS)
