"""The tutorials' commands print what the pages show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import run_sfapp

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
ANYTHING = "…"


def shown(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield every command after a ``$`` with the lines that the page shows below it."""
    for block in FENCE.findall(page.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            yield command, lines


def matches(expected: list[str], text: str) -> bool:
    """Return whether a text has these lines, in which a line of one ``…`` stands for any number of lines."""
    pattern = "".join(r"(.*\n)*?" if line == ANYTHING else re.escape(line) + "\n" for line in expected)
    return re.fullmatch(pattern, text) is not None


@pytest.mark.parametrize("name", ["slow-loader", "slow-backward", "fleet"])
def test_the_commands_of_a_tutorial_print_what_it_shows(name: str, tmp_path: Path) -> None:
    commands = list(shown(DOCS / "tutorials" / f"{name}.md"))
    assert len(commands) >= 2
    for command, lines in commands:
        program, *arguments = shlex.split(command)
        assert program == "sfapp"
        result = run_sfapp(*arguments, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert matches(lines, result.stdout), f"$ {command}\n{result.stdout}"


def test_an_ellipsis_stands_for_any_lines_and_nothing_else_does() -> None:
    assert matches(["a", ANYTHING, "d"], "a\nb\nc\nd\n")
    assert matches([ANYTHING], "")
    assert not matches(["a", "d"], "a\nb\nd\n")
    assert not matches(["a", ANYTHING], "b\na\n")
