"""The ``sfapp`` command: one command a file, each imported only when it is called.

``sfapp --help`` must answer at once, so nothing heavier than click is imported here.
"""

from __future__ import annotations

import importlib
import keyword
import sys

import click

from sfapp import __version__
from sfapp.errors import SfappError
from sfapp.terminal import printable

# name -> one line of help. Kept here so that `--help` imports no command.
COMMANDS = {
    "run": "Run a training script as torchrun would and record it, without a change to it.",
    "serve": "Browse packets in the browser: verdicts, thresholds, plots.",
    "analyze": "Print the verdict on every window, as a table, JSON, CSV or Parquet.",
    "compare": "Say how much slower one window or run is than another, and in which stages.",
    "report": "Hand over verdicts, plots and notes: as HTML, PDF, Markdown, notebook or JSON.",
    "top": "Watch a streaming job in the terminal: nodes, ranks, the newest verdict.",
    "capture": "Profile some ranks of a running job for some steps, now or when a window calls for it.",
    "aggregate": "Take the streams of a job's ranks while it runs, and write packets.",
    "relay": "Forward the streams of one node's ranks to the aggregator.",
    "import": "Make packets of other tools' traces: which step, stage and rank, and what is not known.",
    "export": "Write a window's operator events for another tool: an archive that Perfetto opens.",
    "validate": "Check packet files and print every fault.",
}


class LazyGroup(click.Group):
    """A group whose commands live in ``sfapp.cli.<name>`` and are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        python_name = f"{name}_" if keyword.iskeyword(name) else name
        command: click.Command = getattr(importlib.import_module(f"sfapp.cli.{python_name}"), python_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sfapp")
def cli() -> None:
    """Find where a distributed training step's exposed time goes."""


# Third-party modules behind each extra, to say which one to install when an import fails.
_EXTRA_OF = dict.fromkeys(
    (
        "duckdb",
        "filelock",
        "jinja2",
        "nicegui",
        "plotly",
        "polars",
        "prometheus_client",
        "rich",
        "typst",
        "watchfiles",
    ),
    "app",
) | dict.fromkeys(("psutil", "zmq"), "stream")


def main() -> None:
    """Entry point: the one place where sfapp's errors become a message and an exit code."""
    try:
        cli()
    except SfappError as error:
        lines = (printable(line) for line in str(error).split("\n"))
        click.echo("sfapp: " + "\n".join(lines), err=True)
        sys.exit(2)
    except ModuleNotFoundError as missing:
        module = (missing.name or "").split(".")[0]
        if module == "torch":
            click.echo(
                "sfapp: this command needs PyTorch, which sfapp never installs by itself: "
                "install your platform's build, or `pip install 'sfapp[app]'`",
                err=True,
            )
        elif module in _EXTRA_OF:
            click.echo(
                f"sfapp: this command needs {module}: pip install 'sfapp[{_EXTRA_OF[module]}]'", err=True
            )
        else:
            raise
        sys.exit(2)
