"""The table of labels is complete, and everything that shows labels follows from it."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path

import pytest

from sfapp.accounting import judge, measure
from sfapp.model import CULPRITS, LABELS, REASONS, Label
from sfapp.model.labels import LabelSpec, heaviest_label, label_table, label_words
from sfapp.model.reasons import ReasonSpec, by_name
from sfapp.store.verdict_rows import encode
from sfapp.views import tables
from sfapp.views.glossary import glossary
from sfapp.views.text import chips, why
from tests.views import simulated_windows as jobs

ACCOUNTING = Path(__file__).parents[2] / "sfapp" / "accounting"

TOY = LabelSpec(
    name="toy_label",
    words="toy on screen",
    weight=1000,
    group="limit",
    strength="none",
    reasons=("missing_ranks",),
    explanation="The toy explains itself.",
    definition="Holds in this test.",
)


def labels_named(source: str) -> set[tuple[str, tuple[str, ...]]]:
    """Every ``Label("name", ("reason", …))`` that a module spells out."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Label":
            name, *reasons = node.args
            if isinstance(name, ast.Constant):
                strings = [
                    part.value
                    for each in reasons
                    for part in ast.walk(each)
                    if isinstance(part, ast.Constant)
                ]
                found.add((str(name.value), tuple(map(str, strings))))
    return found


def test_every_label_that_accounting_names_is_in_the_table_with_its_reasons() -> None:
    found = set().union(*(labels_named(path.read_text("utf-8")) for path in ACCOUNTING.glob("*.py")))
    assert {name for name, _ in found} == set(LABELS)
    for name, reasons in found:
        assert set(reasons) <= set(LABELS[name].reasons), name


def test_a_toy_label_appears_wherever_labels_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a table with one more label, and a window that carries it
    monkeypatch.setitem(LABELS, TOY.name, TOY)
    diagnosis = judge(measure(jobs.ddp()))
    diagnosis = replace(diagnosis, labels=(*diagnosis.labels, Label(TOY.name, ("missing_ranks",))))
    # Then the store, the card, the tables, the glossary and the list of windows show its words
    assert heaviest_label(diagnosis.label_names) == TOY.name
    assert TOY.name in encode(diagnosis)
    chip = next(chip for chip in chips(diagnosis) if chip.terms[0].name == TOY.name)
    assert (chip.text, chip.tone) == ("toy on screen · missing ranks", "limit")
    assert chip.meaning.startswith("toy_label (missing_ranks): The toy explains itself.")
    row = next(row for row in tables.label_rows(diagnosis) if row["label"] == TOY.name)
    assert (row["words"], row["meaning"]) == (TOY.words, TOY.explanation)
    (entry,) = [row for row in glossary() if row["name"] == TOY.name]
    assert (entry["words"], entry["meaning"]) == (TOY.words, TOY.glossary_text)
    assert label_words(TOY.name) == TOY.words
    assert why(diagnosis)


@pytest.mark.parametrize("missing", [item.name for item in fields(LabelSpec)])
def test_a_label_without_a_field_fails(missing: str) -> None:
    values = {item.name: getattr(TOY, item.name) for item in fields(TOY) if item.name != missing}
    with pytest.raises(TypeError, match=missing):
        LabelSpec(**values)


@pytest.mark.parametrize("text", ["name", "words", "explanation", "definition"])
def test_a_label_with_an_empty_text_fails_and_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=f"has no {text}"):
        replace(TOY, **{text: " "})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "'toy_label' occurs twice"),
        ({"name": "other"}, "both read 'toy on screen'"),
        ({"name": "other", "words": "other"}, "the same weight 1000"),
        ({"name": "other", "words": "other", "weight": 1, "reasons": ("odd",)}, "unknown reason 'odd'"),
    ],
)
def test_a_table_with_a_contradiction_fails(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        label_table((TOY, replace(TOY, **change)), REASONS)


def test_a_label_outside_the_table_is_never_shown_as_another() -> None:
    with pytest.raises(ValueError, match="odd_label"):
        heaviest_label(("frontier_accounting", "odd_label"))
    with pytest.raises(ValueError, match="none given"):
        heaviest_label(())


def test_reasons_and_kinds_of_culprit_are_tables_of_the_same_sort() -> None:
    with pytest.raises(ValueError, match="has no words"):
        ReasonSpec(name="odd", words="", explanation="Odd.")
    with pytest.raises(ValueError, match="occurs twice"):
        by_name([*REASONS.values(), REASONS["quiet"]])
    assert all("_" not in spec.words for spec in (*LABELS.values(), *REASONS.values(), *CULPRITS.values()))


def test_a_name_of_another_version_is_written_with_spaces() -> None:
    assert label_words("a_newer_label") == "a newer label"


def test_the_table_in_the_documentation_is_the_table_of_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "accounting.md").read_text("utf-8")
    for label in LABELS.values():
        strength = "limits the strong ones" if label.group == "limit" else label.strength
        assert f"| `{label.name}` | {label.words} | {label.weight} | {strength} |" in text
