"""Every format is chosen by a name's suffix, written completely, and redacted to the last byte."""

from __future__ import annotations

import base64
import errno
import gzip
import io
import os
import re
import shutil
import zlib
from contextlib import chdir
from pathlib import Path

import pypdf
import pytest
from click.testing import CliRunner, Result

from sfapp.cli import cli
from sfapp.errors import ReportError
from sfapp.incidents import IncidentEditor, IncidentLog
from sfapp.model.incidents import Pin
from sfapp.model.view import WindowKey
from sfapp.report import REPORT_FORMATS
from sfapp.report.formats import write
from sfapp.report.plots import report_names
from sfapp.views.plot_registry import WindowInput
from tests.report.report_cases import SAMPLE

NAMES = ("gpt-small", "node-0", "node-1", "moe-two-roles", "Zürich")
"""Runs, hosts, and a part of a file's name."""


def run(*arguments: object, cwd: Path) -> Result:
    """The command, in this process: it is run often here."""
    with chdir(cwd):
        return CliRunner().invoke(cli, list(map(str, arguments)))


@pytest.fixture
def packets(tmp_path: Path) -> Path:
    """A run whose files and notes hold names as well."""
    root = tmp_path / "from gpt-small-ddp"
    shutil.copytree(SAMPLE / "gpt-small-ddp", root / "Zürich")
    for path in list(root.rglob("*.parquet")):
        path.rename(path.with_name(f"Zürich-{path.name}"))
    log = IncidentLog.for_packets(root)
    pin = Pin(window=WindowKey("gpt-small-ddp", 13), step=565)
    IncidentEditor(log, "Ada").write_note("gpt-small-ddp: NODE-0 is slow, node-1.zone is not", pin)
    return root


def unfolded(content: bytes) -> bytes:
    """All bytes, and what is packed in them: base64, gzip, streams of PDF, escapes of JSON."""
    found = [content]
    for packed in re.findall(rb"[A-Za-z0-9+/]{80,}={0,2}", content):
        raw = base64.b64decode(packed + b"=" * (-len(packed) % 4))
        found.append(gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw)
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL):
        try:
            found.append(zlib.decompress(stream))
        except zlib.error:
            found.append(stream)
    if content.startswith(b"%PDF"):
        reader = pypdf.PdfReader(io.BytesIO(content))
        found += [page.extract_text().replace("\n", "").encode() for page in reader.pages]
        found.append(str(reader.metadata).encode())
    whole = b"\n".join(found)
    return whole + whole.decode("utf-8", "replace").encode("ascii", "backslashreplace")


@pytest.mark.parametrize("ending", sorted(REPORT_FORMATS))
def test_a_redacted_report_holds_no_real_name_in_any_byte(ending: str, packets: Path, tmp_path: Path) -> None:
    asked = ["--window", "gpt-small-ddp/13", "--title", "gpt-small-ddp on node-0 is slow"]
    out = tmp_path / "out"
    out.mkdir()
    plain = run("report", packets, *asked, "-o", f"out/r{ending}", cwd=tmp_path)
    assert plain.exit_code == 0, plain.stderr
    # Given that each format holds the names where it is not redacted
    whole = b"".join(unfolded(path.read_bytes()) for path in out.rglob("*") if path.is_file())
    assert b"gpt-small" in whole
    assert b"node-0" in whole
    shutil.rmtree(out)
    out.mkdir()
    # When it is redacted
    made = run("report", packets, *asked, "--redact", "-o", f"out/r{ending}", cwd=tmp_path)
    assert made.exit_code == 0, made.stderr
    # Then none of them is left, in no upper or lower case, and the pseudonyms are there
    whole = b"".join(unfolded(path.read_bytes()) for path in out.rglob("*") if path.is_file())
    for name in NAMES:
        assert name.lower().encode() not in whole.lower(), name
        assert name.lower().encode("ascii", "backslashreplace") not in whole.lower(), name
    assert b"run-1 on host-1 is slow" in whole


@pytest.mark.parametrize("ending", sorted(REPORT_FORMATS))
def test_the_same_report_has_the_same_bytes(ending: str, tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        assert (
            run("report", SAMPLE, "--window", "gpt-small-ddp/5", "-o", f"r{ending}", cwd=tmp_path).exit_code
            == 0
        )
        found.append({path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()})
    assert found[0] == found[1]
    assert not [name for name in found[0] if name.startswith(".")]


def test_drawings_take_the_place_of_those_before_and_leave_other_files_alone(tmp_path: Path) -> None:
    folder = tmp_path / "r_files"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    asked = ("report", SAMPLE, "--window", "gpt-small-ddp/5", "-o", "r.md")
    assert run(*asked, cwd=tmp_path).exit_code == 0
    assert run(*asked, cwd=tmp_path).exit_code == 0
    assert (folder / "mine.txt").read_text() == "mine"
    shown = re.findall(r"\(<r_files/([^>]+\.svg)>\)", (tmp_path / "r.md").read_text())
    assert len(shown) == len(report_names(WindowInput)) - 2  # without a parallel layout and a pipeline
    assert sorted(path.name for path in folder.glob("*.svg")) == sorted(shown)


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "r_files").write_text("a file in the way")
    made = run("report", SAMPLE, "--window", "gpt-small-ddp/5", "-o", "r.md", cwd=tmp_path)
    assert isinstance(made.exception, ReportError)
    assert "r.md cannot be written" in str(made.exception)
    assert not (tmp_path / "r.md").exists()


def test_an_ending_of_no_format_lists_those_there_are(tmp_path: Path) -> None:
    made = run("report", SAMPLE, "-o", "r.docx", cwd=tmp_path)
    assert ".html" in REPORT_FORMATS
    assert str(made.exception) == f"r.docx should end in {', '.join(REPORT_FORMATS)}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("full_for", ["b.svg", "r.md"])
def test_a_report_that_a_full_disk_refuses_leaves_the_former_one_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_for: str
) -> None:
    path = tmp_path / "r.md"
    former = {"r.md": b"former text", "r_files/a.svg": b"former a", "r_files/b.svg": b"former b"}
    write(path, former)
    opened = os.open

    def refused(path: Path, *more: int) -> int:
        if f".{full_for}." in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return opened(path, *more)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(ReportError, match=r"r\.md cannot be written: No space left on device"):
        write(path, {name: content.replace(b"former", b"new") for name, content in former.items()})

    found = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert {str(each.relative_to(tmp_path)): each.read_bytes() for each in found} == former
