"""Write the pages of docs/ that follow from the code: commands, labels and thresholds.

python assets/reference_pages.py
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS.parent))

from sfapp.cli import COMMANDS, cli  # noqa: E402
from sfapp.model import CHOICE_DOCS, CULPRITS, GATE_DOCS, LABELS, REASONS  # noqa: E402
from sfapp.model.gates import PRESETS  # noqa: E402

NOTE = "<!-- Written by assets/reference_pages.py; change the code instead. -->"

GROUPS = {
    "accounting": "Always",
    "limit": "Limits: strong labels are suppressed",
    "stage": "Stages",
    "device": "Device work in forward",
}


def commands_page() -> str:
    """Return the page with every command, its help and its options."""
    parts = [
        "# Commands",
        NOTE,
        "`sfapp COMMAND --help` prints the same. Exit codes, colours and shell completion: "
        "[command line](command-line.md).",
        table(
            ("command", "what it does"),
            ((f"[`sfapp {name}`](#sfapp-{name})", cell(line)) for name, line in COMMANDS.items()),
        ),
    ]
    root = click.Context(cli, info_name="sfapp")
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None
        parts += command_parts(command, click.Context(command, info_name=name, parent=root))
    parts += [
        "## Thresholds",
        "Commands with `--help-gates` also take [the thresholds](gates.md) as options: `--tau-c 0.9`.",
    ]
    return "\n\n".join(parts) + "\n"


def command_parts(command: click.Command, context: click.Context, level: str = "##") -> Iterator[str]:
    """Yield the parts of one command's section, and of those below it."""
    yield f"{level} {context.command_path}"
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```"
    yield from help_parts(command.help or "")
    if options := [
        option for option in command.params if isinstance(option, click.Option) and not option.hidden
    ]:
        yield table(("option", "meaning"), (option_row(option, context) for option in options))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from command_parts(child, click.Context(child, info_name=name, parent=context), f"{level}#")


def help_parts(text: str) -> Iterator[str]:
    r"""Yield a help text's paragraphs; those marked with ``\b`` are examples or tables as they stand."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        if first == "\b":
            yield f"```{'console' if rest.startswith('sfapp ') else 'text'}\n{rest}\n```"
        else:
            yield cell(paragraph)


def option_row(option: click.Option, context: click.Context) -> tuple[str, str]:
    record = option.get_help_record(context)
    names, meaning = record if record is not None else (", ".join(option.opts), option.help or "")
    return f"`{names}`".replace("|", "\\|"), cell(meaning)


def labels_page() -> str:
    """Return the page with every label, its conditions and its reasons."""
    parts = [
        "# What each label means, and what it does not",
        NOTE,
        "A window can have several labels. They describe how the step's time can be read; the *likely cause* "
        "names the stage and the rank. Machine names are those of JSON, CSV and the store. The rules with "
        "their formulas: [accounting](accounting.md#7-labels-in-the-order-they-are-decided).",
    ]
    for group, title in GROUPS.items():
        parts.append(f"## {title}")
        for label in LABELS.values():
            if label.group != group:
                continue
            claim = "" if label.strength == "none" else f" · {label.strength} claim"
            parts.append(f"### {label.words}")
            parts.append(f"`{label.name}`{claim}")
            parts.append(cell(f"{label.explanation} {label.definition}"))
            if label.reasons:
                parts.append(
                    "Possible reasons: " + ", ".join(REASONS[name].words for name in label.reasons) + "."
                )
    parts += [
        "## Reasons",
        table(
            ("reason", "machine name", "meaning"),
            ((r.words, f"`{r.name}`", cell(r.explanation)) for r in REASONS.values()),
        ),
        "## How the slowest rank recurs",
        table(
            ("pattern", "machine name", "meaning"),
            ((c.words, f"`{c.name}`", cell(c.explanation)) for c in CULPRITS.values()),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def gates_page() -> str:
    """Return the page with every threshold, its default and its range."""
    ours, paper = PRESETS["sfapp"], PRESETS["paper"]
    rows = (
        (
            f"{doc.symbol}, {doc.title}",
            f"`--{option(doc.name)}`",
            number(getattr(ours, doc.name)),
            number(getattr(paper, doc.name)),
            f"{number(doc.low)} – {number(doc.high)}",
            cell(doc.help),
        )
        for doc in GATE_DOCS
    )
    parts = [
        "# Thresholds",
        NOTE,
        "Every verdict depends on these values, and every page, command and report states those that differ "
        "from the defaults. In a URL and in JSON the name is that of the option with `_` for `-`. "
        "`--preset paper` sets those of the paper; `sfapp analyze --help-gates` prints this list.",
        table(("threshold", "option", "default", "paper", "range", "meaning"), rows),
        "## Choices",
    ]
    for choice in CHOICE_DOCS:
        default = getattr(ours, choice.name)
        parts.append(f"`--{option(choice.name)}`, {choice.title}. {choice.question}")
        parts.append(
            table(
                ("value", "meaning"),
                (
                    (f"`{value}`{' (default)' if value == default else ''}", cell(text))
                    for value, text in choice.help.items()
                ),
            )
        )
    return "\n\n".join(parts) + "\n"


def option(name: str) -> str:
    return name.replace("_", "-")


def number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) or value >= 1e6 else f"{value:g}"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """Return text for a table's cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def pages() -> dict[str, str]:
    """Return every page's text by its file name."""
    return {"commands.md": commands_page(), "labels.md": labels_page(), "gates.md": gates_page()}


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text)
