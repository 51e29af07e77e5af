"""The figures of docs/exposed-time.md hold the numbers of the accounting, and so does its text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.live_figures import EXAMPLE_LATE_S, FOLDER, LATE_S, drawings, late_loader
from sfapp.accounting import Measures, judge, measure
from sfapp.model import Diagnosis
from sfapp.model.examples import DISPLACED, MEASURED, NS
from tests.builders import BACKWARD, DATA, FORWARD

PAGE = (FOLDER.parent / "exposed-time.md").read_text(encoding="utf-8")

LIVE_BYTES = 2_000_000
"""Maximum size of all that the live figures add to the site; 1.4 MB are the plot library."""


def judged(late_s: float) -> tuple[Measures, Diagnosis]:
    measures = measure(late_loader(late_s).window())
    return measures, judge(measures, frontier="step")


def in_seconds(value_ns: float) -> str:
    return f"{value_ns / NS:.1f}"


@pytest.fixture(scope="module")
def positions(site: Path) -> list[dict[str, Any]]:
    """Every position of the slider, as the built page loads it."""
    found = json.loads((site / "live" / "built" / "late-loader.json").read_text(encoding="utf-8"))
    assert found["start"] == LATE_S.index(EXAMPLE_LATE_S)
    assert len(found["positions"]) == len(LATE_S)
    shown: list[dict[str, Any]] = found["positions"]
    return shown


@pytest.mark.parametrize("name", sorted(drawings()))
def test_a_drawing_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == drawings()[name], (
        "run: python assets/live_figures.py"
    )


def test_the_page_shows_every_figure_as_a_drawing() -> None:
    shown = re.findall(r"\]\(live/([^)]+)\)", PAGE)
    assert sorted(shown) == sorted(path.name for path in FOLDER.glob("*.svg")) == sorted(drawings())


def test_the_figures_begin_with_the_example_of_the_page() -> None:
    window = late_loader(EXAMPLE_LATE_S).window()
    assert np.array_equal(window.duration_SNR, DISPLACED.window().duration_SNR)
    assert (window.waits[BACKWARD] / NS).tolist() == [[0.0, 5.0, 4.9]]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_frontier_at_every_position_is_that_of_the_accounting(
    positions: list[dict[str, Any]], theme: str
) -> None:
    for late_s, shown in zip(LATE_S, positions, strict=True):
        measures, diagnosis = judged(late_s)
        figure = shown["figures"]["frontier_steps"][theme]
        (blocks,) = (trace for trace in figure["data"] if trace["type"] == "bar")
        unit_s = 2 / figure["layout"]["yaxis"]["tickvals"][1]
        advances_s = [advance / NS for advance in diagnosis.advances_ns.values()]
        assert [height * unit_s for height in blocks["y"]] == pytest.approx(advances_s)
        # All wait for rank 0, or, if it is not late, for rank 2, which needs 0.1 s more.
        assert measures.makespan_N[0] / NS == pytest.approx(3.2 + max(late_s, 0.1))


def test_work_and_waits_at_every_position_are_those_of_the_step(positions: list[dict[str, Any]]) -> None:
    for late_s, shown in zip(LATE_S, positions, strict=True):
        figure = shown["figures"]["swim_lane"]["light"]
        unit_s = 2 / figure["layout"]["xaxis"]["tickvals"][1]
        drawn_s = sum(
            length * unit_s
            for trace in figure["data"]
            if trace["type"] == "bar"
            for length, rank in zip(trace["x"], trace["customdata"], strict=True)
            if rank == 1
        )
        assert drawn_s == pytest.approx(sum(late_loader(late_s).seconds[1]), abs=0.01)


def test_the_sentence_at_every_position_has_the_shares_of_the_accounting(
    positions: list[dict[str, Any]],
) -> None:
    for late_s, shown in zip(LATE_S, positions, strict=True):
        _, diagnosis = judged(late_s)
        assert diagnosis.shares is not None
        printed = [float(share) for share in re.findall(r"([\d.]+) %", shown["text"])]
        assert printed == pytest.approx([100 * share for share in diagnosis.shares.values()], abs=0.05)
        assert shown["value"] == f"{late_s} s"
    assert positions[0]["text"].startswith("Step time 3.30 s. Exposed: data 1.10 s (33.3 %)")


def test_a_time_axis_is_the_same_at_every_position(positions: list[dict[str, Any]]) -> None:
    for name, axis in (("frontier_steps", "yaxis"), ("swim_lane", "xaxis")):
        ends = set()
        for shown in positions:
            settings = shown["figures"][name]["light"]["layout"][axis]
            unit_s = 2 / settings["tickvals"][1]
            ends.add(tuple(round(end * unit_s, 6) for end in settings["range"]))
        assert len(ends) == 1


def test_the_live_figures_name_no_other_server_and_are_bounded(site: Path) -> None:
    files = [path for path in (site / "live").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LIVE_BYTES
    for path in files:
        if path.suffix != ".svg" and path.parent.name != "vendor":
            assert "://" not in path.read_text(encoding="utf-8"), path.name


def test_no_page_loads_the_plot_library_before_it_has_a_live_figure(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert "plotly" not in "".join(re.findall(r"<(?:script|link)[^>]*>", page.read_text())), page.name


def test_the_tables_of_the_page_are_those_of_the_accounting() -> None:
    measures = measure(DISPLACED.window())
    duration_SR, position_R = measures.window.duration_SNR[:, 0], np.zeros(3, dtype=np.int64)
    frontier = 0
    for name, stage, duration_R in zip(
        ("data", "forward", "backward"), measures.window.stages, duration_SR, strict=True
    ):
        cells = [*duration_R, duration_R.mean(), duration_R.max()]
        assert f"| {name} | {' | '.join(map(in_seconds, cells))} |" in PAGE
        position_R = position_R + duration_R
        frontier += (advance := judge(measures).advances_ns[stage])
        assert frontier == position_R.max()
        places = [f"**{in_seconds(at)}**" if at == frontier else in_seconds(at) for at in position_R]
        assert (
            f"| after {name} | {' | '.join([*places, in_seconds(frontier), in_seconds(advance)])} |" in PAGE
        )
    sums = [*position_R, position_R.mean(), duration_SR.max(axis=1).sum()]
    assert f"| step | {' | '.join(map(in_seconds, sums))} |" in PAGE


def test_the_sentences_of_the_page_have_the_numbers_of_the_accounting() -> None:
    measures, late = judged(EXAMPLE_LATE_S)
    repaired = judged(0.0)[1]
    data, forward, backward = (in_seconds(late.advances_ns[stage]) for stage in (DATA, FORWARD, BACKWARD))
    maxima = in_seconds(float(measures.max_SN.sum()))
    typical_ns = float(np.median(measures.window.duration_SNR[0, 0]))
    assert late.excess is not None
    excess_ns = late.excess[DATA] * late.exposed_makespan_ns
    saved_ns = late.exposed_makespan_ns - repaired.exposed_makespan_ns
    waits_R = measure(MEASURED.window()).window.waits[BACKWARD][0]
    own_R = measure(MEASURED.window()).window.duration_SNR[-1, 0] - waits_R
    for sentence in (
        f"The maxima also add up to {maxima} s, more than the step took",
        f"{data} s to data, {forward} s to forward, {backward} s to backward",
        f"it rises by {data} s in data, {forward} s in forward and {backward} s in backward; "
        f"per-stage maxima add up to {maxima} s",
        f"{data} s of data are exposed, but a typical rank needs {in_seconds(typical_ns)} s",
        f"The *excess*, {in_seconds(excess_ns)} s, is what a repair could save",
        f"Without the delay the step takes {in_seconds(repaired.exposed_makespan_ns)} s, "
        f"{in_seconds(saved_ns)} s less",
        f"all four ranks spend {in_seconds(MEASURED.seconds[0][-1] * NS)} s in backward",
        f"rank 2 works for {in_seconds(own_R[2])} s of them and the others for at most "
        f"{in_seconds(np.delete(own_R, 2).max())} s",
    ):
        assert sentence in PAGE
