"""The page on traces of other tools: what a row says, and that text from traces stays text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import HEADER, Result
from benchmarks.kineto_job import Shape, write_job
from benchmarks.trace_page import page, table
from benchmarks.trace_verdicts import TraceSource, TraceVerdict, of_source, sources


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> TraceVerdict:
    folder = tmp_path_factory.mktemp("traces") / "late_loader"
    write_job(folder, Shape(steps=4))
    (found,) = of_source(TraceSource(folder, "kineto"))
    return found


def test_a_row_contains_the_results_of_import_and_analyze(row: TraceVerdict) -> None:
    assert (row.trace, row.format, row.ranks, row.steps) == ("late_loader", "kineto", "8 of 8", "4")
    assert row.verdict == "data on rank 5 (host1), every step"
    assert row.operator.startswith("enumerate(DataLoader)#")
    assert row.operator.endswith(", rank 5 in data: operator, input, 60.0 ms per step in 4 steps")
    assert row.agreement == "agrees"


def test_text_from_a_trace_is_text_in_the_table(row: TraceVerdict) -> None:
    hostile = replace(row, operator="<script>|`a`\n| [x](y)")

    (line,) = table([hostile]).splitlines()[2:]

    assert "\\<script\\>\\|\\`a\\` \\| \\[x\\](y)" in line


def test_the_page_shows_its_command_and_no_path_of_the_machine(row: TraceVerdict, tmp_path: Path) -> None:
    bars = [HEADER, Result("a bar", 1.0, 2.0).line()]

    text = page("python -m benchmarks.traces", bars, ["A sentence."], [row], 0.25)

    assert "Written by `python -m benchmarks.traces`" in text
    assert "other programs used 25% of the cores" in text
    assert "`SFAPP_TRACES`" in text
    assert str(tmp_path.parent.parent) not in text
    assert "holds" in text


def test_a_folder_without_traces_has_none(tmp_path: Path) -> None:
    assert sources(tmp_path) == []
