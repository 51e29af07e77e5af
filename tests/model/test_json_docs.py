"""docs/json.md lists exactly the fields that the JSON objects have."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from sfapp.model import Diagnosis, Reference
from sfapp.model.diagnosis import Aim, Culprit, EvidenceLine, StepTime, WaitFit
from sfapp.model.explanation import ChannelEvidence, Explanation, HostCause, SharedAttribute
from sfapp.model.findings import Finding, Resolution, StepNoise
from sfapp.model.fleet import Fleet, FleetHost, FleetRun, LostTime
from sfapp.model.onsets import Episode
from sfapp.model.parallel_layout import LayoutPattern, LayoutTable
from sfapp.model.pipeline import Pipeline, PipelineStage, StageGrowth, StagePast
from sfapp.model.problems import Cost, Problem
from sfapp.model.trends import Difference, TrendGroup, Trends

PAGE = Path(__file__).parents[2] / "docs" / "json.md"

SECTIONS: dict[str, tuple[type, set[str]]] = {
    "Window": (Diagnosis, {"needs_attention", "culprit_detail"}),
    "Step time": (StepTime, set()),
    "Finding": (Finding, set()),
    "Resolution": (Resolution, set()),
    "Noise": (StepNoise, set()),
    "Reference": (Reference, set()),
    "Likely cause": (Aim, set()),
    "Evidence": (EvidenceLine, set()),
    "Leading ranks": (Culprit, set()),
    "Wait fit": (WaitFit, set()),
    "Layout": (LayoutTable, set()),
    "Layout pattern": (LayoutPattern, set()),
    "Explanation": (Explanation, set()),
    "Cause": (HostCause, set()),
    "Channel evidence": (ChannelEvidence, set()),
    "Shared attribute": (SharedAttribute, set()),
    "Pipeline": (Pipeline, set()),
    "Pipeline stage": (PipelineStage, set()),
    "Stage growth": (StageGrowth, set()),
    "Stage past": (StagePast, set()),
    "Problem": (Problem, {"status", "mark"}),
    "Episode": (Episode, set()),
    "Cost": (Cost, set()),
    "Fleet": (Fleet, {"suspects", "total_runs", "trends"}),
    "Fleet host": (FleetHost, set()),
    "Lost time": (LostTime, set()),
    "Fleet run": (FleetRun, set()),
    "Trends": (Trends, set()),
    "Trend group": (TrendGroup, set()),
    "Trend difference": (Difference, {"verdict"}),
}
"""Class behind each section, and the keys that its JSON object has besides its fields."""


def documented(section: str) -> list[str]:
    """Return the fields in the first column of a section's table."""
    (body,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    names = [row.split("|")[1] for row in body.splitlines() if row.startswith("| `")]
    return [name for cell in names for name in re.findall(r"`(\w+)`", cell)]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_field_is_documented_once(section: str) -> None:
    of_class, more = SECTIONS[section]
    assert sorted(documented(section)) == sorted({field.name for field in fields(of_class)} | more)


def test_every_section_belongs_to_an_object() -> None:
    assert re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.M) == list(SECTIONS)
