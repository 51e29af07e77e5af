"""Stages, windows, gates and the diagnosis as plain data."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.accounting import diagnose
from sfapp.errors import GateError, WindowError
from sfapp.model import (
    CHOICE_DOCS,
    DEFAULT_STAGES,
    GATE_DOCS,
    Diagnosis,
    Gates,
    broad_stage,
    broad_stages,
    expand_stages,
    stage_category,
    stage_hash,
)
from tests.builders import DATA, MS, ddp_job, window_of


def test_the_stage_hash_is_that_of_the_names_joined_by_newlines() -> None:
    assert stage_hash(("a", "b")) == hashlib.sha256(b"a\nb").hexdigest()
    assert stage_hash(("b", "a")) != stage_hash(("a", "b"))


@given(st.integers(1, 9), st.integers(1, 6))
def test_expanding_and_adding_up_gives_the_broad_stages_back(factor: int, repeated: int) -> None:
    expanded = expand_stages(DEFAULT_STAGES, DEFAULT_STAGES[:repeated], factor)
    assert len(expanded) == len(DEFAULT_STAGES) + repeated * (factor - 1)
    assert broad_stages(expanded) == DEFAULT_STAGES


def test_only_a_numbered_ending_is_a_micro_step() -> None:
    assert broad_stage("model.backward_cpu_wall[12]") == "model.backward_cpu_wall"
    assert broad_stage("odd[name]") == "odd[name]"


@pytest.mark.parametrize(
    ("stage", "category"),
    [
        *zip(DEFAULT_STAGES, ("data", "forward", "backward", "callbacks", "optimizer", "other"), strict=True),
        ("step.between_cpu_wall", "between"),
        ("step.between.checkpoint", "between"),
        ("data.decode[3]", "data"),
        ("callbacks.checkpoint", "callbacks"),
        ("somebody.else", "other"),
    ],
)
def test_every_stage_has_a_family(stage: str, category: str) -> None:
    assert stage_category(stage) == category


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"durations": np.zeros((3, 0, 2))}, "a window needs stages, steps and ranks, not 3 × 0 × 2"),
        ({"durations": np.ones((3, 4, 2)), "stages": ("a", "b")}, "3 stage planes for 2 stage names"),
        ({"durations": np.ones((3, 4, 2)), "wall": np.ones((4, 3))}, "step times must be int64"),
        ({"durations": np.ones((3, 4, 2)), "steps": [0, 1, 2]}, "step numbers"),
    ],
)
def test_a_window_that_does_not_fit_together_is_refused(change: dict, message: str) -> None:
    with pytest.raises(WindowError, match=message):
        window_of(**change)


def test_every_gate_is_documented_and_its_default_lies_in_its_range() -> None:
    documented = {doc.name for doc in GATE_DOCS}
    assert documented | {doc.name for doc in CHOICE_DOCS} == set(Gates.__dataclass_fields__)
    for doc in GATE_DOCS:
        assert doc.low <= getattr(Gates(), doc.name) <= doc.high
        assert doc.help.endswith(".")


def test_every_gate_is_in_the_documentation_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "accounting.md").read_text(encoding="utf-8")
    table = page.partition("## 6. Gates")[2].partition("\n\n")[0]
    for doc in GATE_DOCS:
        rows = [row.split("|") for row in table.splitlines() if re.search(rf"\b{doc.name}\b", row)]
        assert len(rows) == 1, doc.name
        _, _, names, defaults, _ = rows[0]
        place = re.findall(r"\w+", names).index(doc.name)
        shown = re.findall(r"\d[\d,]*(?:\.\d+)?", defaults.replace(", ", " "))[place]
        assert float(shown.replace(",", "")) == getattr(Gates(), doc.name), doc.name


def test_presets_and_changes_from_the_defaults_are_named() -> None:
    assert Gates.preset("paper").changed() == {"model_fit": "declared", "noise_floor": "off"}
    with pytest.raises(GateError, match="there are: sfapp, paper"):
        Gates.preset("papr")


def test_a_diagnosis_survives_json_exactly() -> None:
    window = window_of(ddp_job(extra={(DATA, 3): 60 * MS}))
    diagnosis = diagnose(window, reference=window_of(ddp_job(), window=1))
    assert msgspec.json.decode(msgspec.json.encode(diagnosis), type=Diagnosis) == diagnosis
