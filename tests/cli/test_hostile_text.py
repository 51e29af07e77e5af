"""No command prints a text of a file so that a terminal obeys it: escape sequences, new lines, reversals."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sfapp.cli import main
from tests.app.live_job import LiveJob
from tests.app.recorded_job import job_window, put, recent_window
from tests.builders import CALLBACKS, MS
from tests.commands import run_sfapp
from tests.hostile_text import HOSTILE_TEXT, TERMINAL, with_hostile_names

NAME = TERMINAL.replace("\n", "\v")
"""For names of files; Linux allows every character but / and NUL."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a streaming job, a rejected file and a dump, each with hostile text wherever there is text."""
    root = tmp_path_factory.mktemp("hostile")
    for number in range(3):
        put(root, with_hostile_names(recent_window(number, {(CALLBACKS, 3): 60 * MS})))
    LiveJob(root, run=f"live {HOSTILE_TEXT}", host=HOSTILE_TEXT).go(until=time.time() + 600)
    (root / f"{NAME}.parquet").write_text(HOSTILE_TEXT)
    (root / "trace_rank_0").write_bytes(
        pickle.dumps(
            {"version": HOSTILE_TEXT, "pg_config": {"7": {"desc": HOSTILE_TEXT, "ranks": HOSTILE_TEXT}}}
        )
    )
    return root


COMMANDS = [
    ["analyze", "."],
    ["analyze", ".", "--what-if"],
    ["compare", f"{HOSTILE_TEXT}/0", f"{HOSTILE_TEXT}/1", "--packets", "."],
    ["compare", f"{HOSTILE_TEXT}/0", f"no {TERMINAL}/1", "--packets", "."],
    ["validate", "."],
    ["top", "--once", "."],
    ["top", "--once", ".", "--run", f"no {TERMINAL}"],
    ["watch", ".", "--once", "--notify", "command:cat"],
    ["stacks", ".", "--last"],
    ["stacks", ".", f"no {TERMINAL}"],
    ["hang", "."],
    ["import", "kineto", f"{NAME}.parquet", "-o", "imported"],
    ["report", ".", "-o", "report.md"],
    ["report", ".", "--window", f"no {TERMINAL}/3", "-o", "report.md"],
    ["export", "perfetto", "."],
    ["export", "perfetto", f"no {TERMINAL}"],
    ["capture", ".", f"live {HOSTILE_TEXT}"],
    ["capture", ".", f"no {TERMINAL}"],
    ["capture", ".", "--no-wait"],
    ["fleet", "."],
    ["fleet", ".", "--by", "image"],
    ["ingest", ".", "--to", "verdicts"],
    ["compact", ".", "--older-than", "0", "--dry-run"],
    ["serve", f"no {TERMINAL}"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(words).encode("unicode_escape"))
def test_nothing_printed_steers_a_terminal(
    arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr(sys, "argv", ["sfapp", *arguments])
    with contextlib.suppress(SystemExit):
        main()
    printed = "".join(capsys.readouterr())
    assert printed
    assert [line for line in printed.split("\n") if not line.isprintable()] == []


def test_a_report_is_made_of_packets_with_times_that_are_no_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, ended in enumerate(("zzzz", "9999-12-31T23:59:59-14:00", "2026-11-21T10:00:00Z")):
        window = job_window(number, {})
        put(tmp_path / "packets", replace(window, manifest=replace(window.manifest, ended_at=ended)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sfapp", "report", "packets", "-o", "report.md"])
    with contextlib.suppress(SystemExit):
        main()
    assert "3 windows" in (tmp_path / "report.md").read_text()


NOT_UTF8 = os.fsdecode(b"caf\xe9")
"""A name as of an old file system, as Python reads it."""


@pytest.fixture(scope="module")
def misnamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packet, a damaged one and a dump, with file names that are not UTF-8."""
    root = tmp_path_factory.mktemp("misnamed") / NOT_UTF8
    packet = put(root, job_window(0, {(CALLBACKS, 3): 60 * MS}))
    packet.rename(root / f"{NOT_UTF8}.parquet")
    (root / f"{NOT_UTF8}-2.parquet").write_text("no packet")
    (root / f"{NOT_UTF8}_rank_0").write_bytes(pickle.dumps({"version": "2.10", "entries": []}))
    return root


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", "."],
        ["validate", "."],
        ["hang", f"{NOT_UTF8}_rank_0"],
        ["import", "kineto", f"{NOT_UTF8}-2.parquet", "-o", "imported"],
        ["doctor", "--out", NOT_UTF8, "--timeout", "1"],
    ],
    ids=lambda words: words[0],
)
def test_json_with_file_names_that_are_not_utf8_can_be_read(arguments: list[str], misnamed: Path) -> None:
    found = run_sfapp(*arguments, "--json", cwd=misnamed)
    assert json.loads(found.stdout.encode())


@pytest.mark.parametrize("ending", ["html", "md", "pdf", "json", "ipynb"])
def test_a_report_is_made_of_packets_with_file_names_that_are_not_utf8(
    ending: str, misnamed: Path, tmp_path: Path
) -> None:
    output = tmp_path / f"{NOT_UTF8}.{ending}"
    found = run_sfapp("report", misnamed, "--title", NOT_UTF8, "-o", output)
    assert found.returncode == 0
    assert output.stat().st_size > 1000
