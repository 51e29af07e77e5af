"""Reports for readers carry no control characters: not for a terminal that prints them, nor such as reverse a
line. Whether names are read as markup is tested with each format."""

from __future__ import annotations

import io
import json

import pypdf
import pytest

from sfapp.incidents import state_from_events
from sfapp.report.formats import REPORT_FORMATS, render
from sfapp.report.notebook import to_notebook
from tests.hostile_text import SCRIPT
from tests.report.report_cases import hostile_names


@pytest.mark.parametrize("ending", sorted(REPORT_FORMATS.keys() - {".json"}))
def test_no_format_for_readers_has_control_characters(ending: str) -> None:
    files = render(f"report{ending}", hostile_names(), state_from_events(()), "")
    for name, content in files.items():
        if name.endswith(".pdf"):
            pages = pypdf.PdfReader(io.BytesIO(content)).pages
            text = "".join(page.extract_text() for page in pages)
        else:
            text = content.decode()
        assert "onerror" in text or "files/" in name, name
        assert {letter for letter in text if not letter.isprintable()} <= {"\n"}, name


def test_markup_in_names_of_stages_is_text_in_a_notebook() -> None:
    cells = json.loads(to_notebook(hostile_names()))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert any("onerror" in text for text in texts)
    assert not any(SCRIPT in text for text in texts)
