"""Every test that docs/reliability.md names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_promise_names_tests_that_exist() -> None:
    named = set(re.findall(r"`((?:test_|Test)\w+)`", (ROOT / "docs" / "reliability.md").read_text()))
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    found = {
        name for source in sources for name in re.findall(r"(?:def |^)((?:test_|Test)\w+)", source, re.M)
    }
    assert len(named) > 20
    assert not named - found, f"no such tests: {sorted(named - found)}"


def test_every_row_of_the_promise_names_a_test() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    for heading in ("## The promise", "## What a fault costs"):
        table = text.partition(heading)[2].partition("\n\n##")[0]
        rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
        assert rows
        assert all("`test_" in row or "`Test" in row for row in rows), heading
