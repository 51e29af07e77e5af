"""Plots of what KAIR found: valid for Plotly, safe, in words too, and what each of them shows."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from sfapp.model.view import ViewState, Zoom
from sfapp.operators import Findings, PathStep, examine
from sfapp.views import figures, palette
from sfapp.views.figures import Figure
from sfapp.views.figures.blame import STEPS_SHOWN
from sfapp.views.figures.collectives import COLLECTIVES_SHOWN
from sfapp.views.figures.rank_similarity import RANKS_SHOWN
from sfapp.views.figures.timeline_lanes import DEPTHS_SHOWN, EVENTS_SHOWN
from sfapp.views.plot_registry import PLOTS, FindingsInput
from tests.operators.lanes import event, operators
from tests.views import simulated_findings as found_in
from tests.views.test_view_figures import drawn_texts
from tests.views.test_view_notes import note

MB = 1_000_000


def every_figure(findings: Findings, view: ViewState | None = None, dark: bool = False) -> dict[str, Figure]:
    return {
        name: figures.findings_plot(name, findings, found_in.diagnosis(), view or ViewState(), dark=dark)
        for name in (spec.name for spec in PLOTS.of(FindingsInput))
    }


def one(name: str, kind: str, **view: Any) -> Figure:
    return figures.findings_plot(name, found_in.found(kind), found_in.diagnosis(), ViewState(**view))


def numbers(spec: Any) -> np.ndarray:
    if not isinstance(spec, dict):
        return np.asarray(spec, dtype=np.float64)
    flat = np.frombuffer(base64.b64decode(spec["bdata"]), dtype="<f4")
    return flat.reshape([int(part) for part in spec["shape"].split(",")]) if "shape" in spec else flat


def notes(figure: Figure) -> str:
    return " ".join(figure["layout"]["meta"]["notes"])


def text_of(figure: Figure) -> str:
    return " | ".join(note["text"].replace("<br>", " ") for note in figure["layout"].get("annotations", ()))


def is_absent(figure: Figure) -> bool:
    return len(figure["data"]) == 1 and figure["data"][0].get("width") == [1]


# ---- all of them ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", found_in.KINDS)
def test_every_figure_is_valid_for_plotly_and_has_a_text(kind: str, dark: bool) -> None:
    for name, figure in every_figure(found_in.found(kind), dark=dark).items():
        go.Figure(figure)
        meta = figure["layout"]["meta"]
        assert meta["title"] == PLOTS[name].title
        assert meta["alt"].endswith("."), name
        json.dumps(figure, allow_nan=False)


def test_light_and_dark_differ_in_colour_only() -> None:
    findings = found_in.found("input")
    light, dark = every_figure(findings), every_figure(findings, dark=True)
    for name, figure in light.items():
        assert figure["layout"]["meta"] == dark[name]["layout"]["meta"]
        assert figure["layout"]["font"]["color"] != dark[name]["layout"]["font"]["color"]


def test_names_from_files_stay_text() -> None:
    """Given operators, lanes and groups named like markup, templates and TeX, none of it takes effect."""
    seen = set()
    for name, figure in every_figure(found_in.found("hostile")).items():
        for text in drawn_texts(figure):
            bare = re.sub(r"</?b>|<br>|<extra>|</extra>", "", text)
            assert "<" not in bare, (name, text)
            assert "$" not in text, (name, text)
            assert "%{x} $" not in text, (name, text)
            if "&lt;img" in text:
                seen.add(name)
    assert seen >= {"blame_path", "operator_timeline", "collective_split"}


def test_an_impossible_plot_gives_the_reason() -> None:
    for kind, name, why in (
        ("no events", "straggler_distances", "no event of this window is part of a step"),
        ("no events", "operator_timeline", "no event of this window is part of a step"),
        ("no events", "operator_frequency", "there are no events to count"),
        ("no events", "collective_split", "no event is part of a collective with a known group"),
        ("outside steps", "straggler_scores", "no event of this window is part of a step"),
        ("one rank", "straggler_distances", "only rank 0 has events"),
        ("two ranks", "blame_path", "tell which one differs"),
        ("nothing wrong", "blame_path", "no event started late or took long"),
    ):
        figure = one(name, kind)
        assert is_absent(figure), (kind, name)
        assert why in text_of(figure), (kind, name)


def test_a_view_of_a_missing_item_reports_it() -> None:
    assert "no cause 7" in text_of(one("blame_path", "input", cause=6))
    assert "no events of step 400; the trace covers steps 0–2" in text_of(
        one("operator_timeline", "input", step=400)
    )
    assert "no event belongs to an operator called gone" in text_of(
        one("operator_frequency", "input", operator="gone")
    )


def test_a_zoomed_axis_keeps_its_zoom_and_knows_the_whole() -> None:
    figure = one("operator_timeline", "input", zoom=(Zoom("operator_timeline", "x", 1.0, 2.0),))
    assert figure["layout"]["xaxis"]["range"] == [1.0, 2.0]
    assert figure["layout"]["meta"]["whole"]["xaxis"][0] == 0


def test_figures_of_stages_are_labelled() -> None:
    for name in ("straggler_distances", "straggler_scores", "operator_timeline", "operator_frequency"):
        assert "Based on stages, not on operators." in notes(one(name, "stages")), name
    # And there each stage has the colour and the name it has everywhere
    bars = {trace["name"]: trace for trace in one("operator_timeline", "stages")["data"]}
    assert bars["data"]["marker"]["color"] == palette.stage_colours(["data"])["data"]
    assert "<b>cause</b> data" in text_of(one("blame_path", "stages"))


# ---- similarity -----------------------------------------------------------------------------------------


def test_the_odd_rank_is_the_first_row_and_darker_than_the_rest() -> None:
    (heat,) = one("straggler_distances", "input")["data"]
    table = numbers(heat["z"])
    assert heat["x"][0] == f"rank {found_in.CULPRIT}"
    assert heat["y"][0].startswith(f"rank {found_in.CULPRIT} · score")
    assert table[0, 1:].min() > table[1:, 1:].max()
    assert np.array_equal(table, table.T)


def test_the_length_of_a_time_window_is_explained() -> None:
    similarity = found_in.found("input").similarity
    for name in ("straggler_distances", "straggler_scores"):
        assert similarity.why in notes(one(name, "input"))


def test_scores_stand_in_the_rows_of_the_distances_with_aim_and_cause_marked() -> None:
    figure = one("straggler_scores", "input")
    (bars,) = figure["data"]
    assert bars["y"] == one("straggler_distances", "input")["data"][0]["y"]
    marked = {row: text for row, text in zip(bars["y"], bars["text"], strict=True) if "◂" in text}
    assert {row.split(" ·")[0]: text.split("◂ ")[1] for row, text in marked.items()} == {
        "rank 5": "cause",
        "rank 2": "suspect",
    }
    assert "<b>▶ r2</b>" in figure["layout"]["yaxis"]["ticktext"]
    assert "median rank" in text_of(figure)


def test_with_many_ranks_the_most_abnormal_are_shown_with_a_note() -> None:
    findings = found_in.of_many_ranks(2_048, odd=1_700)
    for name in ("straggler_distances", "straggler_scores"):
        figure = figures.findings_plot(name, findings, found_in.diagnosis(), ViewState())
        assert figure["data"][0]["y"][0].startswith("rank 1700 ")
        assert len(figure["data"][0]["y"]) == RANKS_SHOWN
        assert f"The {RANKS_SHOWN} most abnormal of 2,048 ranks are shown." in notes(figure)
        assert len(json.dumps(figure)) < MB


# ---- blame path -------------------------------------------------------------------------------------


def test_the_path_runs_from_cause_to_victim_with_a_reason_on_every_edge() -> None:
    findings = found_in.found("input")
    cause = findings.blame.causes[0]
    figure = one("blame_path", "input")
    (events,) = figure["data"]
    assert len(events["x"]) == min(len(cause.path), STEPS_SHOWN)
    assert all(before < after for before, after in pairwise(events["x"]))
    assert "diamond" in events["marker"]["symbol"]
    arrows = [note for note in figure["layout"]["annotations"] if note.get("showarrow")]
    assert [(arrow["ax"], arrow["x"]) for arrow in arrows] == list(pairwise(events["x"]))
    assert "<b>cause</b> next_batch" in text_of(figure)
    assert "<b>delayed</b>" in text_of(figure)
    assert "waits for" in notes(figure)
    assert figure["layout"]["yaxis"]["ticktext"][0] == "rank 5"


def test_a_long_path_is_shortened_in_the_middle_with_a_count() -> None:
    findings = found_in.found("kernel")
    first = findings.blame.causes[0]
    steps = [PathStep(place, place % 3, f"op {place}", "host", 1e6, "program") for place in range(30)]
    steps[0] = replace(steps[0], event=first.event, via="")
    causes = (replace(first, path=tuple(steps)), *findings.blame.causes[1:])
    long = replace(findings, blame=replace(findings.blame, causes=causes))
    figure = figures.findings_plot("blame_path", long, found_in.diagnosis(), ViewState())
    assert len(figure["data"][0]["x"]) == STEPS_SHOWN
    assert "… 23 more …" in text_of(figure)
    assert "23 events in the middle of the path are left out." in notes(figure)
    assert "op 29" in text_of(figure)


def test_a_change_of_rank_is_a_change_of_row() -> None:
    """Rank 5's batch makes its pair late, and the pair everyone: the last row is another rank's."""
    cause = found_in.found("late collective").blame.causes[0]
    figure = one("blame_path", "late collective")
    rows = figure["data"][0]["y"]
    names = figure["layout"]["yaxis"]["ticktext"]
    assert names[rows[0]] == f"rank {cause.path[0].rank}"
    assert names[rows[-1]] == f"rank {cause.path[-1].rank}"
    assert len(names) == len({step.rank for step in cause.path})


def test_a_picked_cause_is_the_one_that_is_shown() -> None:
    findings = found_in.found("input")
    doubled = replace(findings, blame=replace(findings.blame, causes=2 * findings.blame.causes[:1]))
    figure = figures.findings_plot("blame_path", doubled, found_in.diagnosis(), ViewState(cause=1))
    assert not is_absent(figure)
    assert figure["layout"]["uirevision"].endswith("path/1")


# ---- timeline ---------------------------------------------------------------------------------------


def test_the_suspect_stands_above_a_typical_rank_in_the_step_that_cost_most() -> None:
    figure = one("operator_timeline", "input")
    subtitle = f"step {found_in.STEP}, where the cause cost most; outlined: next_batch"
    assert figure["layout"]["meta"]["subtitle"] == subtitle
    headings = [note["text"] for note in figure["layout"]["annotations"]]
    assert headings[0] == "<b>rank 5</b>, suspect"
    assert headings[1].endswith(", typical rank")
    assert figure["layout"]["annotations"][0]["y"] < figure["layout"]["annotations"][1]["y"]
    low, high = figure["layout"]["yaxis"]["range"]
    assert low > high  # rows run downwards


def test_picked_ranks_and_step_are_shown_instead() -> None:
    figure = one("operator_timeline", "input", ranks=(1, 3), step=2)
    assert figure["layout"]["meta"]["subtitle"].startswith("step 2, as selected")
    headings = " ".join(note["text"] for note in figure["layout"]["annotations"])
    assert "rank 1<" in headings
    assert "rank 3<" in headings


def test_the_causes_event_is_outlined_and_its_excess_is_on_hover() -> None:
    figure = one("operator_timeline", "input")
    bars = {trace["name"]: trace for trace in figure["data"]}
    outline, data = bars["cause"], bars["data"]
    assert numbers(outline["x"]) == pytest.approx([4.4], rel=0.1)  # ms: 400 µs, and 4 ms too many
    assert numbers(outline["base"])[0] in numbers(data["base"])
    longest = int(numbers(data["x"]).argmax())
    assert "next_batch" in data["hovertext"][longest]
    assert re.search(r"takes \+[34]\.\d ms", data["hovertext"][longest])


def test_times_count_from_the_earliest_event_of_any_rank() -> None:
    figure = one("operator_timeline", "input")
    findings = found_in.found("input")
    step = findings.operators.select(findings.operators.step_E == found_in.STEP)
    drawn = [numbers(trace["base"]) for trace in figure["data"]]
    ranks = (5, int(figure["layout"]["annotations"][1]["text"].split("</b>")[0].removeprefix("<b>rank ")))
    begin = min(step.of_rank(rank).start_ns_E.min() for rank in ranks) - step.start_ns_E.min()
    assert min(base.min() for base in drawn) == pytest.approx(begin / 1e6, abs=1e-3)


def test_what_lies_inside_another_stands_below_it() -> None:
    rows = []
    for rank in range(3):
        rows.append(event(rank, "thread 1", "outer", 0, 100))
        rows.append(event(rank, "thread 1", "inner", 10, 40))
        rows.append(event(rank, "thread 1", "next", 50, 90))
    findings = examine(operators(rows))
    figure = figures.findings_plot("operator_timeline", findings, found_in.diagnosis(), ViewState())
    (bars,) = figure["data"]
    row_of = dict(zip(zip(bars["hovertext"], numbers(bars["y"]), strict=True), bars["text"], strict=True))
    rows_of = {name: {row for (_, row), shown in row_of.items() if shown == name} for name in row_of.values()}
    assert {row + 1 for row in rows_of["outer"]} == rows_of["inner"] == rows_of["next"]


def test_a_step_of_twenty_thousand_events_is_drawn_with_its_longest_and_a_note() -> None:
    findings = found_in.of_many_events(20_000)
    figure = figures.findings_plot("operator_timeline", findings, found_in.diagnosis(), ViewState())
    drawn = sum(len(trace["hovertext"]) for trace in figure["data"] if "hovertext" in trace)
    assert drawn <= 2 * EVENTS_SHOWN
    left_out = re.search(r"Events left out: ([\d,]+) shorter than those shown", notes(figure))
    assert left_out is not None
    assert int(left_out[1].replace(",", "")) == 2 * (20_002 - EVENTS_SHOWN)
    assert len(json.dumps(figure)) < MB
    bars = {trace["name"]: trace for trace in figure["data"]}
    assert "cause" in bars


def test_what_is_nested_too_deep_is_counted() -> None:
    rows = [
        event(rank, "thread 1", f"depth {depth}", depth, 100 - depth)
        for rank in range(3)
        for depth in range(DEPTHS_SHOWN + 3)
    ]
    findings = examine(operators(rows))
    figure = figures.findings_plot("operator_timeline", findings, found_in.diagnosis(), ViewState())
    assert "6 nested deeper than eight" in notes(figure)


def test_a_note_on_a_step_stands_in_the_timeline_of_that_step_only() -> None:
    pinned = note("Here.", plot="operator_timeline", step=1)
    for step, marks in ((1, 1), (2, 0)):
        figure = one("operator_timeline", "input", step=step)
        noted = figures.with_notes(figure, "operator_timeline", [pinned], step=step)
        found = [mark for mark in noted["layout"]["annotations"] if mark.get("name") == "note"]
        assert len(found) == marks


# ---- frequency --------------------------------------------------------------------------------------


def test_a_gap_of_one_rank_is_framed_in_its_row() -> None:
    """Four ranks tick every 10 µs; rank 2 pauses from 300 to 500."""
    rows = [
        event(rank, "thread 1", "tick", at, at + 1)
        for rank in range(4)
        for at in range(0, 1_000, 10)
        if not (rank == 2 and 300 <= at < 500)
    ]
    findings = examine(operators(rows))
    view = ViewState(operator="tick")
    figure = figures.findings_plot("operator_frequency", findings, found_in.diagnosis(), view)
    (heat,) = figure["data"]
    assert heat["y"] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    (frame,) = figure["layout"]["shapes"]
    assert (frame["y0"], frame["y1"]) == (1.5, 2.5)
    assert frame["x0"] == pytest.approx(0.3, abs=0.06)
    assert frame["x1"] == pytest.approx(0.5, abs=0.06)
    assert "rank 2" in figure["layout"]["meta"]["alt"]


def test_the_causes_operator_is_counted_unless_another_is_picked() -> None:
    assert one("operator_frequency", "input")["layout"]["meta"]["subtitle"].startswith("next_batch:")
    picked = one("operator_frequency", "input", operator="optimizer")
    assert picked["layout"]["meta"]["subtitle"].startswith("optimizer:")
    (heat,) = picked["data"]
    assert numbers(heat["z"]).sum() == found_in.RANKS * 3
    # What occurs once a step has one window for all the time, and its cells take all of it
    assert numbers(heat["x"]) == pytest.approx(picked["layout"]["xaxis"]["range"])
    assert "too rarely to be shown over time" in notes(picked)


# ---- collectives ------------------------------------------------------------------------------------


def test_waiting_and_transfer_add_up_for_each_collective() -> None:
    findings = found_in.found("input")
    figure = one("collective_split", "input")
    skew, transfer = figure["data"][:2]
    parts = numbers(skew["y"]) + numbers(transfer["y"])
    whole = [(collective.skew_ns + collective.transfer_ns) / 1e6 for collective in findings.blame.collectives]
    rest = numbers(figure["data"][2]["y"]) if len(figure["data"]) > 2 else 0.0
    assert parts + rest == pytest.approx(whole, rel=1e-5)
    # And what rank 5's late batch costs shows as waiting for it
    worst = int(numbers(skew["y"]).argmax())
    assert "last to arrive: rank" in skew["hovertext"][worst]
    assert skew["marker"]["pattern"]["shape"] == "/"


def test_a_picked_step_is_framed_among_the_collectives() -> None:
    found = found_in.found("input").blame.collectives
    (frame,) = one("collective_split", "input", step=1)["layout"]["shapes"]
    assert frame["x1"] - frame["x0"] == sum(collective.step == 1 for collective in found)


def test_of_many_collectives_the_longest_are_shown() -> None:
    findings = found_in.found("input")
    collective = findings.blame.collectives[0]
    many = tuple(replace(collective, sequence=place, transfer_ns=place) for place in range(500))
    crowded = replace(findings, blame=replace(findings.blame, collectives=many))
    figure = figures.findings_plot("collective_split", crowded, found_in.diagnosis(), ViewState())
    assert len(figure["data"][0]["x"]) == COLLECTIVES_SHOWN
    assert "The 200 longest of 500 collectives are shown." in notes(figure)
    assert "number 499," in figure["data"][0]["hovertext"][-1]
