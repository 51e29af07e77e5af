"""No text of the product uses a retired word or phrase (names and sentences that an engineer reads once)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Retired:
    """A phrase that no text may contain, and what to write instead."""

    pattern: str
    instead: str


RETIRED: tuple[Retired, ...] = (
    Retired(r"calls? for action|action called for", "need attention; healthy"),
    Retired(
        r"aim(ing|s|ed)? (the|a) profiler|nothing to aim at|the verdict aims|aimed at",
        "likely cause; suspect",
    ),
    Retired(r"points? elsewhere", "conflicting evidence; points to STAGE"),
    Retired(r"share, step by step", "per-step share"),
    Retired(r"\bwould go\b", "fixing this saves up to"),
    Retired(r"\bon healthy\b", "vs healthy"),
    Retired(r"first shows", "likely cause"),
    Retired(r"is behind it|behind it\b", "responsible rank"),
    Retired(r"\balike\b", "equally; the same"),
    Retired(r"shows? it as", "wait for it in STAGE"),
    Retired(r"may not return", "may not recur"),
    Retired(r"can(no|')t tell", "cannot identify"),
    Retired(r"sent nothing|slower still", "did not report"),
    Retired(r"\bother reasons\b", "reasons change"),
    Retired(r"withholds?\b|withheld", "suppressed by"),
    Retired(r"less two standard errors", "slope − 2 SE ≥"),
    Retired(r"meeting to meeting|ranks (really )?(meet|met)\b|where ranks meet", "synchronise; at each sync"),
    Retired(r"hand-?overs? of the lead|taking turns|rank again and again", "changes of the slowest rank"),
    Retired(r"\b(lie|lies|lay|laid) (side by side|beside)", "next to; compare"),
    Retired(r"no one (place|operator)", "no single operator"),
    Retired(r"the address holds", "this URL saves the view"),
    Retired(r"the others as they are", "other thresholds fixed"),
    Retired(r"\brhythm", "timing pattern"),
    Retired(r"beside each other", "compare"),
    Retired(r"waiting against transfer", "wait vs transfer"),
    Retired(r"off by more than", "error ≤"),
    Retired(r"what could not be known", "limitations and method"),
    Retired(r"\bmend(s|ed|ing)?\b", "fix"),
    Retired(r"stops? nothing else", "other files are unaffected"),
    Retired(r"still to come|not here any ?more", "not found"),
    Retired(r"what follows from it", "observation and next step"),
    Retired(r"piece of an incident", "selected item"),
    Retired(r"note of its own", "standalone note"),
    Retired(r"pencil", "worked examples"),
    Retired(r"no more of these", "hide all tips"),
    Retired(r"asks? for nothing", "single self-contained file"),
    Retired(r"should be like", "after the fix"),
    Retired(r"is streamed here", "no live job"),
    Retired(r"\b(some|no|every|any)body\b|\bwhoever\b", "a process, a rank, a user"),
    Retired(
        r"\bwho (leads|is late|is last|waits|waited|reaches|is slow|came|is behind|was "
        "late|comes|holds)",
        "which rank",
    ),
    Retired(r"\b(said|say|says) goodbye|\bgoodbye|\bheard of\b|\bheard from\b", "disconnected; reported"),
    Retired(r"\bchronic\b", "persistent"),
    Retired(r"\bone-off\b", "transient"),
    Retired(r"\bconvoys?\b|\bscribe\b|\bthe desk\b", "window queue; packet writer; mailbox"),
    Retired(r"\bthe house\b|\brooms\b", "architecture; packages"),
)
"""The left column of the string table with its kin, as case-insensitive regular expressions."""

ALLOWED: tuple[tuple[str, str, str], ...] = ()
"""Path prefix, text and the reason why the text may stay: machine values and citations."""

TEXT_FILES = (
    "docs/**/*.md",
    "assets/*.js",
    "examples/**/*.py",
    "sample_data/README.md",
    "sfapp/report/templates/*",
)

_CODE = re.compile(r"```.*?```|``[^`]*``|`[^`]*`|^\s*[a-z_]\w*(, [a-z_]\w*)*:", re.DOTALL | re.MULTILINE)
"""Code spans, and the names of arguments and attributes in a docstring's list."""


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A text of the product and its place."""

    path: str
    line: int
    text: str


def strings_of(path: str, source: str) -> Iterator[WrittenText]:
    """Yield prose of a Python module: strings with a space, docstrings, f-strings with ``…`` for values,
    comments."""
    parts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            pieces = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            parts |= {id(part) for part in node.values}
            yield WrittenText(path, node.lineno, "".join(map(str, pieces)))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in parts
        ):
            yield WrittenText(path, node.lineno, node.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield WrittenText(path, token.start[0], token.string)


def texts() -> Iterator[WrittenText]:
    """Yield every text of the product."""
    for path in sorted((ROOT / "sfapp").rglob("*.py")):
        yield from strings_of(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    for pattern in TEXT_FILES:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and path.suffix in {
                ".md",
                ".js",
                ".py",
                ".html",
                ".typ",
                ".css",
                ".j2",
                ".txt",
            }:
                name = str(path.relative_to(ROOT))
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                    yield WrittenText(name, number, line)


def findings(text: WrittenText) -> list[str]:
    """Return what is wrong with a text, one line per retired phrase."""
    prose = " ".join(_CODE.sub("", text.text).split())
    found = []
    for retired in RETIRED:
        for match in re.finditer(retired.pattern, prose, re.IGNORECASE):
            allowed = any(
                text.path.startswith(path) and words in text.text and match.group() in words
                for path, words, _ in ALLOWED
            )
            if not allowed:
                around = prose[max(0, match.start() - 40) : match.end() + 40]
                found.append(
                    f"{text.path}:{text.line}: {match.group()!r} in …{around}… (write: {retired.instead})"
                )
    return found


def test_no_text_uses_a_retired_phrase() -> None:
    found = [line for text in texts() for line in findings(text)]
    assert not found, f"{len(found)} retired phrases:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "12 of 21 windows call for action",
        "NOTHING TO AIM AT",
        "nothing points elsewhere",
        "78.9 ms a step would go",
        "From meeting to meeting ranks wait for who is late",
        "with no one place that accounts for half of it",
    ],
)
def test_a_retired_phrase_is_found(text: str) -> None:
    assert findings(WrittenText("sfapp/any.py", 1, text))


def test_code_spans_and_machine_values_are_not_prose() -> None:
    source = 'KINDS = ("chronic", "one-off")\n"""Return `chronic` or ``one-off``."""\n'
    assert not [line for text in strings_of("sfapp/any.py", source) for line in findings(text)]


if __name__ == "__main__":  # prints what remains, by package
    for each in texts():
        print(*findings(each), sep="\n", end="\n" if findings(each) else "")
