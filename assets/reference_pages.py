"""Write the pages of docs/ that follow from the code: commands, labels, thresholds and HTTP.

python assets/reference_pages.py
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from fastapi import FastAPI

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS.parent))

from sfapp.app import api  # noqa: E402
from sfapp.cli import COMMANDS, cli  # noqa: E402
from sfapp.model import CHOICE_DOCS, CULPRITS, GATE_DOCS, LABELS, REASONS  # noqa: E402
from sfapp.model.gates import PRESETS  # noqa: E402
from sfapp.model.view import view_parameters  # noqa: E402
from sfapp.service.workspace import Workspace  # noqa: E402
from sfapp.store import Store  # noqa: E402

NOTE = "<!-- Written by assets/reference_pages.py; change the code instead. -->"

GROUPS = {
    "accounting": "Always",
    "limit": "Limits: strong labels are suppressed",
    "stage": "Stages",
    "device": "Device work in forward",
}

HTTP_GROUPS = {
    "Windows": ("windows", "w", "compare", "quarantine"),
    "Problems": ("problems", "fleet"),
    "Runs": ("runs", "live", "stacks"),
    "Incidents": ("incidents", "incident"),
    "Words": ("find", "glossary"),
    "Server": ("healthz", "metrics"),
}
"""Groups of addresses, by the first part of their paths."""

OF_GATES = {doc.name for doc in GATE_DOCS} | {doc.name for doc in CHOICE_DOCS}
OF_VIEW = {each["name"] for each in view_parameters()}
"""Parameters that are thresholds, and those of every address of a verdict."""


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


def http_page() -> str:
    """Return the page with every address that the app serves as data.

    Raises:
        KeyError: an address belongs to no group.
    """
    document = openapi()
    first_of = {path: path[1:].partition("/")[0].partition(".")[0] for path in document["paths"]}
    group_of = {first: group for group, firsts in HTTP_GROUPS.items() for first in firsts}
    parts = [
        "# HTTP",
        NOTE,
        "The app (`sfapp serve`) serves every page as data: the same address with `.json`, tables also with "
        "`.csv`, and the same query. All are requested with GET. With a token, send "
        "`Authorization: Bearer TOKEN` ([security](security.md)). A running app describes itself at "
        "`/openapi.json`, and for people at `/docs`. The fields of the objects: [JSON](json.md).",
        "`{run}` is the id of a run, whose slashes need no encoding; `{window}` is the number of a window. "
        "Links of the app write an id that a reverse proxy would change, such as `a//b`, as `~a~1~1b`.",
    ]
    for group in HTTP_GROUPS:
        parts.append(f"## {group}")
        for path, methods in document["paths"].items():
            if group_of[first_of[path]] == group:
                parts += address_parts(path, methods["get"])
    parts += [
        "## View of a window",
        "Addresses of verdicts take these parameters, and [every threshold](gates.md): `tau_c=0.9`.",
        parameter_table(each for each in view_parameters() if each["name"] not in OF_GATES),
        "## Status codes",
        "Refusals with 400, 404 and 503 have the reason in `error`.",
        table(("code", "meaning"), status_rows(document)),
    ]
    return "\n\n".join(parts) + "\n"


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of the app's data."""
    with tempfile.TemporaryDirectory() as name, Store.open([Path(name)], memory=True) as store:
        application = FastAPI()
        api.build(application, Workspace(store, (Path(name),)))
        return application.openapi()


def address_parts(path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    """Yield what one address answers, and its parameters."""
    (kind,) = operation["responses"]["200"]["content"]
    parameters = operation.get("parameters", [])
    has_view = {each["name"] for each in parameters} >= OF_VIEW
    view = " Takes the [view](#view-of-a-window)." if has_view else ""
    yield f"### {path}"
    yield f"{cell(operation['summary'])}. Returns `{kind}`.{view}"
    if description := operation.get("description"):
        yield cell(description)
    own = [
        each for each in parameters if "description" in each and not (has_view and each["name"] in OF_VIEW)
    ]
    if own:
        yield parameter_table(own)


def parameter_table(parameters: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of parameters of the OpenAPI document."""
    rows = ((f"`{each['name']}`", *value_of(each), cell(each["description"])) for each in parameters)
    return table(("parameter", "value", "default", "meaning"), rows)


def value_of(parameter: Mapping[str, Any]) -> tuple[str, str]:
    """Return the values that a parameter has, and its default."""
    schema = parameter["schema"]
    schema = {**schema, **schema["anyOf"][0]} if "anyOf" in schema else schema
    kind = ", ".join(f"`{value}`" for value in schema.get("enum", ())) or schema["type"]
    if schema.get("maximum", 0) >= 2**53:
        pass  # the bound of a 64-bit integer says nothing
    elif "minimum" in schema and "maximum" in schema:
        kind += f", {number(schema['minimum'])} – {number(schema['maximum'])}"
    elif "minimum" in schema:
        kind += f", at least {number(schema['minimum'])}"
    default = schema.get("default", "")
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    return kind, "required" if parameter.get("required") else shown and f"`{shown}`"


def status_rows(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every status code of a response, with its meaning."""
    found = {
        code: response["description"]
        for methods in document["paths"].values()
        for code, response in methods["get"]["responses"].items()
    }
    found |= {
        "200": "Done",
        "422": "A value has the wrong type or is out of range",
        "503": "The store has failed or is not kept up to date, or too many answers are being made",
    }
    yield from ((code, cell(found[code])) for code in sorted(found))


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
    return {
        "commands.md": commands_page(),
        "labels.md": labels_page(),
        "gates.md": gates_page(),
        "http.md": http_page(),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text)
