"""Packets in a notebook: frames, verdicts, figures, the panel, and the tutorial as it stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest
from IPython.display import HTML
from nbclient import NotebookClient

import sfapp
from sfapp.accounting import Measures, measure
from sfapp.errors import StoreError, WindowNotFoundError
from sfapp.model import Baseline, Window
from sfapp.notebook import Packets, RowsThinned, card
from sfapp.notebook.explore import Explorer
from sfapp.operators import operators_of
from sfapp.packets import write_operators
from sfapp.packets.paths import operators_path
from sfapp.service import verdicts
from sfapp.store import WindowQuery
from sfapp.views import text as words
from sfapp.views.plot_registry import PLOTS
from sfapp.views.text.compare import CAVEAT_WORDS
from tests.app.recorded_job import job_window, put
from tests.builders import CALLBACKS, MS
from tests.commands import run_sfapp
from tests.hostile_text import HOSTILE_TEXT, with_hostile_names
from tests.store.jobs import window as recorded_window

ROOT = Path(__file__).parent.parent.parent
SAMPLE = ROOT / "sample_data" / "packets"
RUN, SICK = "gpt-small-ddp", 10


@pytest.fixture(scope="module")
def packets() -> Iterator[Packets]:
    with sfapp.open(SAMPLE) as found:
        yield found


def test_opening_a_folder_lists_its_content(packets: Packets) -> None:
    assert repr(packets) == "sfapp packets: 21 windows of 3 runs, 11 need attention, 1 file rejected"
    assert packets.windows.shape[0] == 21
    assert packets.runs["run_id"].to_list()[0] == "moe-two-roles"
    assert "Parquet" in packets.quarantined["reason"][0]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file or folder"):
        sfapp.open(tmp_path / "nowhere")


def test_the_paper_s_examples_come_with_the_package() -> None:
    with sfapp.examples() as found:
        window = found.window("paper-displaced-wait", 0)
    assert window.diagnosis.exposed_makespan_ns == 8_200_000_000
    assert repr(window).startswith("paper-displaced-wait/0: data on rank 0")


def test_a_window_has_the_verdict_that_the_store_has(packets: Packets) -> None:
    # What the store keeps of a healthy window leaves out the medians that only a baseline needs
    judged, stored = packets.window(RUN, SICK).diagnosis, packets.store.diagnosis(RUN, SICK)
    assert replace(judged, reference=None) == replace(stored, reference=None)


def test_comparing_runs_measures_each_window_and_the_reference_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[int, str]] = []

    def counting(window: Window, baseline: Baseline = "cohort_median", *rest: Any) -> Measures:
        measured.append((window.number, baseline))
        return measure(window, baseline, *rest)

    monkeypatch.setattr(verdicts, "measure", counting)
    with sfapp.open(SAMPLE) as opened:
        windows = len(opened.store.timeline(WindowQuery(RUN)))
        opened.compare(RUN, RUN, baseline="rank_median")
    assert len(measured) == windows + 1
    assert len(set(measured)) == len(measured)


def test_a_window_has_its_verdict_as_text(packets: Packets) -> None:
    assert repr(packets.window(RUN, SICK)).startswith(
        "gpt-small-ddp/10: callbacks on rank 3 (node-0, local 3), every step\n  Routing set:"
    )


def test_a_group_and_a_reference_can_be_asked_for(packets: Packets) -> None:
    node = packets.window(RUN, SICK, group="node:1", baseline="reference", reference=(RUN, 5))
    assert node.diagnosis.ranks == 4
    assert node.reference is not None
    assert (node.reference.window, node.reference.group) == (5, "node:1")


def test_what_is_not_there_is_named(packets: Packets) -> None:
    with pytest.raises(WindowNotFoundError, match="has no window 99"):
        packets.window(RUN, 99)
    with pytest.raises(WindowNotFoundError, match="there are: all"):
        packets.window(RUN, SICK, group="role:absent")


@pytest.mark.parametrize("name", PLOTS.notebook_methods)
def test_every_figure_is_a_plotly_figure_with_its_title(packets: Packets, name: str) -> None:
    figure = getattr(packets.window(RUN, SICK).figures, name)()
    assert isinstance(figure, go.Figure)
    assert figure.layout.title.text
    assert figure.data


def test_findings_of_operators_are_a_method_of_the_window(packets: Packets) -> None:
    # The sample job was not profiled: its stages stand in
    window = packets.window(RUN, SICK)
    found = window.stragglers
    assert found.source == "stages"
    assert found.blame.causes[0].rank == 3
    assert window.plot("straggler_scores").layout.title.text.startswith("Abnormality score per rank")
    assert packets.window(RUN, SICK, group="node:1").stragglers.similarity.ranks == (4, 5, 6, 7)


@pytest.mark.parametrize(
    ("name", "selected", "message"),
    [
        ("nope", {}, "no plot of a window is called 'nope'; there are "),
        ("comparison_waterfall", {}, "no plot of a window is called 'comparison_waterfall'"),
        ("rank_step_heatmap", {"stage": "nope"}, "This window has no stage 'nope'"),
        ("swim_lane", {"step": 10**6}, "This window has no step 1000000"),
        ("swim_lane", {"ranks": (99,)}, "This window has no rank 99"),
    ],
)
def test_a_plot_of_what_a_window_lacks_is_refused(
    packets: Packets, name: str, selected: dict[str, Any], message: str
) -> None:
    with pytest.raises(WindowNotFoundError, match=message):
        packets.window(RUN, SICK).plot(name, **selected)


def test_findings_of_ranks_that_were_not_profiled_are_of_their_stages(tmp_path: Path) -> None:
    window = job_window(2, {(CALLBACKS, 6): 60 * MS})
    put(tmp_path, window)
    events = operators_of(window)
    write_operators(
        events.select(events.rank_E < 4), window.run_id, 2, operators_path(tmp_path, window.run_id, 2)
    )
    with sfapp.open(tmp_path) as opened:
        profiled = opened.window(window.run_id, 2, group="node:0").stragglers
        other = opened.window(window.run_id, 2, group="node:1").stragglers
    assert profiled.source == "operators"
    assert other.source == "stages"
    assert other.blame.causes[0].rank == 6


def test_a_thinned_window_shows_what_is_missing(tmp_path: Path) -> None:
    # Given a run of old windows
    for number in range(10):
        at = f"2026-01-01T00:0{number}:00Z"
        put(tmp_path, recorded_window("old", number, started_at=at, ended_at=at))
    sides = ("old", 0), ("old", 5)
    with sfapp.open(tmp_path) as opened:
        before = opened.compare(*sides).comparison.document(), opened.compare("old", "old").stages
    # When they are thinned
    assert run_sfapp("compact", tmp_path, "--older-than", 30, "--steps", 4).returncode == 0
    # Then a window is judged by the steps that were kept, and says so, with the verdict on all of them
    with sfapp.open(tmp_path) as opened:
        with pytest.warns(RowsThinned, match=r"window 0 of 'old': .*4 of 12 steps are kept"):
            window = opened.window("old", 0)
        assert window.diagnosis.steps == 4
        assert repr(window).splitlines()[-1].strip() == window.missing_rows
        assert "The verdict on all steps: Healthy" in Explorer(window).panel.children[0].value
        # And comparisons are of the verdicts on all steps, or say that they are not
        after = opened.compare(*sides)
        assert after.comparison.document() == before[0]
        assert opened.compare("old", "old").stages.equals(before[1])
        of_node = opened.compare(*sides, group="node:0")
        assert of_node.comparison.caveats[-1] == "thinned_rows"
        assert repr(of_node).splitlines()[-1] == CAVEAT_WORDS["thinned_rows"]


def test_moving_a_slider_judges_again_and_redraws(packets: Packets) -> None:
    # Given the panel of a window that is co-critical on the paper's frontier
    explorer = Explorer(packets.window(RUN, SICK, frontier="step"))
    assert "co_critical" in explorer.diagnosis.label_names
    drawn = explorer.plots["ambiguity"].to_plotly_json()
    # When dominance is asked of more than any stage has
    explorer.controls["gamma_a"].value = 0.99
    # Then no stage is named, and the plot has moved its line
    assert "co_critical" not in explorer.diagnosis.label_names
    assert explorer.plots["ambiguity"].to_plotly_json() != drawn
    # And reset takes it back
    explorer.reset()
    assert "co_critical" in explorer.diagnosis.label_names
    assert explorer.plots["ambiguity"].to_plotly_json() == drawn


def test_the_other_controls_of_the_panel_are_followed(packets: Packets) -> None:
    explorer = Explorer(packets.window(RUN, SICK))
    explorer.controls["frontier"].value = "step"
    explorer.controls["baseline"].value = "rank_median"
    assert (explorer.diagnosis.frontier, explorer.diagnosis.baseline) == ("step", "rank_median")
    explorer.controls["step"].value = int(explorer.controls["step"].options[3][1])
    assert "step" in explorer.plots["frontier"].layout.title.text


def test_text_from_files_stays_text_in_the_card(packets: Packets) -> None:
    verdict = words.verdict(packets.window(RUN, SICK).diagnosis)
    hostile = replace(verdict, headline="<script>alert(1)</script> $x$")
    assert "<script>" not in card.markup(hostile)
    assert "$" not in card.markup(hostile)


def test_no_text_from_files_is_typeset_as_mathematics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # JupyterLab typesets shown HTML, and mathematics can hide words and make links
    displayed: list[Any] = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    for number in range(2):
        put(tmp_path, with_hostile_names(job_window(number, {(CALLBACKS, 3): 60 * MS})))
    with sfapp.open(tmp_path) as packets:
        window = packets.window(HOSTILE_TEXT, 0)
        window._ipython_display_()
        packets.compare((HOSTILE_TEXT, 0), (HOSTILE_TEXT, 1))._ipython_display_()
        shown = [each.data for each in displayed if isinstance(each, HTML)]
        shown += [packets._repr_html_(), Explorer(window).panel.children[0].value]
    assert len(shown) == 4
    for markup in shown:
        begin, _, rest = markup.partition(" ")
        assert rest.startswith(card.NOT_TYPESET)
        assert markup.endswith(f"</{begin[1:]}>")


def test_the_tutorial_runs_as_it_stands() -> None:
    notebook = nbformat.read(ROOT / "docs" / "tutorial.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT / "docs")}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    text = str(shown)
    assert "callbacks on rank 3" in text
    assert "application/vnd.plotly.v1+json" in text
    assert "application/vnd.jupyter.widget-view+json" in text


def test_text_from_files_steers_no_terminal(tmp_path: Path) -> None:
    for number in range(2):
        put(tmp_path, with_hostile_names(job_window(number, {(CALLBACKS, 3): 60 * MS})))
    with sfapp.open(tmp_path) as packets:
        window = packets.window(HOSTILE_TEXT, 0)
        comparison = packets.compare((HOSTILE_TEXT, 0), (HOSTILE_TEXT, 1))
        for shown in (repr(packets), repr(window), repr(comparison), repr(window.diagnosis)):
            assert [line for line in shown.split("\n") if not line.isprintable()] == []


def test_closed_packets_are_shown_as_closed() -> None:
    with sfapp.open(SAMPLE) as packets:
        pass
    assert repr(packets) == "sfapp packets: the store has been closed"
    assert packets._repr_html_() == (
        f"<span {card.NOT_TYPESET}><b>sfapp packets</b> · the store has been closed</span>"
    )
