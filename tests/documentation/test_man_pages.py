"""Every command has a manual page, which follows from its help and which troff accepts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from assets.man_pages import MAN
from sfapp.cli import COMMANDS

ROOT = MAN.parents[1]
PAGES = sorted(MAN.glob("*"))
TROFF = shutil.which("groff")


def test_every_command_has_a_page_that_is_up_to_date() -> None:
    # In a process of its own: a command keeps the help option of the first context in which it was asked for.
    program = "import json; from assets.man_pages import man_pages; print(json.dumps(man_pages()))"
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True)
    expected = json.loads(printed.stdout)
    assert set(expected) == {"sfapp.1", *(f"sfapp-{name}.1" for name in COMMANDS)}
    written = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
    assert written == expected, "run: make man"


def test_the_wheel_puts_them_where_man_looks() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["shared-data"] == {"assets/man": "share/man/man1"}


@pytest.mark.skipif(TROFF is None, reason="needs groff")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_troff_reads_a_page_without_a_warning(page: Path) -> None:
    assert TROFF is not None
    result = subprocess.run(
        [TROFF, "-man", "-Tutf8", "-Kutf8", "-ww", "-z", page], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(TROFF is None, reason="needs groff")
def test_examples_keep_their_lines() -> None:
    result = subprocess.run(
        [TROFF or "", "-man", "-Tascii", "-Kutf8", "-P-cbou", MAN / "sfapp-serve.1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "sfapp serve packets --port 0 --no-browser" in lines
    assert lines[lines.index("NAME") + 1].startswith("sfapp-serve - Browse packets in the browser")
