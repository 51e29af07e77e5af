"""What all commands have in common: colours, and the completion of a shell (docs/command-line.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from sfapp.cli import COMMANDS, cli

SAMPLE = Path(__file__).parents[2] / "sample_data" / "packets" / "gpt-small-rank-lost"


@pytest.mark.parametrize(("variable", "is_coloured"), [("", True), ("1", False)])
def test_a_terminal_has_colours_unless_the_user_wants_none(variable: str, is_coloured: bool) -> None:
    result = CliRunner(env={"NO_COLOR": variable}).invoke(cli, ["analyze", str(SAMPLE)], color=True)
    assert "Rank 7 is missing" in result.stdout
    assert ("\x1b[" in result.stdout) is is_coloured


@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [([], "wa", ["watch"]), ([], "d", ["demo", "doctor"]), (["demo"], "--o", ["--open"])],
)
def test_a_shell_completes_commands_and_options(words: list[str], incomplete: str, found: list[str]) -> None:
    completion = BashComplete(cli, {}, "sfapp", "_SFAPP_COMPLETE")
    assert [each.value for each in completion.get_completions(words, incomplete)] == found
    assert set(found) <= {*COMMANDS, "--open"}
