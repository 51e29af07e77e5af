"""Static drawings: every figure can be drawn, is well-formed XML, makes no request and runs nothing."""

from __future__ import annotations

import base64
import re
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "views"))

from sfapp.accounting import compare
from sfapp.errors import ReportError
from sfapp.model.view import ViewState, Zoom
from sfapp.report.svg import KINDS, text, to_svg
from sfapp.terminal import without_controls
from sfapp.views import figures, format
from sfapp.views.figures.base import axis, f4, figure, note
from sfapp.views.figures.frontier import frontier_steps
from sfapp.views.figures.history import run_history
from sfapp.views.figures.routing import routing_pareto
from sfapp.views.figures.window_timeline import window_timeline
from sfapp.views.plot_registry import PLOTS, ComparisonInput, FindingsInput, RunInput, WindowInput
from tests.views import simulated_findings as found_in
from tests.views import simulated_windows as jobs
from tests.views.test_view_figures import every_figure
from tests.views.test_view_notes import note as pinned_note
from tests.views.test_view_stragglers import every_figure as every_figure_of

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "title", "desc", "defs", "clipPath", "pattern", "linearGradient", "stop", "g"}
ALLOWED |= {"rect", "path", "circle", "polygon", "text", "tspan", "image"}


def drawn(traces: list[dict[str, Any]], **layout: Any) -> ElementTree.Element:
    """A figure of one's own, drawn and read back."""
    made = figure(traces, dark=False, alt="Words.", title="Title", **layout)
    return ElementTree.fromstring(to_svg(made))


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


def boxes(root: ElementTree.Element) -> list[dict[str, float]]:
    """Position and size of the bars: what is clipped to the plot."""
    return [
        {key: float(rect.get(key, 0)) for key in ("x", "y", "width", "height")}
        for group in root.iter(f"{SVG}g")
        for rect in group.iter(f"{SVG}rect")
    ]


@pytest.mark.parametrize("frontier", ["step", "carry_over"])
@pytest.mark.parametrize("kind", sorted(jobs.ALL))
def test_every_figure_can_be_drawn(kind: str, frontier: Any) -> None:
    measures, diagnosis = jobs.against_healthy(jobs.ALL[kind](), frontier)
    for name, made in every_figure(measures, diagnosis).items():
        check_drawing(name, made)


@pytest.mark.parametrize("kind", found_in.KINDS)
def test_every_figure_of_what_was_found_can_be_drawn(kind: str) -> None:
    for name, made in every_figure_of(found_in.found(kind)).items():
        check_drawing(name, made)


def check_drawing(name: str, made: figures.Figure) -> None:
    """Sound, the same every time, and asking for nothing."""
    svg = to_svg(made)
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= ALLOWED, name
    assert "NaN" not in svg, name
    assert "None" not in re.sub(r"<(text|title|desc).*?</\1>", "", svg), name
    links = [value for element in root.iter() for key, value in element.items() if "href" in key]
    assert all(link.startswith("data:image/png;base64,") for link in links), name
    assert set(re.findall(r"url\(([^)]*)\)", svg)) <= {
        f"#{element.get('id')}" for element in root.iter() if element.get("id")
    }, name
    assert svg == to_svg(made), name


def test_comparisons_can_be_drawn() -> None:
    healthy, sick = (jobs.against_healthy(jobs.ALL[kind]())[1] for kind in ("healthy", "slow_callback"))
    sides = [healthy, replace(healthy, window=3)], [replace(sick, window=1)], replace(healthy, window=2)
    found = compare(*sides)
    for spec in PLOTS.of(ComparisonInput):
        ElementTree.fromstring(to_svg(spec.build(ComparisonInput(found), False)))


def test_every_plot_but_the_live_ones_is_drawn_here() -> None:
    # Comparisons are drawn above; the plots of a running job are not part of any report.
    measures, diagnosis = jobs.look(jobs.healthy())
    drawn_here = {name.split()[0] for name in every_figure(measures, diagnosis)}
    for source in (WindowInput, RunInput):
        assert {spec.name for spec in PLOTS.of(source)} <= drawn_here
    assert set(every_figure_of(found_in.found("input"))) == {spec.name for spec in PLOTS.of(FindingsInput)}


def test_notes_are_marked_on_a_drawing() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    region = (Zoom("ambiguity_plane", "x", 0.5, 0.9), Zoom("ambiguity_plane", "y", 0.05, 0.2))
    pinned = [pinned_note("one", step=420), pinned_note("two", plot="ambiguity_plane", region=region)]
    for name, number in (("step_timeline", "1"), ("ambiguity_plane", "2")):
        plain = figures.window_plot(name, measures, diagnosis, ViewState())
        marked = ElementTree.fromstring(to_svg(figures.with_notes(plain, name, pinned)))
        assert number in texts(marked)
        assert number not in texts(ElementTree.fromstring(to_svg(plain)))


def test_figures_of_many_windows_can_be_drawn() -> None:
    _, diagnosis = jobs.look(jobs.slow_callback())
    for count in (3, 700):
        rows = [jobs.timeline_row(diagnosis) | {"window": place} for place in range(count)]
        for made in (
            window_timeline(rows, selected=(rows[0]["run_id"], 1), brushed=(0, 1)),
            run_history(rows, selected=1, reference=2),
        ):
            ElementTree.fromstring(to_svg(made))


def test_all_the_words_of_a_figure_are_in_its_drawing() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    root = ElementTree.fromstring(to_svg(frontier_steps(measures, diagnosis)))
    shown = " ".join(texts(root))
    for words in ("data", "callbacks", "optimizer", "per-stage max", "0 ms", "+117 ms"):
        assert words in shown
    assert root.findtext(f"{SVG}title") == "Critical-path time by stage"
    assert str(root.findtext(f"{SVG}desc")).startswith("The step-aligned frontier reaches")


def test_names_from_files_stay_text() -> None:
    measures, diagnosis = jobs.look(jobs.hostile())
    for name, made in every_figure(measures, diagnosis).items():
        svg = to_svg(made)
        assert "<script" not in svg, name
        assert "<img" not in svg, name
        assert "&lt;script&gt;" in svg or "script" not in svg, name


def test_names_of_operators_stay_text() -> None:
    drawings = {name: to_svg(made) for name, made in every_figure_of(found_in.found("hostile")).items()}
    assert not [name for name, svg in drawings.items() if "<img" in svg]
    assert "&lt;img" in drawings["operator_timeline"]


def test_a_timeline_shows_its_lanes_ranks_and_causes() -> None:
    made = every_figure_of(found_in.found("input"))["operator_timeline"]
    shown = texts(ElementTree.fromstring(to_svg(made)))
    for words in ("rank 5, suspect", "thread 1", "stream 7", "cause", "next_batch"):
        assert words in shown, words


def test_bars_are_drawn_at_their_values() -> None:
    # Given two stacked traces on an axis from 0 to 4
    root = drawn(
        [{"type": "bar", "x": [0, 1], "y": [1, 2]}, {"type": "bar", "x": [0, 1], "y": f4([1, 2])}],
        barmode="stack",
        height=300,
        yaxis=axis(False, range=[0, 4]),
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
    )
    low, high, on_low, on_high = boxes(root)
    # Then heights are in proportion, and the second stands on the first
    assert high["height"] == pytest.approx(2 * low["height"], abs=0.02)
    assert on_low["y"] + on_low["height"] == pytest.approx(low["y"], abs=0.02)
    assert on_high["y"] == pytest.approx(0, abs=0.02)
    assert low["x"] + low["width"] < high["x"]


def test_grouped_bars_share_the_width() -> None:
    root = drawn(
        [{"type": "bar", "orientation": "h", "y": ["a", "b"], "x": [3, -1]} for _ in range(2)],
        barmode="group",
        yaxis=axis(False, autorange="reversed"),
    )
    first_a, first_b, second_a, second_b = boxes(root)
    assert first_a["y"] + first_a["height"] == pytest.approx(second_a["y"], abs=0.02)
    assert first_a["y"] < first_b["y"]
    assert second_b["x"] < second_a["x"]


def test_bars_of_several_traces_keep_their_width_where_none_stands_in_the_way() -> None:
    alone = boxes(drawn([{"type": "bar", "x": [0, 1, 2], "y": [1, 2, 3]}]))
    apart = boxes(drawn([{"type": "bar", "x": [place], "y": [place + 1]} for place in range(3)]))
    assert apart == alone
    # And the gap beside the outermost is half of the gap between two
    assert alone[0]["x"] - 26 < alone[1]["x"] - alone[0]["x"] - alone[0]["width"]


def test_a_gap_parts_a_line_and_an_area() -> None:
    line = {"type": "scatter", "mode": "lines", "x": [0, 1, None, 3, 4], "y": [0, 1, None, 1, 0]}
    root = drawn([line | {"fill": "toself", "fillcolor": "#112233"}])
    area, stroke = (path.get("d", "") for group in root.iter(f"{SVG}g") for path in group)
    assert stroke.count("M") == 2
    assert (area.count("M"), area.count("Z")) == (2, 2)


def test_cells_reach_from_border_to_border_where_borders_are_given() -> None:
    heat = {"type": "heatmap", "z": [[1.0], [2.0]], "x": [0, 10], "y": ["a", "b"], "showscale": False}
    scale = [[0.0, "#000000"], [1.0, "#FFFFFF"]]
    root = drawn([heat | {"colorscale": scale}], xaxis=axis(False, range=[0, 20]))
    one, two = boxes(root)
    assert one["width"] == two["width"]
    plot = max(
        float(rect.get("width", 0))
        for clip in root.iter(f"{SVG}clipPath")
        for rect in clip.iter(f"{SVG}rect")
    )
    assert one["width"] == pytest.approx((plot - 2) / 2, abs=0.1)


def test_a_frame_is_a_frame_in_the_key_as_well() -> None:
    bar = {"type": "bar", "x": [0], "y": [1], "name": "framed"}
    bar["marker"] = {"color": "rgba(0,0,0,0)", "line": {"color": "#123456", "width": 2.5}}
    root = drawn([bar], showlegend=True, legend={"orientation": "h"})
    keys = [rect for rect in root.iter(f"{SVG}rect") if rect.get("width") == "11"]
    assert [key.get("stroke") for key in keys] == ["#123456"]


def test_a_large_table_is_a_small_picture() -> None:
    # Given 64 ranks over 100 steps
    table = np.arange(6400, dtype=np.float64).reshape(64, 100)
    table[0, 0] = np.nan
    scale = [[0.0, "#000000"], [1.0, "#FFFFFF"]]
    made = figure(
        [{"type": "heatmap", "z": f4(table), "colorscale": scale, "showscale": False}],
        dark=False,
        alt="A table.",
        title="Table",
    )
    svg = to_svg(made)
    # Then it is one picture, with the dark end at the first cells and the light one at the last
    assert len(svg) < 12_000
    (picture,) = re.findall(r"data:image/png;base64,([^\"]+)", svg)
    png = base64.b64decode(picture)
    assert png.startswith(b"\x89PNG")
    start = png.index(b"IDAT") + 4
    length = int.from_bytes(png[start - 8 : start - 4], "big")
    rows = zlib.decompress(png[start : start + length])
    # Rows run downwards, so that the last row of the table comes first; its shade is the lightest
    assert rows[0] == 0
    assert rows[400] == 254
    assert rows[-1] == 0


def test_a_range_is_left_by_lines_but_not_by_notes() -> None:
    root = drawn(
        [{"type": "scatter", "x": [0, 1], "y": [0, 1]}],
        yaxis=axis(False, range=[0, 0.5]),
        annotations=[note("inside", 0.5, 0.25, False), note("outside", 0.5, 0.75, False)],
    )
    assert "inside" in texts(root)
    assert "outside" not in texts(root)


@pytest.mark.parametrize("x", [[0, 5, 2**61, 2**62], [2**62 - 1, 2**62], [2**62]])
@pytest.mark.parametrize("settings", [{}, {"dtick": 1}, {"range": [2**62 - 1, 2**62]}])
def test_an_axis_of_any_step_numbers_has_few_ticks(x: list[int], settings: dict[str, Any]) -> None:
    trace = {"type": "scatter", "x": x, "y": [0.25] * len(x)}
    root = drawn([trace], xaxis=axis(False, tickformat="d", **settings))
    assert 1 <= len([text for text in texts(root) if len(text) > 15 or text == "0"]) < 50


def test_thresholds_show_their_values_and_no_hint_to_drag_them() -> None:
    _, diagnosis = jobs.look(jobs.slow_callback())
    shown = texts(ElementTree.fromstring(to_svg(routing_pareto(diagnosis))))
    assert "τC 0.80" in shown


LINE = {"type": "scatter", "x": [0, 1], "y": [0, 1]}


@pytest.mark.parametrize(
    ("trace", "layout", "named"),
    [
        ({"type": "sankey"}, {}, "trace type 'sankey'"),
        (LINE | {"line": {"shape": "spline"}}, {}, "line shape 'spline'"),
        (LINE | {"line": {"dash": "5px"}}, {}, "line dash '5px'"),
        (LINE | {"fill": "tonexty"}, {}, "fill 'tonexty'"),
        (LINE | {"mode": "markers", "marker": {"symbol": "star"}}, {}, "marker 'star'"),
        (LINE, {"xaxis": {"type": "log"}}, "axis type 'log'"),
        (LINE, {"xaxis": {"tickformat": ",.3s"}}, "number format ',.3s'"),
        (LINE, {"shapes": [{"type": "path", "x0": 0, "x1": 1, "y0": 0, "y1": 1}]}, "shape 'path'"),
        ({"type": "bar", "x": [0], "y": [1], "marker": {"pattern": {"shape": "x"}}}, {}, "pattern 'x'"),
        ({"type": "bar", "x": [0], "y": [1]}, {"barmode": "relative"}, "bar mode 'relative'"),
    ],
)
def test_what_cannot_be_drawn_is_named(trace: dict[str, Any], layout: dict[str, Any], named: str) -> None:
    with pytest.raises(ReportError, match=re.escape(named)):
        drawn([trace], **layout)


def test_traces_that_can_be_drawn_are_listed() -> None:
    assert set(KINDS) == {"heatmap", "bar", "scatter"}


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_any_text_makes_sound_xml_and_is_shown_as_it_is(text: str) -> None:
    root = drawn([LINE], annotations=[note(f"‹{figures.plain(text)}›", 0.5, 0.5, False)])
    (shown,) = (words for words in texts(root) if words.startswith("‹"))
    line = without_controls(format.clip(text, 48))
    printable = re.sub("[^\t -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", line)
    assert shown == f"‹{printable}›"


def test_tags_and_entities_are_what_plotly_makes_of_them() -> None:
    bold, second = text.lines_of("<b>a &lt;b&gt;</b><br>C<sub>A</sub>")
    assert [(run.text, run.bold) for run in bold] == [("a <b>", True)]
    assert [(run.text, run.lowered) for run in second] == [("C", False), ("A", True)]
