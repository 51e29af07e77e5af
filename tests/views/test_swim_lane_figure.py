"""What the swim-lane shows of a window, in blocks, labels, arrows and words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import read_windows
from sfapp.report.svg import to_svg
from sfapp.service.packet_evidence import PacketEvidence
from sfapp.views import format
from sfapp.views.figures import Figure
from sfapp.views.figures.swim_lane import swim_lane
from sfapp.views.plot_registry import PLOTS
from sfapp.views.text import verdict
from tests.builders import window_of
from tests.views import simulated_windows as jobs

SAMPLE = Path(__file__).parent.parent.parent / "sample_data" / "packets" / "gpt-small-ddp"


def drawn(kind: str, step: int | None = None, **options: Any) -> Figure:
    return swim_lane(*jobs.against_healthy(jobs.ALL[kind](), "carry_over"), step, **options)


def bars(figure: Figure, row: int) -> Iterator[tuple[float, float, str]]:
    """Start, end and hover text of the blocks in a row."""
    for trace in figure["data"]:
        if trace["type"] == "bar":
            for place, start, length, text in zip(
                trace["y"], trace["base"], trace["x"], trace["hovertext"], strict=True
            ):
                if place == row:
                    yield start, start + length, text


def rows(figure: Figure) -> list[str]:
    return [text.replace("<br>", ", ") for text in figure["layout"]["yaxis"]["ticktext"]]


def test_it_is_the_first_plot_of_the_overview_and_of_a_report() -> None:
    assert PLOTS.on_tab("overview")[0][0].name == "swim_lane"
    assert PLOTS["swim_lane"].report == min(
        spec.report for spec in PLOTS if spec.report is not None and spec.source is PLOTS["swim_lane"].source
    )


def test_blocks_of_a_row_stand_end_to_end_without_overlap() -> None:
    figure = drawn("slow_callback")
    for row in range(len(rows(figure))):
        blocks = sorted(bars(figure, row))
        assert len(blocks) > 5
        for (_, end, _), (start, _, _) in itertools.pairwise(blocks):
            assert start == pytest.approx(end, abs=2e-3)


def test_the_late_rank_comes_first_and_arrows_lead_to_those_that_wait() -> None:
    figure = drawn("slow_callback")
    assert rows(figure) == ["<b>▶ rank 3</b>", "rank 1, typical", "6 other ranks", "healthy"]
    arrows = [note for note in figure["layout"]["annotations"] if note["showarrow"]]
    assert [(round(note["ay"]), round(note["y"])) for note in arrows] == [(0, 1), (0, 2)]
    assert "callbacks 61." in " ".join(text for *_, text in bars(figure, 0))


def test_the_sentence_names_the_wait_the_rank_and_the_stage_that_it_loses_time_in() -> None:
    meta = drawn("slow_callback")["layout"]["meta"]
    assert meta["subtitle"].startswith(
        "The 7 other ranks wait 58.6 ms in backward for rank 3, which takes 60.0 ms longer in callbacks; "
    )
    assert "no clocks are compared" in meta["subtitle"]
    assert "rank 3: callbacks 61." in meta["alt"]
    assert "6 other ranks, mean: backward" in meta["alt"]


@pytest.mark.parametrize(("step", "words"), [(None, "inferred from the last"), (419, "measured")])
def test_a_hover_text_shows_whether_waiting_was_measured(step: int | None, words: str) -> None:
    # In one step of this window the wait of a rank was not measured.
    waits = [text for *_, text in bars(drawn("slow_inside_backward", step), 1) if "waits" in text]
    assert waits
    assert all(words in text for text in waits)
    assert all("for rank 2" in text for text in waits)


def test_a_wait_for_different_ranks_names_none() -> None:
    figure = drawn("rotating_data_tail")
    assert figure["layout"]["meta"]["subtitle"].startswith(
        "Ranks wait 60.0 ms in backward on average, for different ranks; "
    )
    assert not [note for note in figure["layout"]["annotations"] if note["showarrow"]]


def test_card_and_lane_agree_where_ranks_wait_inside_the_suspect_stage() -> None:
    # Given window 9 of the sample job, right after the 600 ms callback of window 8
    key = WindowKey("gpt-small-ddp", 9)
    found = PacketEvidence(list(read_windows([SAMPLE]).windows))(key, ViewState())
    card = verdict(found.diagnosis, found.window.ranks)
    figure = swim_lane(found.measures(), found.diagnosis, None)
    # Then both say that ranks wait inside callbacks, and the lane does not call all of its time own time
    assert "they wait for each other inside callbacks" in " ".join(card.explanation)
    meta = figure["layout"]["meta"]
    assert meta["subtitle"].startswith(
        "Ranks wait for each other inside callbacks, and durations do not show for which; mean of steps "
        "361–399; solid: own time, in callbacks with the waiting, hatched: waiting"
    )
    assert "Step 360 is left out: in it, ranks wait for a delay before the window." in meta["notes"]
    # And every row begins where the ranks synchronised, and backward holds no wait for window 8
    for row in range(len(rows(figure))):
        blocks = sorted(bars(figure, row))
        assert blocks[0][0] == pytest.approx(0, abs=2)
        backward = [end - start for start, end, text in blocks if "backward" in text]
        assert sum(backward) == pytest.approx(50, abs=3)
    # And where that step is shown alone, a note says what its blocks may include
    (alone, next_alone) = (swim_lane(found.measures(), found.diagnosis, step) for step in (360, 361))
    assert "Solid blocks may include that waiting." in " ".join(alone["layout"]["meta"]["notes"])
    assert not next_alone["layout"]["meta"]["notes"]


def test_an_unknown_wait_is_reported() -> None:
    meta = drawn("gaps")["layout"]["meta"]
    assert meta["subtitle"].startswith("It is not known where ranks wait for each other; ")
    assert "every rank from the start of its step" in meta["subtitle"]


def test_the_healthy_row_has_an_entry_in_the_legend_that_hides_it() -> None:
    grouped = [trace for trace in drawn("slow_callback")["data"] if trace.get("legendgroup") == "healthy"]
    assert [(trace["type"], trace.get("showlegend", True)) for trace in grouped] == [
        ("bar", False), ("scatter", True)
    ]  # fmt: skip


def test_a_still_holds_the_rows_and_leaves_out_texts_that_do_not_fit() -> None:
    figure = drawn("slow_callback")
    root = ElementTree.fromstring(to_svg(figure))
    texts = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for words in (
        "▶ rank 3",
        "6 other ranks",
        "healthy",
        "waiting",
        "callbacks 61.2 ms",
        "ranks synchronise",
    ):
        assert words in texts
    sizes = [float(element.get("font-size", 12)) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert min(sizes) >= 12


def test_short_names_of_stages_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A packet may have 4,096 stages: made for each of their traces, names took 50 s."""
    short_stages, made = format.short_stages, list[Sequence[str]]()

    def counted(stages: Sequence[str]) -> dict[str, str]:
        made.append(stages)
        return short_stages(stages)

    monkeypatch.setattr(format, "short_stages", counted)
    stages = [f"part{number:02}" for number in range(40)]
    measures, diagnosis = jobs.look(window_of(np.full((40, 1, 1), 1_000_000), stages=stages))

    figure = swim_lane(measures, diagnosis)

    assert sum(trace["type"] == "bar" for trace in figure["data"]) == 40
    assert len(made) <= 2


@pytest.mark.parametrize("kind", ["reduced_callback", "reduced_wide_nodes", "healthy", "gaps"])
def test_a_mean_that_is_not_the_step_time_has_another_name(kind: str) -> None:
    measures, diagnosis = jobs.against_healthy(jobs.ALL[kind](), "carry_over")
    alt = swim_lane(measures, diagnosis)["layout"]["meta"]["alt"]
    step = f"In the mean step of the window, {format.duration(diagnosis.step_time.mean_ns)} long"
    aligned = format.duration(measures.makespan / measures.steps)
    assert (step in alt) != (f"In the mean step-aligned step of the window, {aligned} long" in alt)
    assert (step in alt) == (not kind.startswith("reduced"))
