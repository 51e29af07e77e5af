"""Run ``sfapp`` by its entry point in this process, which has its libraries loaded."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from sfapp.cli import cli, main


@dataclass(frozen=True)
class Finished:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def run_sfapp(*arguments: object, cwd: Path | None = None) -> Finished:
    """Run a command with these arguments, in a folder if one is given."""
    out, error = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(error):
        patch.setattr(sys, "argv", ["sfapp", *map(str, arguments)])
        if cwd is not None:
            patch.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            main()
    assert isinstance(ended.value.code, int)
    return Finished(ended.value.code, out.getvalue(), error.getvalue())


def check_arguments(arguments: Sequence[str]) -> None:
    """Parse a command line of sfapp.

    Raises:
        click.UsageError: a command or an option does not exist, or a value is invalid.
    """
    command: click.Command = cli
    context = click.Context(cli, info_name="sfapp")
    rest = list(arguments)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        context = found.make_context(name, rest, parent=context)
        command, rest = found, context.args
