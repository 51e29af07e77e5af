r"""Write the manual pages of sfapp and its commands into assets/man, from the same help as ``--help``.

python assets/man_pages.py
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

MAN = Path(__file__).parent / "man"
sys.path.insert(0, str(MAN.parents[1]))

from sfapp.cli import COMMANDS, cli  # noqa: E402

NOTE = r".\" Written by assets/man_pages.py; change the code instead."


def man_pages() -> dict[str, str]:
    """Return every page by the name of its file: ``sfapp.1`` and one for each command."""
    root = click.Context(cli, info_name="sfapp", **cli.context_settings)
    found = {"sfapp.1": _page("sfapp", "find what makes distributed training slow", _root_sections(root))}
    for name, line in COMMANDS.items():
        command = cli.get_command(root, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=root)
        sections = [*_sections(command, context), _section("SEE ALSO", r"\fBsfapp\fR(1)")]
        found[f"sfapp-{name}.1"] = _page(f"sfapp-{name}", line.rstrip("."), sections)
    return found


def _page(name: str, line: str, sections: list[str]) -> str:
    head = f'.TH {_escaped(name.upper())} 1 "" sfapp "sfapp manual"'
    title = _section("NAME", rf"{_escaped(name)} \- {_escaped(line)}")
    return "\n".join([NOTE, head, title, *sections]) + "\n"


def _root_sections(context: click.Context) -> list[str]:
    commands = [
        line
        for name, meaning in COMMANDS.items()
        for line in (".TP", rf"\fBsfapp\-{_escaped(name)}\fR(1)", _escaped(meaning))
    ]
    return [*_sections(cli, context), _section("COMMANDS", *commands)]


def _sections(command: click.Command, context: click.Context) -> list[str]:
    """Return synopsis, description and options of a command."""
    found = [
        _section("SYNOPSIS", *_synopsis(command, context)),
        _section("DESCRIPTION", *_paragraphs(command.help or "")),
    ]
    if options := list(_options(command, context)):
        found.append(_section("OPTIONS", *options))
    return found


def _section(title: str, *lines: str) -> str:
    return "\n".join([f'.SH "{_escaped(title)}"', *lines])


def _synopsis(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f".B {_escaped(context.command_path)}"
    yield _escaped(" ".join(command.collect_usage_pieces(context)))


def _paragraphs(text: str) -> Iterator[str]:
    r"""Yield a help text's paragraphs; those marked with ``\b`` keep their lines."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        yield ".PP"
        if first == "\b":
            yield from (".RS 4", ".nf", *map(_escaped, rest.split("\n")), ".fi", ".RE")
        else:
            yield _escaped(" ".join(paragraph.split()))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if isinstance(option, click.Option) and record is not None:
            yield from (".TP", rf"\fB{_escaped(record[0])}\fR", _escaped(record[1]) or r"\&")


def _escaped(text: str) -> str:
    """Return text without what troff takes for a request or an escape."""
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain


def main() -> None:
    MAN.mkdir(exist_ok=True)
    pages = man_pages()
    for path in MAN.glob("*.1"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (MAN / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
