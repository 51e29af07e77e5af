"""Rows for tables: raw values to sort by, text to show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import simulated_windows as jobs

from sfapp.model import CULPRITS, GATE_DOCS, LABELS, REASONS
from sfapp.views import glossary, tables


def by(rows: list[tables.Row], field: str) -> dict[Any, tables.Row]:
    return {row[field]: row for row in rows}


@pytest.mark.parametrize("kind", sorted(jobs.ALL))
def test_every_column_of_every_table_is_in_its_rows(kind: str) -> None:
    measures, diagnosis = jobs.against_healthy(jobs.ALL[kind](), "carry_over")
    for columns, rows in (
        (tables.RANK_COLUMNS, tables.rank_rows(measures, diagnosis)),
        (tables.STAGE_COLUMNS, tables.stage_rows(diagnosis)),
        (tables.STEP_COLUMNS, tables.step_rows(measures, diagnosis)),
        (tables.EVIDENCE_COLUMNS, tables.evidence_rows(diagnosis)),
    ):
        for row in rows:
            for column in columns:
                assert column.field in row
                assert isinstance(row[column.shown], str | int)


def test_stages_show_every_number_of_the_accounting() -> None:
    _, diagnosis = jobs.against_healthy(jobs.slow_callback(), "carry_over")
    row = by(tables.stage_rows(diagnosis), "name")["callbacks"]
    assert row["carry_share"] == (diagnosis.carry_over_shares or {})["callbacks.cpu_wall"]
    assert row["carry_share_text"].startswith("41.")
    assert row["delta_ns_text"] == "+60 ms"
    assert row["sets"] == "routing, ambiguity"
    assert by(tables.stage_rows(diagnosis), "name")["backward"]["slope_text"].startswith("1.00 ±")


def test_below_the_floor_stage_numbers_are_na_and_advances_are_raw() -> None:
    _, diagnosis = jobs.look(jobs.below_floor())
    row = tables.stage_rows(diagnosis)[0]
    assert row["share"] is None
    assert row["share_text"] == row["gain_text"] == row["slope_text"] == "n/a"
    assert row["advance_ns_text"] == "1 µs"


def test_ranks_show_who_leads_who_waits_and_who_lags() -> None:
    measures, diagnosis = jobs.look(jobs.data_tail())
    rows = by(tables.rank_rows(measures, diagnosis), "rank")
    assert rows[2]["mark"] == "▲"
    assert rows[2]["lead"] == 1
    assert rows[2]["lag_ns"] == pytest.approx(70e6, rel=0.02)
    assert rows[0]["lag_ns"] == pytest.approx(0, abs=1e5)
    assert rows[0]["hostname"] == "node-0"
    assert rows[5]["node_rank"] == 1
    assert rows[0]["stage:model.backward_cpu_wall"] > rows[2]["stage:model.backward_cpu_wall"] + 60e6


def test_carry_over_distances_are_taken_where_ranks_really_meet() -> None:
    """Given a callback after the last wait: all enter it together, one leaves it late."""
    measures, diagnosis = jobs.look(jobs.slow_callback(), "carry_over")
    rows = by(tables.rank_rows(measures, diagnosis), "rank")
    assert all(row["slack_ns"] == pytest.approx(0, abs=5e5) for row in rows.values())
    assert rows[3]["lag_ns"] == pytest.approx(60e6, rel=0.02)


def test_steps_show_their_largest_stage_and_leader() -> None:
    measures, diagnosis = jobs.look(jobs.one_off())
    row = by(tables.step_rows(measures, diagnosis), "step")[417]
    assert (row["top"], row["leader"], row["hostname"]) == ("data", 6, "node-1")
    assert row["time_ns"] == measures.makespan_N[17]


def test_suppressed_labels_are_listed_as_such() -> None:
    _, diagnosis = jobs.look(jobs.hostile())
    states = by(tables.label_rows(diagnosis), "label")
    assert states["telemetry_limited"]["state"] == "holds"
    assert states["direct_exposure"]["state"] == "suppressed"
    assert states["direct_exposure"]["meaning"] == LABELS["direct_exposure"].explanation


def test_the_manifest_is_shown_whole() -> None:
    manifest = jobs.ddp(extra={"commit": "<b>abc</b>"}, missing_ranks=(8, 9)).manifest
    values = {row["key"]: row["value"] for row in tables.manifest_rows(manifest)}
    assert values["stage hash"] == manifest.stage_hash
    assert values["missing ranks"] == "8–9"
    assert values["extra: commit"] == "<b>abc</b>"
    assert values["overhead"] == "n/a"


def test_sources_show_size_and_hash() -> None:
    @dataclass
    class Source:
        path: Path
        size: int
        sha256: str

    (row,) = tables.source_rows([Source(Path("a/00000001.parquet"), 29_100, "ab" * 32)])
    assert row == {"path": "a/00000001.parquet", "size": 29_100, "size_text": "29 kB", "sha256": "ab" * 32}


def test_the_glossary_holds_every_gate_label_reason_and_culprit() -> None:
    rows = glossary.glossary()
    names = {row["name"] for row in rows}
    assert names >= {doc.name for doc in GATE_DOCS} | set(LABELS) | set(REASONS) | set(CULPRITS)
    assert "model_fit" in names
    assert all(row["meaning"] for row in rows)


def test_every_numeric_gate_says_how_far_its_next_change_is() -> None:
    rows = tables.gate_rows(*jobs.look(jobs.slow_callback()))
    assert {row["gate"] for row in rows} == {doc.name for doc in GATE_DOCS}
    assert all(row["becomes"] for row in rows)
    # the gates that can change nothing come last
    known = [row["distance"] is not None for row in rows]
    assert known == sorted(known, reverse=True)
    assert any(known)
