"""An incident handed over: what was collected, in order, as it was shown; and read back whole."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pypdf import PdfReader

from sfapp.incidents import IncidentEditor, IncidentLog, parse
from sfapp.model.incidents import Pin
from sfapp.model.view import WindowKey
from sfapp.report import Missing, Remark, document
from tests.commands import run_sfapp as run
from tests.report.report_cases import GivenEvidence
from tests.report.test_report import HOSTILE, SAMPLE, unpacked

FAULT = WindowKey("gpt-small-ddp", 13)


@pytest.fixture
def packets(tmp_path: Path) -> Path:
    """The sample's A/B/A and what comes with it, in a folder of its own."""
    shutil.copytree(SAMPLE / "gpt-small-ddp", tmp_path / "packets" / "gpt-small-ddp")
    return tmp_path / "packets"


def write_incident(packets: Path) -> str:
    """An incident with one piece of evidence of each kind."""
    log = IncidentLog.for_packets(packets)
    ada = IncidentEditor(log, "Ada")
    incident_id = ada.open_incident(
        "Slow callback", severity="high", summary="Since the new logger on node-0 went in."
    )
    note_id = ada.write_note("It begins here, on node-0.", Pin(window=FAULT, step=565, rank=3))
    shown = log.state().note(note_id)
    IncidentEditor(log, "Lin").edit_note(shown, "Disk?")
    IncidentEditor(log, "Grace").edit_note(shown, "It begins here, on node-0!")

    ada.add_window(log.state().incident(incident_id), FAULT, "gamma_a=0.6")
    ada.add_note(log.state().incident(incident_id), note_id)
    ada.add_plot(log.state().incident(incident_id), FAULT, "prefix_crossings", "ranks=3&gamma_a=0.6")
    ada.add_plot(log.state().incident(incident_id), WindowKey("gpt-small-ddp", 12), "rank_step_heatmap")
    return incident_id


def test_an_incident_is_reported_in_order_with_its_notes(packets: Path, tmp_path: Path) -> None:
    incident_id = write_incident(packets)
    made = run("report", incident_id[:8], packets, "-o", "r.html", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    page = (tmp_path / "r.html").read_text(encoding="utf-8")

    expected = [
        "<h1>Slow callback</h1>",
        "<dt>severity</dt><dd>high</dd>",
        "Since the new logger on node-0 went in.",
        "gpt-small-ddp · window 13 ·",  # the window with its six plots
        "γA 0.6 (default 0.4)",
        "1 · gpt-small-ddp / 13 · step 565 · rank 3",
        "It begins here, on node-0!",
        "Written at the same time: text, by Lin",
        "Grace,",
        "gpt-small-ddp · window 13 · rank 3",  # the plot as shown; its window was listed
        "gpt-small-ddp · window 12 ·",  # a plot of another window brings its verdict along
    ]
    places = [page.find(words) for words in expected]
    assert -1 not in places, expected[places.index(-1)]
    assert places == sorted(places)
    assert page.count('class="plot"') == 7 + 2
    assert page.count("<h2>gpt-small-ddp · window 13") == 2


def test_the_command_in_an_incidents_report_makes_it_again(packets: Path, tmp_path: Path) -> None:
    run("report", write_incident(packets), packets, "-o", "r.html", cwd=tmp_path)
    first = (tmp_path / "r.html").read_text(encoding="utf-8")
    (printed,) = re.findall(r"<p><code>(sfapp report .*?)</code></p>", first)
    (tmp_path / "r.html").unlink()
    assert run(*shlex.split(printed)[1:], cwd=tmp_path).returncode == 0
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == first


def test_json_brings_back_the_identical_incident_and_reports_the_same(packets: Path, tmp_path: Path) -> None:
    incident_id = write_incident(packets)
    assert run("report", incident_id, packets, "-o", "incident.json", cwd=tmp_path).returncode == 0
    exported = (tmp_path / "incident.json").read_bytes()

    elsewhere = IncidentLog(tmp_path / "log.jsonl")
    elsewhere.append(parse(exported))
    book = IncidentLog.for_packets(packets).state()
    assert elsewhere.state().incident(incident_id) == book.incident(incident_id)

    # A colleague with the packets, without the notes, reports from the file
    run("report", incident_id, packets, "-o", "mine.html", cwd=tmp_path)
    IncidentLog.for_packets(packets).path.unlink()
    made = run("report", "incident.json", packets, "-o", "theirs.html", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    mine, theirs = ((tmp_path / name).read_text(encoding="utf-8") for name in ("mine.html", "theirs.html"))
    assert mine.split("<h2>Reproduce")[0] == theirs.split("<h2>Reproduce")[0]


def test_json_holds_the_verdicts_and_the_hashes_of_the_packets(packets: Path, tmp_path: Path) -> None:
    run("report", write_incident(packets), packets, "-o", "incident.json", cwd=tmp_path)
    document = json.loads((tmp_path / "incident.json").read_bytes())
    first, second = document["report"]["windows"]
    assert (first["window"], first["view"], first["differs"]) == (
        13,
        "gamma_a=0.6",
        ["γA 0.6 (default 0.4)"],
    )
    assert second["diagnosis"]["run_id"] == "gpt-small-ddp"
    assert all(len(packet["sha256"]) == 64 for packet in first["packets"])


def test_a_report_on_windows_brings_the_notes_pinned_to_them(packets: Path, tmp_path: Path) -> None:
    write_incident(packets)
    asked = ["--window", str(FAULT), "--window", "gpt-small-ddp/12"]
    run("report", packets, *asked, "-o", "r.html", cwd=tmp_path)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count("It begins here, on node-0!") == 1
    assert page.find("It begins here") < page.find("window 12 ·")
    assert "severity" not in page
    # and as JSON it can be imported, note and all
    run("report", packets, *asked, "-o", "r.json", cwd=tmp_path)
    log = IncidentLog(tmp_path / "log.jsonl")
    book = log.append(parse((tmp_path / "r.json").read_bytes()))
    assert [item.kind for item in book.incidents[0].items] == ["window", "note", "window"]


@pytest.mark.parametrize("ending", ["html", "json"])
def test_redacted_names_are_nowhere_notes_included(packets: Path, tmp_path: Path, ending: str) -> None:
    incident_id = write_incident(packets)
    made = run("report", incident_id, packets, "--redact", "-o", f"r.{ending}", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    content = (tmp_path / f"r.{ending}").read_text(encoding="utf-8")
    if ending == "html":
        content += unpacked(content, "plots")
    for name in ("gpt-small", "node-0", "node-1"):
        assert name not in content
    assert "It begins here, on host-1!" in content
    assert "Since the new logger on host-1 went in." in content


def test_evidence_without_packets_is_marked_and_the_rest_remains(packets: Path, tmp_path: Path) -> None:
    incident_id = write_incident(packets)
    for packet in (packets / "gpt-small-ddp").glob("00000013*"):
        packet.unlink()
    made = run("report", incident_id, packets, "-o", "r.html", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count("there is no window gpt-small-ddp/13 among the packets given") == 2
    assert "It begins here" in page
    assert page.count('class="plot"') == 1


def test_a_report_shows_the_first_thousand_items_and_the_number_left_out(
    tmp_path: Path,
) -> None:
    log = IncidentLog(tmp_path / "incidents.jsonl")
    editor = IncidentEditor(log, "me")
    editor.open_incident("Many items")
    editor.add_note(log.state().incidents[0], editor.write_note("A note."))
    (found,) = log.state().incidents
    many = replace(found, items=found.items * 1_200)

    report = document(many, GivenEvidence({}), command="", version="1")

    assert len(report.of(Remark)) == 1_000
    assert report.parts[-1] == Missing("200 of 1,200 items are left out: a report shows 1,000")


def test_hostile_words_in_a_note_stay_words(packets: Path, tmp_path: Path) -> None:
    log = IncidentLog.for_packets(packets)
    author = IncidentEditor(log, HOSTILE)
    author.write_note(HOSTILE, Pin(window=FAULT, stage=HOSTILE, plot=HOSTILE))
    run("report", packets, "--window", str(FAULT), "-o", "r.html", cwd=tmp_path)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;window.pwned" in page
    assert "<script>window.pwned" not in page


def compared(packets: Path, *queries: str) -> str:
    log = IncidentLog.for_packets(packets)
    ada = IncidentEditor(log, "Ada")
    incident_id = ada.open_incident("Removed again")
    for query in queries:
        ada.add_comparison(log.state().incident(incident_id), query)
    return incident_id


ABA = "a=gpt-small-ddp/12&b=gpt-small-ddp/13&c=gpt-small-ddp/14"


@pytest.mark.parametrize("ending", ["html", "md", "json", "pdf", "ipynb"])
def test_a_comparison_is_in_every_format(packets: Path, tmp_path: Path, ending: str) -> None:
    made = run("report", compared(packets, ABA), packets, "-o", f"r.{ending}", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    content = (tmp_path / f"r.{ending}").read_bytes()
    if ending == "pdf":
        pages = PdfReader(tmp_path / "r.pdf").pages
        content = " ".join(" ".join(page.extract_text().split()) for page in pages).encode()
    page = content.decode("utf-8")
    assert re.search(r"slower than A, all of it in data", page)
    assert re.search(r"C recovers \d+ % of it", page)


def test_the_columns_of_a_comparison_add_up_as_printed(packets: Path, tmp_path: Path) -> None:
    run("report", compared(packets, ABA), packets, "-o", "r.json", cwd=tmp_path)
    (found,) = json.loads((tmp_path / "r.json").read_bytes())["report"]["comparisons"]
    columns = list(zip(*found["rows"], strict=True))
    for title, cells in zip(found["columns"], columns, strict=True):
        if "ms" in title:
            *parts, whole = (round(100 * float(cell.replace("−", "-").replace("±", ""))) for cell in cells)
            assert sum(parts) == whole, title


def test_a_redacted_comparison_names_no_run(packets: Path, tmp_path: Path) -> None:
    incident_id = compared(packets, ABA, "a=gpt-small-ddp&b=gpt-small-ddp")
    made = run("report", incident_id, packets, "--redact", "-o", "r.ipynb", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    notebook = (tmp_path / "r.ipynb").read_text(encoding="utf-8")
    assert "gpt-small" not in notebook
    assert "packets.compare(" in notebook


def test_an_impossible_comparison_is_marked_and_the_rest_remains(packets: Path, tmp_path: Path) -> None:
    incident_id = compared(packets, "a=gone/1&b=gpt-small-ddp/13", "a=nothing", ABA)
    made = run("report", incident_id, packets, "-o", "r.html", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "gone/1 and gpt-small-ddp/13 cannot be compared: there is no window gone/1" in page
    assert "a comparison needs at least two windows" in page
    assert "all of it in data" in page


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["packetz", "-o", "r.html"], "there is no file or folder"),
        (["nothing", "packets", "-o", "r.html"], "there is no incident 'nothing'"),
        (["nothing", "packets", "--gamma-a", "0.5", "-o", "r.html"], "leave those options out"),
        (["other.json", "packets", "-o", "r.html"], "not an incident exported by sfapp"),
        (["packets", "-o", "no/such/r.html"], "cannot be written"),
    ],
)
def test_a_wrong_argument_is_reported(
    packets: Path, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    (tmp_path / "other.json").write_text("{}")
    if arguments[0] == "packetz":
        shutil.rmtree(packets)
        arguments = ["packetz", "nowhere", *arguments[1:]]
    made = run("report", *arguments, cwd=tmp_path)
    assert made.returncode == 2
    assert expected in made.stderr
    assert "Traceback" not in made.stderr
