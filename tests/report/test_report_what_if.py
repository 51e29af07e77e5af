"""A report from a view with a chosen what-if says what the fix would bring."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pypdf
import pytest

from sfapp.incidents import IncidentEditor, IncidentLog
from sfapp.model.view import WindowKey
from tests.report.report_cases import SAMPLE
from tests.report.test_report_formats import run

SENTENCE = "Make host node-0 typical in data: 167.1 ms → 88.7–167.1 ms per step."
NOTE = "No replay: the packet holds no waits within stages."


def text_of(file: Path) -> str:
    """The report as text on one line."""
    if file.suffix == ".pdf":
        text = " ".join(page.extract_text() for page in pypdf.PdfReader(file).pages)
    elif file.suffix == ".ipynb":
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        text = " ".join("".join(cell["source"]) for cell in cells)
    else:
        text = file.read_text(encoding="utf-8")
    return " ".join(text.replace("\\", "").split())


@pytest.mark.parametrize("ending", ["html", "pdf", "md", "ipynb", "json"])
def test_the_chosen_fix_is_in_every_format(ending: str, tmp_path: Path) -> None:
    output = f"r.{ending}"
    chosen = ("--window", "gpt-small-ddp/3", "--what-if", "data.next_wait@node:0")
    assert run("report", SAMPLE / "gpt-small-ddp", *chosen, "-o", output, cwd=tmp_path).exit_code == 0
    text = text_of(tmp_path / output)
    assert SENTENCE in text
    assert NOTE in text


def test_the_printed_command_repeats_the_choice(tmp_path: Path) -> None:
    chosen = ("--window", "gpt-small-ddp/3", "--what-if", "@3")
    run("report", SAMPLE / "gpt-small-ddp", *chosen, "-o", "r.json", cwd=tmp_path)
    first = (tmp_path / "r.json").read_bytes()
    command = shlex.split(json.loads(first)["report"]["command"])
    assert command[command.index("--what-if") + 1] == "@3"
    assert run(*command[1:], cwd=tmp_path).exit_code == 0
    assert (tmp_path / "r.json").read_bytes() == first


def test_an_incident_keeps_the_choice_of_its_view(tmp_path: Path) -> None:
    packets = tmp_path / "packets"
    shutil.copytree(SAMPLE / "gpt-small-ddp", packets)
    log = IncidentLog.for_packets(packets)
    ada = IncidentEditor(log, "Ada")
    incident_id = ada.open_incident("Slow loader")
    key = WindowKey("gpt-small-ddp", 3)
    ada.add_window(log.state().incident(incident_id), key, "fix=data.next_wait@node:0")
    run("report", incident_id, packets, "-o", "r.json", cwd=tmp_path)
    (window,) = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["report"]["windows"]
    assert window["what_if"].startswith(SENTENCE)
    assert re.search(r"fix=data\.next_wait@node:0", window["view"])


def test_a_report_without_a_choice_does_not_mention_it(tmp_path: Path) -> None:
    run("report", SAMPLE / "gpt-small-ddp", "--window", "gpt-small-ddp/3", "-o", "r.json", cwd=tmp_path)
    (window,) = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["report"]["windows"]
    assert window["what_if"] == ""


def test_a_fix_that_the_window_does_not_have_is_reported(tmp_path: Path) -> None:
    chosen = ("--window", "gpt-small-ddp/3", "--what-if", "nothing@3")
    run("report", SAMPLE / "gpt-small-ddp", *chosen, "-o", "r.json", cwd=tmp_path)
    (window,) = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["report"]["windows"]
    assert window["what_if"].startswith("No prediction for nothing@3: no stage 'nothing'")
