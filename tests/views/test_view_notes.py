"""Notes on the plots they are pinned to: where their marks stand, and that their words do no harm."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sfapp.model.incidents import Note, Pin, Stamp
from sfapp.model.view import ViewState, WindowKey, Zoom
from sfapp.views import figures
from sfapp.views.plot_registry import PLOTS, WindowInput
from tests.views import simulated_windows as jobs

KEY = WindowKey("job", 1)
HARM = "<img src=x onerror=alert(1)> %{x} $e^x$"


def note(text: str = "It begins here.", **pinned: object) -> Note:
    stamp = Stamp("Ada", datetime(2026, 11, 21, 9, 14, tzinfo=UTC))
    pin = Pin(window=KEY, **pinned)
    return Note(id=text, text=text, pin=pin, written=stamp, changed=None, revision=text)


def drawn(name: str, *notes: Note, step: int | None = None) -> figures.Figure:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    figure = figures.window_plot(name, measures, diagnosis, ViewState(step=step))
    return figures.with_notes(figure, name, notes, step=step)


def shapes(figure: figures.Figure) -> list[dict[str, object]]:
    return [shape for shape in figure["layout"].get("shapes", ()) if shape.get("name") == "note"]


def numbers(figure: figures.Figure) -> list[str]:
    found = figure["layout"].get("annotations", ())
    return [mark["text"] for mark in found if mark.get("name") == "note"]


@pytest.mark.parametrize("name", [spec.name for spec in PLOTS.of(WindowInput)])
def test_a_plot_without_notes_stays_as_it_is(name: str) -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    figure = figures.window_plot(name, measures, diagnosis, ViewState())
    assert figures.with_notes(figure, name, ()) is figure
    elsewhere = note(plot="rules" if name != "rules" else "routing_pareto")
    assert figures.with_notes(figure, name, [elsewhere]) is figure


def test_a_note_on_a_step_is_a_line_in_every_plot_along_the_steps() -> None:
    # Given the second of two notes, pinned to step 420
    first, second = note("whole window"), note(step=420)
    # Then its number stands at that step, in each plot whose x is the step, and only there
    for name in ("step_timeline", "rank_step_heatmap", "node_sparklines"):
        figure = drawn(name, first, second)
        (line,) = shapes(figure)
        assert (line["type"], line["x0"], line["x1"]) == ("line", 420, 420)
        assert numbers(figure) == ["<b>2</b>"]
        assert figure["layout"]["meta"]["alt"].endswith("Note 2 is pinned here.")
    assert numbers(drawn("routing_pareto", first, second)) == []


def test_a_region_is_a_dashed_frame_along_the_axes_it_names() -> None:
    region = (Zoom("rank_step_heatmap", "x", 410, 430), Zoom("rank_step_heatmap", "y", 3.5, 2.5))
    (frame,) = shapes(drawn("rank_step_heatmap", note(plot="rank_step_heatmap", region=region)))
    assert frame["line"]["dash"] == "dash"
    assert [frame[end] for end in ("xref", "x0", "x1", "yref", "y0", "y1")] == ["x", 410, 430, "y", 3.5, 2.5]
    # Where only one axis was zoomed, the frame reaches from edge to edge of the other
    (frame,) = shapes(drawn("rank_step_heatmap", note(plot="rank_step_heatmap", region=region[:1])))
    assert (frame["yref"], frame["y0"], frame["y1"]) == ("paper", 0, 1)


def test_a_note_on_the_plot_of_another_step_waits_for_that_step() -> None:
    pinned = note(plot="frontier_steps", step=420)
    assert numbers(drawn("frontier_steps", pinned)) == []
    assert numbers(drawn("frontier_steps", pinned, step=421)) == []
    assert numbers(drawn("frontier_steps", pinned, step=420)) == ["<b>1</b>"]


def test_marks_at_one_place_stand_side_by_side() -> None:
    figure = drawn("rules", note("one", plot="rules"), note("two", plot="rules"))
    first, second = figure["layout"]["annotations"][-2:]
    assert first["xshift"] != second["xshift"]
    assert figure["layout"]["meta"]["alt"].endswith("Notes 1 and 2 are pinned here.")


def test_thresholds_keep_their_places_and_marks_cannot_be_dragged() -> None:
    region = (Zoom("ambiguity_plane", "x", 0.1, 0.4),)
    plain = drawn("ambiguity_plane")["layout"]["shapes"]
    marked = drawn("ambiguity_plane", note(plot="ambiguity_plane", region=region))["layout"]["shapes"]
    assert marked[: len(plain)] == plain
    assert marked[-1]["layer"] == "below"


def test_the_words_of_a_note_do_no_harm() -> None:
    figure = drawn("rules", note(HARM * 10, plot="rules"))
    hover = figure["layout"]["annotations"][-1]["hovertext"]
    assert "<" not in hover.replace("<br>", "")
    assert "%{" not in hover
    assert "$" not in hover
    assert "Ada" in hover


def test_the_figure_given_is_left_alone() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    figure = figures.window_plot("step_timeline", measures, diagnosis, ViewState())
    before = len(figure["layout"]["shapes"]), len(figure["layout"]["annotations"])
    figures.with_notes(figure, "step_timeline", [note(step=420)])
    assert (len(figure["layout"]["shapes"]), len(figure["layout"]["annotations"])) == before
