"""The alert rules and the dashboard in assets are read by their programs and name metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
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


def expressions() -> list[str]:
    """Return the queries of all rules and panels."""
    found = [rule["expr"] for rule in rules()] + [
        each["expr"] for panel in panels() for each in panel["targets"]
    ]
    assert len(found) > 20
    return found


def left_out(value: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Yield the path of everything in a JSON value that is absent from another one, or different there."""
    if isinstance(value, dict) and isinstance(kept, dict):
        for name, inner in value.items():
            yield from left_out(inner, kept.get(name, left_out), f"{path}/{name}")
    elif isinstance(value, list) and isinstance(kept, list) and len(value) == len(kept):
        for number, (inner, other) in enumerate(zip(value, kept, strict=True)):
            yield from left_out(inner, other, f"{path}/{number}")
    elif value != kept:
        yield path


def as_grafana_reads_it(dashboard: dict[str, Any]) -> Any:
    """Return a dashboard without what the classes of Grafana's own library do not know."""
    reason = "grafana-foundation-sdk is not installed"
    models = pytest.importorskip(
        "grafana_foundation_sdk.models.dashboard", reason=reason, exc_type=ImportError
    )
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins

    register_default_plugins()
    return json.loads(JSONEncoder().encode(models.Dashboard.from_json(dashboard)))


def test_grafana_knows_every_field_of_the_dashboard() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert list(left_out(dashboard, as_grafana_reads_it(dashboard))) == []


def test_an_unknown_field_of_the_dashboard_is_noticed() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    panel = dashboard["panels"][0]
    panel["gridpos"] = panel["options"]["colour"] = panel["targets"][0]["expression"] = 1
    assert sorted(left_out(dashboard, as_grafana_reads_it(dashboard))) == [
        "/panels/0/gridpos",
        "/panels/0/options/colour",
        "/panels/0/targets/0/expression",
    ]


def test_every_query_is_promql_with_functions_and_types_that_fit() -> None:
    promql = pytest.importorskip(
        "promql_parser", reason="promql-parser is not installed", exc_type=ImportError
    )
    for expression in expressions():
        promql.parse(expression)
    for wrong in ("rate(sfapp_problems)", "sum(sfapp_problems", "total(sfapp_problems)"):
        with pytest.raises(ValueError):
            promql.parse(wrong)


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
    for expression in expressions():
        for name in re.findall(r"\bsfapp_\w+", expression):
            assert re.search(rf"^{name}[ {{]|\b{name}\b", text, re.MULTILINE), name
        for label, values in re.findall(r'(kind|status)=~?"([^"]+)"', expression):
            assert set(values.split("|")) <= LABELS[label], expression


@pytest.mark.parametrize("name", ["sfapp_problems", "sfapp_lost_rank_hours", "sfapp_store_up"])
def test_both_show_what_matters(name: str) -> None:
    assert name in RULES.read_text()
    assert name in DASHBOARD.read_text()
