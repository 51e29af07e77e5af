"""The alert rules and the dashboard in assets are read by their programs and name metrics that exist."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest
import yaml

from sfapp.app.prometheus import Metrics
from sfapp.assets import assets
from sfapp.model.problems import ProblemKind, ProblemStatus
from sfapp.service.workspace import Workspace

RULES = assets() / "prometheus" / "sfapp.rules.yml"
DASHBOARD = assets() / "grafana" / "sfapp.json"

LABELS = {"kind": set(get_args(ProblemKind)), "status": set(get_args(ProblemStatus))}
"""Values of the labels of problems."""


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def test_every_rule_has_what_a_person_needs() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def test_panels_fit_the_grid_and_do_not_overlap() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels())
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_every_metric_and_label_that_is_named_exists(workspace: Workspace) -> None:
    text = Metrics(workspace).text().decode()
    expressions = [rule["expr"] for rule in rules()]
    expressions += [each["expr"] for panel in panels() for each in panel["targets"]]
    assert len(expressions) > 20
    for expression in expressions:
        for name in re.findall(r"\bsfapp_\w+", expression):
            assert re.search(rf"^{name}[ {{]|\b{name}\b", text, re.MULTILINE), name
        for label, values in re.findall(r'(kind|status)=~?"([^"]+)"', expression):
            assert set(values.split("|")) <= LABELS[label], expression
        assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize("name", ["sfapp_problems", "sfapp_lost_rank_hours", "sfapp_store_up"])
def test_both_show_what_matters(name: str) -> None:
    assert name in RULES.read_text()
    assert name in DASHBOARD.read_text()
