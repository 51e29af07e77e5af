"""Nothing that the code can say of a window is missing from the glossary."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from sfapp.model import ALL_RANKS, BASELINES, FRONTIERS, MODEL_FITS, RECORDED_STAGES, Gates
from sfapp.model.diagnosis import AimBasis, CulpritKind, WaitsFrom
from sfapp.model.labels import STRONG_LABELS, SUPPRESSING_LABELS
from sfapp.model.manifest import Prefetch
from sfapp.views.glossary import glossary

PACKAGE = Path(__file__).parents[2] / "sfapp"

VERDICT_WORDS = {"Label", "EvidenceLine", "Culprit", "CulpritKind", "Aim"}
"""A module that imports one of these decides something; whatever words it has are words of a verdict."""

OTHER_WORDS = {
    ALL_RANKS,
    "ignore",
    *BASELINES,
    *FRONTIERS,
    *MODEL_FITS,
    *get_args(AimBasis),
    *get_args(Prefetch),
    *get_args(WaitsFrom),
}
"""Options and settings, which the page explains where they are chosen."""

OF_COMPARISONS = {"compare.py", "comparison_result.py", "comparison_document.py", "comparison_sides.py"}
"""Has words of its own, explained where a comparison is shown."""

_WORD = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")
_FAULT_SINKS = {"_note", "_on_fault", "note", "on_fault"}


def names(kind: str) -> set[str]:
    return {row["name"] for row in glossary() if row["kind"] == kind}


def imports_of(tree: ast.AST) -> set[str]:
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.name for node in found for alias in node.names}


def words_of(tree: ast.AST) -> Iterator[str]:
    """Every string that could be a machine-readable name; docstrings and prose are none."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in prose)
    texts = (node.value for node in strings if isinstance(node.value, str))
    return filter(_WORD.fullmatch, texts)


def faults_of(tree: ast.AST) -> Iterator[str]:
    """Every word handed to what notes a fault of the telemetry, or added to a list of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            owner = node.func.value
            listed = isinstance(owner, ast.Name) and owner.id == "faults" and node.func.attr == "append"
            if listed or node.func.attr in _FAULT_SINKS:
                yield from words_of(node.args[0])


def undocumented(source: str) -> set[str]:
    """Words of a deciding module's source that neither the glossary nor an option explains."""
    known = {row["name"] for row in glossary()} | OTHER_WORDS
    return set(words_of(ast.parse(source))) - known


def deciding() -> list[Path]:
    modules = sorted((PACKAGE / "accounting").glob("*.py"))
    return [
        path
        for path in modules
        if path.name not in OF_COMPARISONS
        and imports_of(ast.parse(path.read_text(encoding="utf-8"))) & VERDICT_WORDS
    ]


@pytest.mark.parametrize("path", deciding(), ids=lambda path: path.stem)
def test_every_word_that_decides_is_in_the_glossary(path: Path) -> None:
    assert undocumented(path.read_text(encoding="utf-8")) == set()


def test_the_modules_that_decide_are_found() -> None:
    assert {"labels", "judge", "aim", "device", "leaders"} <= {path.stem for path in deciding()}


@pytest.mark.parametrize(
    "source",
    [
        'Label("co_critical", ("a_new_reason",))',
        'Label("a_new_label")',
        'EvidenceLine("a_new_piece", reason="quiet")',
        'def _no_rank_reason(): return "a_new_reason"',
        'reasons.append("anew")',
    ],
)
def test_a_new_word_without_a_meaning_would_be_found(source: str) -> None:
    assert undocumented(source)


@pytest.mark.parametrize("package", ["recorder", "packets"])
def test_every_fault_of_the_telemetry_is_a_documented_reason(package: str) -> None:
    found = {
        fault
        for path in (PACKAGE / package).rglob("*.py")
        for fault in faults_of(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found
    assert found <= names("reason")


def test_every_recorded_stage_is_in_the_glossary_with_its_short_name() -> None:
    words = {row["name"]: row["words"] for row in glossary() if row["kind"] == "stage"}
    assert tuple(words) == RECORDED_STAGES
    assert words["step.between_cpu_wall"] == "between steps"


def test_every_gate_and_every_kind_of_culprit_is_in_the_glossary() -> None:
    assert names("gate") == set(Gates.__dataclass_fields__)
    assert names("culprit") == set(get_args(CulpritKind))
    assert {*STRONG_LABELS, *SUPPRESSING_LABELS} <= names("label")


def test_no_meaning_is_empty_and_no_term_is_listed_twice() -> None:
    rows = glossary()
    assert all(row["meaning"].strip() for row in rows)
    assert len({(row["kind"], row["name"]) for row in rows}) == len(rows)
