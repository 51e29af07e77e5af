"""The ``sfapp`` command: one file per command, each imported only when it is called.

``sfapp --help`` imports only click, so that it is fast.
"""

from __future__ import annotations

import errno
import importlib
import io
import keyword
import os
import sys
from contextlib import suppress
from typing import NoReturn

import click

from sfapp import __version__
from sfapp.cli.loading import modules_loading
from sfapp.errors import MissingExtraError, SfappError
from sfapp.terminal import printable

# Name and one line of help, here so that `--help` imports no command; `module_of` returns the module.
COMMANDS = {
    "run": "Run a training script as torchrun does, and record it without changes to the script.",
    "serve": "Browse packets in the browser: verdicts, thresholds, plots.",
    "demo": "Browse the built-in sample job in the browser.",
    "analyze": "Print the verdict on every window as a table, JSON, CSV or Parquet.",
    "compare": "Compare two or three windows or runs: how much slower, and in which stages.",
    "ingest": "Read packets into a store or a dataset, on this machine or on a cluster of Ray or Dask.",
    "compact": "Reduce old windows to their verdicts and some of their steps.",
    "fleet": "Show what many runs have in common: hosts that are late in too many, and where time is lost.",
    "mcp": "Answer assistants over the Model Context Protocol: runs, problems, verdicts, evidence.",
    "report": "Write a report with verdicts, plots and notes.",
    "top": "Watch a streaming job in the terminal: nodes, ranks, the newest verdict.",
    "watch": "Send a message when a problem begins, changes or ends: Apprise, webhooks, commands.",
    "stacks": "Show what all ranks of a running job do: their Python stacks, equal ones merged.",
    "hang": "Find the ranks that block a stalled job, from its Flight Recorder dumps.",
    "capture": "Profile some ranks of a running job for some steps, now or when a window needs attention.",
    "aggregate": "Receive the streams of a job's ranks while it runs, and write packets.",
    "relay": "Forward the streams of one node's ranks to the aggregator.",
    "import": "Convert traces of other tools to packets.",
    "export": "Export a window's operator events for Perfetto.",
    "validate": "Check packet files and print every fault.",
    "doctor": "Say what this environment can record, why not the rest, and how to fix it.",
}


_CANNOT_BE_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of standard output where it is a file, which names none."""


def module_of(command: str) -> str:
    """Return the name of a command's module and function: ``import_`` for ``import``, ``a_b`` for ``a-b``."""
    name = command.replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


class LazyGroup(click.Group):
    """Group of commands, each imported from its module in ``sfapp.cli`` when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        python_name = module_of(name)
        if name != "run":  # That one starts training, whose environment stays as it is.
            # NumPy starts the threads when it is loaded, and no command has matrix products that need them.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
            importlib.import_module("sfapp.cli.log_lines").write_printable_log()
        with modules_loading():
            module = importlib.import_module(f"sfapp.cli.{python_name}")
        command: click.Command = getattr(module, python_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sfapp")
@click.pass_context
def cli(context: click.Context) -> None:
    """Find the stage and the rank that make a distributed training step slow."""
    if os.environ.get("NO_COLOR"):
        context.color = False


def main() -> None:
    """Run the command line: the one place where sfapp's errors become a message and an exit code."""
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # Not every locale has the characters of results and names. Python does the same for standard error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        cli()
    except SfappError as error:
        _fail(error)
    except ImportError as missing:
        translated = MissingExtraError.of(missing, "this command")
        if translated is None:
            raise
        _fail(translated)
    except OSError as error:
        if error.filename is not None:
            _fail(SfappError(f"{os.fsdecode(error.filename)}: {error.strerror}"))
        if error.errno not in _CANNOT_BE_WRITTEN:
            raise
        # The interpreter flushes it as it ends: what is left in its buffer would change the exit code.
        sys.stdout = io.StringIO()
        _fail(SfappError(f"the output cannot be written: {error.strerror}"))


def _open_closed_streams() -> None:
    """Have the null device stand for each standard stream that is closed, as by ``2>&-`` in a crontab.

    Otherwise Python has None in its place, and a file that is opened later gets its descriptor, to which
    libraries write messages.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nothing = open(os.devnull, mode, errors="backslashreplace")  # noqa: SIM115  # until the process ends
            setattr(sys, name, nothing)


def _fail(error: SfappError) -> NoReturn:
    lines = (printable(line) for line in str(error).split("\n"))
    with suppress(OSError):
        click.echo("sfapp: " + "\n".join(lines), err=True)
    sys.exit(2)
