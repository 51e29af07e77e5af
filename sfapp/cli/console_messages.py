"""Messages and progress on standard error, which ``--quiet`` omits; errors and results are always printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import click

from sfapp.terminal import encodable

Command = TypeVar("Command", bound=Callable[..., Any])

_ARE_OMITTED = "sfapp.messages_are_omitted"


def message_option(command: Command) -> Command:
    """Add ``--quiet``, which ``message`` and ``shows_progress`` follow."""
    return click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Print no progress and no messages, only results and errors.",
    )(command)


def _remember(context: click.Context, _: click.Parameter, are_omitted: bool) -> None:
    context.meta[_ARE_OMITTED] = are_omitted


def shows_messages() -> bool:
    """Return whether to print messages: ``--quiet`` is not given."""
    context = click.get_current_context(silent=True)
    return context is None or not context.meta.get(_ARE_OMITTED)


def message(text: str) -> None:
    """Print a line on standard error, if messages are printed."""
    if shows_messages():
        click.echo(text, err=True)


def print_if_possible(text: str, *, err: bool = False) -> None:
    """Print a line of a command that goes on if its output can take no more: the disk of a log is full, or
    the program that reads a pipe has ended."""
    with suppress(OSError):
        click.echo(text, err=err)


def print_json(document: Any, indent: int | None = None) -> None:
    """Print a document as JSON on standard output, on one line unless it is indented.

    Letters stay as they are, unless the output is not UTF-8. A byte of a file's name that is not UTF-8 is
    escaped, so that the output can be read whatever the names.
    """
    is_ascii = (sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")
    separators = (",", ":") if indent is None else None
    click.echo(encodable(json.dumps(document, ensure_ascii=is_ascii, indent=indent, separators=separators)))


def shows_progress() -> bool:
    """Return whether to show progress: messages are printed, and standard error is a terminal."""
    return shows_messages() and sys.stderr.isatty()
