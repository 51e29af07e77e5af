"""Run ``sfapp`` by its entry point in this process, which has its libraries loaded."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from sfapp.cli import cli, main
from sfapp.store import IngestReport, Store


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


@contextmanager
def stopped_while_reading() -> Iterator[None]:
    """Send SIGTERM to this process whenever a store begins to read packets; that ends no test."""
    original = Store.ingest

    def ingest(store: Store, *arguments: Any, **options: Any) -> IngestReport:
        os.kill(os.getpid(), signal.SIGTERM)
        return original(store, *arguments, **options)

    def unhandled(*_: object) -> None:
        raise AssertionError("SIGTERM would have ended the process")

    before = signal.signal(signal.SIGTERM, unhandled)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "ingest", ingest)
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
