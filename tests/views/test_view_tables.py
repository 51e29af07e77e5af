"""Rows for tables: raw values to sort by, text to show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfapp.accounting import Measures
from sfapp.model import CULPRITS, GATE_DOCS, LABELS, REASONS, Diagnosis
from sfapp.model.window import NOT_MEASURED
from sfapp.service.csv_table import csv_text
from sfapp.views import gate_tables, glossary, tables
from sfapp.views.rank_rows import rank_rows
from sfapp.views.table_columns import Row
from tests.views import simulated_windows as jobs


def every_rank(measures: Measures, diagnosis: Diagnosis) -> list[Row]:
    return rank_rows(measures, diagnosis).rows(range(len(measures.window.ranks)))


def by(rows: list[Row], field: str) -> dict[Any, Row]:
    return {row[field]: row for row in rows}


@pytest.mark.parametrize("kind", sorted(jobs.ALL))
def test_every_column_of_every_table_is_in_its_rows(kind: str) -> None:
    measures, diagnosis = jobs.against_healthy(jobs.ALL[kind](), "carry_over")
    ranks, stages = every_rank(measures, diagnosis), tables.stage_rows(diagnosis)
    for columns, rows in (
        (tables.rank_columns(ranks), ranks),
        (tables.stage_columns(stages), stages),
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


def test_the_rank_table_shows_leading_waiting_and_lagging_ranks() -> None:
    measures, diagnosis = jobs.look(jobs.data_tail())
    rows = by(every_rank(measures, diagnosis), "rank")
    assert rows[2]["mark"] == "▲"
    assert rows[2]["lead"] == 1
    assert rows[2]["lag_ns"] == pytest.approx(70e6, rel=0.02)
    assert rows[0]["lag_ns"] == pytest.approx(0, abs=1e5)
    assert rows[0]["hostname"] == "node-0"
    assert rows[5]["node_rank"] == 1
    assert rows[0]["stage:model.backward_cpu_wall"] > rows[2]["stage:model.backward_cpu_wall"] + 60e6


def test_carry_over_distances_are_taken_at_the_measured_sync() -> None:
    """Given a callback after the last wait: all enter it together, one leaves it late."""
    measures, diagnosis = jobs.look(jobs.slow_callback(), "carry_over")
    rows = by(every_rank(measures, diagnosis), "rank")
    assert all(row["slack_ns"] == pytest.approx(0, abs=5e5) for row in rows.values())
    assert rows[3]["lag_ns"] == pytest.approx(60e6, rel=0.02)


def test_own_time_and_waiting_have_columns_where_waits_are_known() -> None:
    measures, diagnosis = jobs.look(jobs.slow_inside_backward(), "carry_over")
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank) == ("model.backward_cpu_wall", 2)
    ranks, stages = every_rank(measures, diagnosis), tables.stage_rows(diagnosis)

    slow, other = ranks[2], ranks[0]
    assert slow["own_ns"] == pytest.approx(119e6, rel=0.02)
    assert other["own_ns"] == pytest.approx(59e6, rel=0.02)
    assert slow["wait_ns"] == pytest.approx(5e6, rel=0.1)
    for row in (slow, other):
        assert row["own_ns"] + row["wait_ns"] == pytest.approx(row["stage_ns"])
        assert row["own:model.backward_cpu_wall"] == row["own_ns"]
    backward = by(stages, "name")["backward"]
    # One step is not split, because rank 7 did not measure its wait there.
    assert backward["wait_ns"] == pytest.approx(5e6 * 19 / 20, rel=0.1)
    assert backward["own_ns"] + backward["wait_ns"] == pytest.approx(backward["advance_ns"])
    assert (by(stages, "name")["data"]["own_ns"], by(stages, "name")["data"]["own_ns_text"]) == (None, "n/a")
    titles = [column.title for column in tables.rank_columns(ranks)]
    assert titles[titles.index("suspect stage") + 1 :][:2] == ["own", "waiting"]
    assert csv_text(ranks).splitlines()[0].count("own_ns") == 2  # the value, and its text


def test_without_waits_there_are_no_such_columns() -> None:
    measures, diagnosis = jobs.look(jobs.data_tail())
    ranks, stages = every_rank(measures, diagnosis), tables.stage_rows(diagnosis)

    assert tables.rank_columns(ranks) == tables.RANK_COLUMNS
    assert tables.stage_columns(stages) == tables.STAGE_COLUMNS
    assert not any(name.startswith(("own", "wait")) for row in (*ranks, *stages) for name in row)


def test_a_rank_that_measured_no_wait_has_neither_own_time_nor_waiting() -> None:
    window = jobs.slow_inside_backward()
    wait_NR = np.array(window.waits["model.backward_cpu_wall"])
    wait_NR[:, 5] = NOT_MEASURED
    measures, diagnosis = jobs.look(replace(window, waits={"model.backward_cpu_wall": wait_NR}))

    rows = every_rank(measures, diagnosis)
    assert diagnosis.top_stage == "model.backward_cpu_wall"
    assert (rows[5]["own_ns"], rows[5]["wait_ns"]) == (None, None)
    assert rows[0]["wait_ns"] > 0


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
    manifest = jobs.ddp(extra={"commit": "<b>abc</b>", "long": "x" * 10**6}, missing_ranks=(8, 9)).manifest
    values = {row["key"]: row["value"] for row in tables.manifest_rows(manifest)}
    assert values["stage hash"] == manifest.stage_hash
    assert values["missing ranks"] == "8–9"
    assert values["extra: commit"] == "<b>abc</b>"
    assert len(values["extra: long"]) == 1000
    assert values["overhead"] == "n/a"


def test_sources_show_size_and_hash() -> None:
    @dataclass
    class StoredFile:
        path: Path
        size: int
        sha256: str

    (row,) = tables.source_rows([StoredFile(Path("a/00000001.parquet"), 29_100, "ab" * 32)])
    assert row == {"path": "a/00000001.parquet", "size": 29_100, "size_text": "29 kB", "sha256": "ab" * 32}


def test_the_glossary_holds_every_gate_label_reason_and_culprit() -> None:
    rows = glossary.glossary()
    names = {row["name"] for row in rows}
    assert names >= {doc.name for doc in GATE_DOCS} | set(LABELS) | set(REASONS) | set(CULPRITS)
    assert "model_fit" in names
    assert all(row["meaning"] for row in rows)


def test_every_numeric_gate_shows_the_distance_to_its_next_change() -> None:
    rows = gate_tables.gate_rows(*jobs.look(jobs.slow_callback()))
    assert {row["gate"] for row in rows} == {doc.name for doc in GATE_DOCS}
    assert all(row["becomes"] for row in rows)
    # the gates that can change nothing come last
    known = [row["distance"] is not None for row in rows]
    assert known == sorted(known, reverse=True)
    assert any(known)


def test_a_short_table_begins_with_the_ranks_that_are_slowest_most_often() -> None:
    measures, diagnosis = jobs.look(jobs.data_tail())
    every = every_rank(measures, diagnosis)
    places = tables.slowest_first(measures, diagnosis)
    shown = rank_rows(measures, diagnosis).rows(places[:3])
    assert shown == sorted(every, key=lambda row: -row["lead"])[:3]
    of_node = tables.slowest_first(measures, diagnosis, 1)
    assert {every[place]["node_rank"] for place in of_node} == {1}
