"""The PDF: whole, readable, the same every time; and nothing that people write is ever typeset as markup."""

from __future__ import annotations

import io
import re
import sys
import time
from dataclasses import replace

import msgspec
import pypdf
import pytest
import typst
from hypothesis import given, settings
from hypothesis import strategies as st

from sfapp.errors import ReportError
from sfapp.incidents import draft_incident, state_from_events
from sfapp.model.view import ViewState, WindowKey
from sfapp.report import Remark, Report, Section, document
from sfapp.report import pdf as pdf_format
from sfapp.report.pdf import _data, to_pdf
from sfapp.service.window_evidence import EvidenceFile
from sfapp.typesetter import fonts, template
from tests.builders import ddp_job, window_of
from tests.report.report_cases import (
    HARM,
    WHEN,
    GivenEvidence,
    evidence_of,
    harmful,
    recorded_window,
    sick_window,
)


def read(pdf: bytes) -> pypdf.PdfReader:
    return pypdf.PdfReader(io.BytesIO(pdf))


def words(text: str) -> str:
    """Text without the breaks of lines and of long names."""
    return re.sub(r"[\s\u200b]+", "", text)


def text_of(pdf: bytes) -> str:
    return words("".join(page.extract_text() for page in read(pdf).pages))


def test_it_contains_the_reports_text() -> None:
    pdf = to_pdf(sick_window())
    text = text_of(pdf)
    for part in (
        "A slow callback",
        "Two lines",
        "It begins here.",
        "Ada, today",
        "callbacks on rank 3",
        "Critical-path time by stage",
        "all at their defaults",
        "Stage timing cannot identify the callback.",
        "sfapp report packets",
        "gone/1: gone",
        sick_window().of(Section)[0].packets[0].sha256,
        "per-stage max",  # in a drawing
    ):
        assert words(part) in text, part
    assert read(pdf).metadata.title == "A slow callback"
    # Pages are numbered
    last = len(read(pdf).pages)
    assert f"{last} / {last}" in read(pdf).pages[-1].extract_text()


def lowest(page: pypdf.PageObject) -> float:
    """Distance of the page's last text above its footer from the top, relative to the page's height."""
    found = []

    def visit(text: str, cm: list[float], tm: list[float], *_: object) -> None:
        at = tm[4] * cm[1] + tm[5] * cm[3] + cm[5]
        if text.strip() and at > 60:
            found.append(at)

    page.extract_text(visitor_text=visit)
    height = float(page.mediabox.height)
    return (height - min(found)) / height


@pytest.mark.parametrize("number", [3, 4, 10])
def test_the_first_page_shows_problem_cost_and_swim_lane_and_no_page_is_half_empty(number: int) -> None:
    report = recorded_window(number)
    pages = read(to_pdf(report)).pages
    first = words(pages[0].extract_text())
    (problem,) = report.problem_lines
    assert first.count(words(problem)) == 1
    for part in ("Work and waiting by rank", "since the ranks synchronised"):
        assert words(part) in first, part
    assert [round(lowest(page), 2) for page in pages if lowest(page) < 0.6] == []


def test_pictures_have_alternative_texts() -> None:
    pdf = read(to_pdf(sick_window()))
    assert "/StructTreeRoot" in pdf.trailer["/Root"]
    alternatives = []

    def walk(node: object) -> None:
        if isinstance(node, pypdf.generic.IndirectObject):
            node = node.get_object()
        if isinstance(node, pypdf.generic.DictionaryObject):
            if node.get("/S") == "/Figure":
                alternatives.append(str(node.get("/Alt")))
            walk(node.get("/K"))
        elif isinstance(node, list):
            for inner in node:
                walk(inner)

    walk(pdf.trailer["/Root"]["/StructTreeRoot"])
    assert [plot.light["layout"]["meta"]["alt"] for plot in sick_window().plots] == alternatives


def test_the_same_report_gives_the_same_bytes() -> None:
    assert to_pdf(sick_window()) == to_pdf(sick_window())


def test_it_complies_with_the_standard_for_accessible_pdf_without_warnings() -> None:
    data = msgspec.json.encode(_data(sick_window())).decode()
    made, complaints = typst.compile_with_warnings(
        template(),
        sys_inputs={"report": data},
        font_paths=fonts(),
        pdf_standards=["ua-1"],
    )
    assert made is not None
    assert complaints == []


def test_only_our_fonts_are_used() -> None:
    resources = [page["/Resources"] for page in read(to_pdf(sick_window())).pages]
    fonts = [font.get_object() for found in resources for font in found.get("/Font", {}).values()]
    names = {str(font["/BaseFont"]).partition("+")[2].partition("-")[0] for font in fonts}
    assert names == {"Inter", "DejaVuSansMono"}


def test_nobodys_words_are_markup() -> None:
    text = text_of(to_pdf(harmful()))
    # Every place that shows a user's text shows all of it, literally
    assert text.count(words(HARM)) >= 8
    assert "/URI" not in str(read(to_pdf(harmful())).pages[0].get("/Annots"))


@settings(max_examples=15)
@given(st.text(max_size=200))
def test_any_text_can_be_typeset(text: str) -> None:
    note = Remark(None, text, text, text, (text,))
    made = Report(text, text, ((text, text),), (note,), text, "1.2.3")
    assert to_pdf(made).startswith(b"%PDF-")


def test_ten_thousand_parts_are_typeset() -> None:
    made = Report("Large", "", (), (Remark(None, "words", "", "Ada", ()),) * 10_100, "", "1")
    assert len(read(to_pdf(made)).pages) > 100


def test_this_process_does_not_keep_the_memory_of_typesetting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(typst, "compile")
    assert to_pdf(sick_window()).startswith(b"%PDF-")


def test_typesetting_that_takes_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_format, "_SECONDS", 0.001)
    with pytest.raises(ReportError, match=r"not typeset within 0\.001 s; choose HTML"):
        to_pdf(sick_window())


def test_typesetting_that_ends_early_as_at_the_limit_of_memory_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pdf_format, "_TYPESETTER", (sys.executable, "-c", "import os; os._exit(9)"))
    with pytest.raises(ReportError, match="cannot be typeset: ended with 9; choose HTML"):
        to_pdf(sick_window())


def test_names_longer_than_a_line_stay_on_the_page() -> None:
    name = "a" * 400
    made = Report(name, name, (), (Remark(None, name, name, name, ()),), name, "1")
    text = text_of(to_pdf(made))
    assert text.count("a" * 400) == 6


def test_a_plot_that_cannot_be_drawn_is_named() -> None:
    report = sick_window()
    (section,) = report.of(Section)
    odd = replace(section.plots[0], light={**section.plots[0].light, "data": [{"type": "sunburst"}]})
    with pytest.raises(ReportError, match="sunburst"):
        to_pdf(replace(report, parts=(replace(section, plots=(odd,)),)))


def large() -> Report:
    """Five windows of 64 ranks."""
    evidence = {}
    for number in range(5):
        window = window_of(ddp_job(seed=number, ranks=64, steps=100), run_id="big", window=number)
        packet = EvidenceFile(f"{number:08d}.parquet", "ab" * 32)
        evidence[WindowKey("big", number)] = evidence_of(window, packet)
    book, incident = draft_incident(
        "Large", [(key, ViewState()) for key in evidence], WHEN, state_from_events(())
    )
    return document(book.incident(incident), GivenEvidence(evidence), command="sfapp", version="1")


def test_five_windows_of_64_ranks_take_a_few_seconds_and_less_than_a_megabyte() -> None:
    report = large()
    began = time.perf_counter()
    pdf = to_pdf(report)
    took = time.perf_counter() - began
    print(f"{len(pdf) / 1e3:.0f} kB, {len(read(pdf).pages)} pages, {took:.2f} s")
    assert took < 5
    assert len(pdf) < 1_000_000


def test_characters_that_no_font_has_are_code_points_and_named_in_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a machine without fonts of its own
    monkeypatch.setattr(pdf_format, "system_folders", lambda: ())
    text = text_of(to_pdf(replace(sick_window(), title="慢 loader \U0001f600 ألف")))
    # Then the title is readable, and what is missing is named with a way out
    assert words("[U+6162] loader [U+1F600] [U+0623 U+0644 U+0641]") in text
    assert words("This machine has no font for Arabic, CJK and symbols") in text
    assert words("choose HTML") in text


def test_a_report_in_scripts_that_the_fonts_have_does_not_mention_fonts() -> None:
    text = text_of(to_pdf(replace(sick_window(), title="Медленный loader, αργός")))
    assert words("Медленный loader, αργός") in text
    assert "code points" not in text
