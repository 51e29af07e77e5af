"""No text of the product uses a retired word or phrase (names and sentences that an engineer reads once)."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from sfapp.views.gate_tables import gate_rows
from sfapp.views.glossary import glossary
from sfapp.views.text.verdict import verdict as verdict_text
from tests.views import simulated_windows as jobs

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
    Retired(r"would go\b", "costs; saves up to"),
    Retired(r"on healthy\b", "vs healthy"),
    Retired(r"first shows", "likely cause"),
    Retired(r"is behind it|behind it\b", "responsible rank"),
    Retired(r"alike\b", "equally; the same"),
    Retired(r"shows? it as", "wait for it in STAGE"),
    Retired(r"may not return", "may not recur"),
    Retired(r"can(no|')t tell", "cannot identify"),
    Retired(r"sent nothing|slower still", "did not report"),
    Retired(r"other reasons\b", "reasons change"),
    Retired(r"withholds?\b|withheld", "suppressed by"),
    Retired(r"less two standard errors", "slope − 2 SE ≥"),
    Retired(r"meeting to meeting|ranks (really )?(meet|met)\b|where ranks meet", "synchronise; at each sync"),
    Retired(r"hand-?overs? of the lead|taking turns|rank again and again", "changes of the slowest rank"),
    Retired(r"(lie|lies|lay|laid) (side by side|beside)", "next to; compare"),
    Retired(r"no one (place|operator)", "no single operator"),
    Retired(r"the address holds", "this URL saves the view"),
    Retired(r"the others as they are", "other thresholds fixed"),
    Retired(r"rhythm", "timing pattern"),
    Retired(r"beside each other", "compare"),
    Retired(r"waiting against transfer", "wait vs transfer"),
    Retired(r"off by more than", "error ≤"),
    Retired(r"what could not be known", "limitations and method"),
    Retired(r"mend(s|ed|ing)?\b", "fix"),
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
    Retired(r"(some|no|every|any)body\b|whoever\b", "a process, a rank, a user"),
    Retired(
        r"who (leads|is late|is last|waits|waited|reaches|is slow|came|is behind|was "
        "late|comes|holds)",
        "which rank",
    ),
    Retired(r"(said|say|says) goodbye|goodbye|heard (of|from)\b", "disconnected; reported"),
    Retired(r"chronic\b", "persistent"),
    Retired(r"one-off\b", "transient"),
    Retired(r"convoys?\b|scribe\b|the desk\b", "window queue; packet writer; mailbox"),
    Retired(r"the house\b|rooms\b", "architecture; packages"),
    Retired(r"(said|told|heard|forgets?|forgot|forgotten)\b", "reported; sent; shown; dropped"),
    Retired(r"first exposed", "begins; the stage in which the delay begins"),
    Retired(r"which rank differs", "the rank that changes"),
    Retired(r"rest(s|ed|ing)? on\b", "is based on; depends on"),
    Retired(r"opens by itself|from nobody|asks itself", "opens automatically; from no rank"),
    Retired(r"(ranks?|process(es)?|nodes?|threads?) who\b", "that"),
    Retired(r"meet(s|ing)? (each other|the others?|again|in)\b|met (each other|in)\b", "synchronise"),
    Retired(r"quiet (window|run|job|step|rank|stage)s?\b|called quiet\b", "healthy"),
    Retired(r"made (anew|good)\b|let(s|ting)? go\b", "created again; caught up; released"),
    Retired(r"than chance would", "than expected by chance"),
    Retired(r"leads? a boundary|counts as rotating|counts for leadership", "is the slowest; changes"),
    Retired(r"W (holds|is)\b|taken (not )?to hold\b", "ranks wait for each other; always; never"),
)
"""The left column of the string table with its kin, as regular expressions that begin with a word."""

RETIRED_NAMES: tuple[Retired, ...] = (
    *RETIRED,
    Retired(r"(say|says|saying|tell|tells|forgetting)\b", "report; show; return"),
    Retired(r"(who|whose)\b", "the rank, the process or the user that is meant"),
    Retired(r"(meet|meets|met|meeting|meetings)\b", "sync; synchronise"),
    Retired(r"quiet\b", "healthy; small"),
    Retired(r"beside\b", "with; next to"),
)
"""Applies to names too: functions, classes, arguments and variables, whose words are joined by spaces."""

ALLOWED: tuple[tuple[str, str, str], ...] = (
    ("sfapp/", "met boundary", "key of a diagnosis in JSON and in the store"),
    ("sfapp/", "met fit", "key of a diagnosis in JSON"),
    ("sfapp/views/palette.py", "quiet", "tone: a machine value, which is also a CSS class"),
)
"""Path prefix, text and the reason why the text may stay: machine values and citations."""

PYTHON_FILES = ("sfapp/**/*.py", "tests/**/*.py", "benchmarks/**/*.py", "examples/**/*.py", "assets/*.py")

TEXT_FILES = (
    "*.md",
    "docs/**/*.md",
    "sample_data/README.md",
    "assets/*.js",
    "assets/*.css",
    "sfapp/report/templates/*",
    "sfapp/**/*.px[yd]",
    "Makefile",
    ".ci/run",
)

_CODE = re.compile(r"```.*?```|``[^`]*``|`[^`]*`|^\s*[a-z_]\w*(, [a-z_]\w*)*:", re.DOTALL | re.MULTILINE)
"""Code spans, and the names of arguments and attributes in a docstring's list."""

_ANY = re.compile(rf"\b(?:{'|'.join(retired.pattern for retired in RETIRED_NAMES)})")
_VALUE = re.compile(r"[a-z0-9_.:/#-]*")
_COMMENT = re.compile(r"(^|\s)# .*")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A text of the project, its place, and whether it consists of the words of a name."""

    path: str
    line: int
    text: str
    name: bool = False


def names_of(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name where a node names a function, class, argument, attribute or variable."""
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.lineno, node.name
    elif isinstance(node, ast.arg):
        yield node.lineno, node.arg


def texts_of(path: str, source: str) -> Iterator[WrittenText]:
    """Yield the texts of a Python module: names, comments, strings, f-strings with ``…`` for values.

    A string of lower-case letters without a space is a machine value; all others are read.
    """
    parts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            pieces = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            parts |= {id(part) for part in node.values}
            yield WrittenText(path, node.lineno, "".join(map(str, pieces)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield WrittenText(path, node.lineno, "" if _VALUE.fullmatch(node.value) else node.value)
        for line, name in names_of(node):
            yield WrittenText(path, line, words_of(name), name=True)
    for number, line in enumerate(source.splitlines(), 1):
        if comment := _COMMENT.search(line):
            yield WrittenText(path, number, comment.group())


def cells_of(path: str, source: str) -> Iterator[WrittenText]:
    """Yield the texts of a notebook; the line is the number of the cell."""
    for number, cell in enumerate(json.loads(source)["cells"], 1):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield WrittenText(path, number, text)
        else:
            yield from (replace(each, line=number) for each in texts_of(path, text))


def texts() -> Iterator[WrittenText]:
    """Yield every text of the project but those of this file."""
    readers = dict.fromkeys(PYTHON_FILES, texts_of) | {"docs/**/*.ipynb": cells_of}
    for pattern in (*readers, *TEXT_FILES):
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and path != Path(__file__):
                name, source = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
                if reader := readers.get(pattern):
                    yield from reader(name, source)
                else:
                    yield from (WrittenText(name, n, line) for n, line in enumerate(source.splitlines(), 1))


@cache
def words_of(name: str) -> str:
    """Return the words of a name, joined by spaces."""
    return " ".join(_WORDS.findall(name)).lower()


@cache
def may_be_wrong(text: str) -> bool:
    """Return whether a text has a retired phrase, which may be allowed; quick, as most texts occur often."""
    return bool(_ANY.search(text.lower()))


def findings(text: WrittenText) -> list[str]:
    """Return what is wrong with a text, one line per retired phrase."""
    if not may_be_wrong(text.text):
        return []
    prose = " ".join(_CODE.sub("", text.text).split())
    found = []
    for retired in RETIRED_NAMES if text.name else RETIRED:
        for match in re.finditer(rf"\b(?:{retired.pattern})", prose, re.IGNORECASE):
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
        "the aggregator has not heard of rank 3",
        "the stage in which the delay is first exposed",
        "what it rests on",
        "a quiet window",
    ],
)
def test_a_retired_phrase_is_found(text: str) -> None:
    assert findings(WrittenText("sfapp/any.py", 1, text))


def test_names_are_read_as_words() -> None:
    source = "class MeetingPoint:\n    def __init__(self, who_waits): self.said = who_waits\n"
    assert {text.text for text in texts_of("sfapp/any.py", source) if findings(text)} == {
        "meeting point",
        "who waits",
        "said",
    }


def test_a_label_without_a_space_is_read() -> None:
    assert [text.text for text in texts_of("sfapp/any.py", 'LABEL = "Rhythm"') if findings(text)] == [
        "Rhythm"
    ]


def test_code_spans_and_machine_values_are_not_prose() -> None:
    source = 'KINDS = ("chronic", "one-off")\n"""Return `chronic` or ``one-off``."""\n'
    assert not [line for text in texts_of("sfapp/any.py", source) for line in findings(text)]


_BARE_NUMBER = re.compile(r"\d(\.\d+)?e[+-]\d|\b\d{1,3}(,\d{3}){2,}(?![,.]?\d)(?!.?(ns|µs|ms|s|B|kB|MB)\b)")
"""A number in the notation of programs, or one of millions without its unit."""


_MACHINE_NAME = re.compile(r"\b[a-z]+_[a-z_]+\b")


def generated_texts() -> Iterator[WrittenText]:
    """Yield the texts that the product generates about windows of every kind, and of its glossary."""
    for row in glossary():
        yield from (WrittenText("glossary", 0, row[name]) for name in ("words", "meaning", "default"))
    for kind, made in jobs.ALL.items():
        measures, diagnosis = jobs.against_healthy(made(), "carry_over")
        verdict = verdict_text(diagnosis, measures.window.ranks)
        for row in gate_rows(measures, diagnosis):
            yield from (
                WrittenText(kind, 0, str(row[name])) for name in ("value_text", "distance_text", "becomes")
            )
        for sentence in (
            verdict.sentence,
            *verdict.explanation,
            *verdict.why,
            *verdict.unknown,
            verdict.action,
        ):
            yield WrittenText(kind, 0, sentence)
        for line in verdict.evidence:
            yield WrittenText(kind, 0, f"{line.title}: {line.text}")
        for number in verdict.numbers:
            yield WrittenText(kind, 0, f"{number.title}: {number.value}, {number.note}")


def test_no_generated_text_uses_a_retired_phrase_or_a_number_without_its_unit() -> None:
    made = [text for text in generated_texts() if text.path != "hostile"]
    assert len(made) > 500
    assert not [line for text in made for line in findings(text)]
    assert not [text for text in made if _BARE_NUMBER.search(text.text)]


@pytest.mark.parametrize("text", ["floor ≥ 6.74e+09: no shares", "6,738,537,000"])
def test_a_number_without_its_unit_is_found(text: str) -> None:
    assert _BARE_NUMBER.search(text)


def test_the_glossary_explains_in_words_and_not_in_machine_names() -> None:
    assert not [row["meaning"] for row in glossary() if _MACHINE_NAME.search(row["meaning"])]


def test_a_number_with_its_unit_is_not_found() -> None:
    assert not _BARE_NUMBER.search("6.74 s, 16,384 ranks, 6,738,537,000 ns")


if __name__ == "__main__":  # prints what remains
    for each in texts():
        print(*findings(each), sep="\n", end="\n" if findings(each) else "")
