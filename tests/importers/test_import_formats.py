"""Every import format: registered once, documented, and named by the table alone."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from sfapp.cli import cli
from sfapp.importers import IMPORT_FORMATS, Format, ImportOptions, ImportResult, read_traces

PAGE = Path(__file__).parents[2] / "docs" / "traces.md"


@pytest.mark.parametrize("name", IMPORT_FORMATS)
def test_every_format_has_a_reader_and_a_summary(name: str) -> None:
    form = IMPORT_FORMATS[name]
    assert form.name == name
    assert form.summary.endswith(".")
    assert form.suffixes
    assert callable(importlib.import_module(form.module).read)


def test_the_page_on_traces_lists_every_format() -> None:
    _, table = PAGE.read_text(encoding="utf-8").split("| format | input |\n| --- | --- |\n", 1)
    rows = table.partition("\n\n")[0].splitlines()
    assert [re.match(r"\| `([^`]+)` \|", row)[1] for row in rows] == list(IMPORT_FORMATS)


def test_the_help_of_the_command_lists_every_format() -> None:
    help_text = "".join(CliRunner().invoke(cli, ["import", "--help"]).output.split())
    for form in IMPORT_FORMATS.values():
        assert "".join(f"{form.name} {form.summary}".split()) in help_text


def test_the_table_names_the_format_of_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a module that does not repeat the name of its format
    module = ModuleType("toy_importer")
    module.read = lambda paths, options: ImportResult(())
    monkeypatch.setitem(sys.modules, "toy_importer", module)
    monkeypatch.setitem(IMPORT_FORMATS, "toy", Format("toy", "A toy.", (".toy",), "toy_importer"))
    (tmp_path / "rank0.toy").touch()
    # When one of its files is read, then the result is of that format
    assert read_traces("toy", [tmp_path], ImportOptions()).format == "toy"
