"""The notebook is valid, harmless and without outputs; run by a real kernel it shows the report's text."""

from __future__ import annotations

import ast
import html
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from nbclient import NotebookClient

import sfapp
from sfapp.errors import WindowNotFoundError
from sfapp.incidents import draft_incident, state_from_events
from sfapp.model import Gates
from sfapp.model.view import ViewState, WindowKey, Zoom
from sfapp.notebook import PacketsDiffer
from sfapp.packets import read_windows
from sfapp.report import CollectedPlot, Remark, Report, Section, document
from sfapp.report.notebook import to_notebook
from sfapp.service.packet_evidence import PacketEvidence
from tests.report.report_cases import HARM, ROOT, SAMPLE, WHEN, harmful, sick_window


def read(report: Report) -> nbformat.NotebookNode:
    """The notebook, found valid."""
    found = nbformat.reads(to_notebook(report), as_version=4)
    nbformat.validate(found)
    return found


def code(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def looked_at(view: ViewState, redacted: str = "") -> Report:
    """The sick window under a view; its run under another name where redacted."""
    evidence = PacketEvidence(list(read_windows([SAMPLE]).windows))
    key = WindowKey("gpt-small-ddp", 10)
    book, incident = draft_incident("Looked at", [(key, view)], WHEN, state_from_events(()))
    made = document(book.incident(incident), evidence, command="sfapp report", version="1")
    if not redacted:
        return made
    (section,) = made.of(Section)
    reference = section.diagnosis.reference
    assert reference is not None
    diagnosis = replace(section.diagnosis, reference=replace(reference, run_id=redacted))
    return replace(made, parts=(replace(section, run_id=redacted, diagnosis=diagnosis),))


def executed(report: Report, packets: Path) -> str:
    """All outputs of the notebook, run by a real kernel."""
    notebook = read(report)
    opening = code(notebook)[0]
    at = next(cell for cell in notebook.cells if cell.source == opening)
    at.source = opening.replace('PACKETS = "packets"', f"PACKETS = {json.dumps(str(packets))}")
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT / "docs")}}).execute()
    return str([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])


def test_run_by_a_kernel_it_shows_the_reports_text() -> None:
    view = ViewState(gates=Gates(gamma_a=0.9), frontier="step", step=401, ranks=(3,))
    view = replace(view, zoom=(Zoom("step_timeline", "x", 400, 410),), group="node:0", baseline="rank_median")
    report = looked_at(view, redacted="run-1")
    (section,) = report.of(Section)
    outputs = executed(report, SAMPLE)
    verdict = section.verdict
    for words in (verdict.headline, verdict.explanation[0], verdict.why[0], verdict.numbers[0].value):
        assert words in outputs.replace("\\'", "'"), words
    assert outputs.count("'application/vnd.plotly.v1+json'") == 8  # seven plots, and the window's own
    assert "'range': [400.0, 410.0]" in outputs
    assert "step 401" in outputs
    assert "PacketsDiffer" not in outputs


def test_it_holds_no_outputs_and_names_the_packets() -> None:
    notebook = read(sick_window())
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    (section,) = sick_window().of(Section)
    text = to_notebook(sick_window())
    assert section.packets[0].sha256 in text
    assert 'PACKETS = \\"packets\\"' in text
    assert "It begins here" in text
    assert text == to_notebook(sick_window())


def test_one_plot_is_opened_as_it_was_looked_at() -> None:
    view = ViewState(tab="node:1", stage="data.next_wait", quantity="slack", step=401)
    (section,) = looked_at(view).of(Section)
    shown = CollectedPlot(section.run_id, section.window, view, "", section.plots[-1])
    cells = code(read(Report("t", "", (), (section, shown), "c", "1")))
    asked = "step=401, stage='data.next_wait', quantity='slack', tab='node:1')"
    assert cells[-2] == f"window_1.plot('rank_step_heatmap', {asked}"


def test_nobodys_words_get_into_the_code() -> None:
    notebook = read(harmful())
    for source in code(notebook):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "alert" in node.value:
                assert node.value == HARM
            if isinstance(node, ast.Name):
                assert node.id in {"sfapp", "PACKETS", "packets", "runs", "number", "window_1", "command"}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            assert "<script" not in cell.source
            assert "](javascript" not in cell.source.replace("\\]", "")


@pytest.mark.parametrize(
    "text", [r"$\href{//a.de}{b}$", r"$$c$$", r"\(d\) \[e\]", r"\begin{align}f\end{align}"]
)
def test_no_text_is_typeset_as_mathematics(text: str) -> None:
    report = replace(sick_window(), title=text, facts=(("name", text),), summary=text)
    source = read(report).cells[0].source
    page = MarkdownIt("commonmark").enable("table").render(source)
    # Notebooks look for mathematics in each text of the page, and JupyterLab also in the source
    texts = [html.unescape(each) for each in re.split(r"<[^>]+>", page)]
    assert text in "".join(texts)
    assert not [each for each in texts if re.search(r"[$\\].", each)]
    assert not re.search(r"\\\\[(\[]|(?<!\\)[$]|\\begin", source)


@given(st.text(max_size=60))
def test_any_text_stays_a_literal(text: str) -> None:
    notebook = read(
        Report(text, text, ((text, text),), (Remark(None, text, text, text, (text,)),), text, "1")
    )
    tree = ast.parse(code(notebook)[-1])
    assigned = tree.body[0]
    assert isinstance(assigned, ast.Assign)
    assert ast.literal_eval(assigned.value) == text


def test_packets_are_known_by_their_content_whatever_their_run_is_called(tmp_path: Path) -> None:
    (section,) = sick_window().of(Section)
    hashes = [packet.sha256 for packet in section.packets]
    with sfapp.open(SAMPLE) as packets:
        assert packets.find(hashes, "gpt-small-ddp", 10) == ("gpt-small-ddp", 10)
        assert packets.find(hashes, "run-1", 10) == ("gpt-small-ddp", 10)
        with pytest.warns(PacketsDiffer, match="differ from those of the report"):
            assert packets.find(["ab" * 32], "gpt-small-ddp", 10) == ("gpt-small-ddp", 10)
        with pytest.raises(WindowNotFoundError):
            packets.find(["ab" * 32], "run-1", 10)


def test_changed_packets_are_reported_in_the_notebook(tmp_path: Path) -> None:
    # Given a folder where another window took the place of the one that was reported on
    run = tmp_path / "gpt-small-ddp"
    shutil.copytree(SAMPLE, tmp_path, dirs_exist_ok=True)
    (section,) = sick_window().of(Section)
    report = sick_window()
    other = replace(section.packets[0], sha256="ab" * 32)
    changed = replace(report, parts=(replace(section, packets=(other,), plots=()),))
    assert run.is_dir()
    outputs = executed(changed, tmp_path)
    assert "PacketsDiffer" in outputs
    assert "callbacks on rank 3" in outputs
