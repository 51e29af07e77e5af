"""The fenced blocks of README.md and docs/, and the commands in those that are for a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

SHELL = ("console", "bash", "sh")
PROMPT = "$ "

_SEPARATORS = ("|", "||", "&&", "&", ";")


@dataclass(frozen=True)
class FencedBlock:
    """One fenced block.

    Attributes:
        page: relative to the root of the checkout.
        line: of its first line, from 1.
        language: what follows the fence.
    """

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command of a block.

    Attributes:
        text: may have several lines and comments.
        shown: lines that the page shows as its output; None where it shows none.
    """

    block: FencedBlock
    text: str
    shown: tuple[str, ...] | None = None

    def simple_commands(self) -> list[list[str]]:
        """Return the words of each command of a pipeline or a list, without redirections."""
        lexer = shlex.shlex(self.text.replace("\\\n", " "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        found: list[list[str]] = [[]]
        words = iter(lexer)
        for word in words:
            if word in _SEPARATORS:
                found.append([])
            elif word in ("<", ">", ">>"):
                next(words)
            else:
                found[-1].append(word)
        return [command for command in found if command]


def blocks(page: Path) -> list[FencedBlock]:
    """Return the fenced blocks of a page in order."""
    return [
        FencedBlock(str(page.relative_to(ROOT)), token.map[0] + 1, token.info.strip(), token.content)
        for token in MarkdownIt().parse(page.read_text(encoding="utf-8"))
        if token.type == "fence" and token.map is not None
    ]


def is_script(block: FencedBlock) -> bool:
    """Return whether a block is Python without prompts."""
    return block.language == "python" and not block.text.startswith(">>> ")


def commands(block: FencedBlock) -> Iterator[Command]:
    """Yield the commands of a shell block.

    If any line of the block begins with a ``$``, lines without one are the output of the command above them.
    """
    if not re.search(r"^\$ ", block.text, re.MULTILINE):
        yield from (Command(block, text) for text in _lines(block.text))
        return
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        text, *shown = part.splitlines()
        yield Command(block, text, tuple(shown))


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a script without comments; those that continue each other are one."""
    command = ""
    for line in text.splitlines():
        command += line
        if command.strip() and not command.lstrip().startswith("#"):
            if command.endswith("\\") or not _is_complete(command):
                command += "\n"
                continue
            yield command
        command = ""
    assert command == "", f"a quotation is not closed: {command}"


def _is_complete(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True
