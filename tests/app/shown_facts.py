"""Every step time, share, stage and rank that the surfaces show of a window, as texts, to be compared.

A fact is what is shown: the mean step, its median, 95th percentile and longest, the change and the imbalance,
the share of each stage on the frontier in use, and the suspect's stage and rank. A surface yields those that
it shows.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sfapp.model import Diagnosis
from sfapp.model.view import ViewState
from sfapp.service.judging import JudgedWindow
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.figures import draw_plot
from sfapp.views.figures.frontier import frontier_steps
from sfapp.views.figures.rival_rules import RULE_NAMES, rules
from sfapp.views.figures.routing import routing_pareto
from sfapp.views.figures.step_timeline import step_timeline
from sfapp.views.plot_registry import WindowInput
from sfapp.views.tables import stage_rows
from sfapp.views.window_list_rows import window_row

Facts = Mapping[tuple[str, str], str]
"""Texts by kind (``step``, ``share``, ``suspect``, ``change`` …) and what the kind is of."""

STEP, SUSPECT = ("step", "mean"), ("suspect", "")
HEALTHY = "healthy"

_DURATION = r"[\d.,]+ (?:ns|µs|ms|s|min|h)"
_PERCENT = r"(?:<|&lt;)?[\d.]+ %"
STEP_WORDS = re.compile(rf"{_DURATION}(?= long:| in the mean step of the window| per step on average)")


def expected(diagnosis: Diagnosis) -> Facts:
    """What a verdict has to be shown as."""
    shares = diagnosis.top_stages() or {}
    step, aim = diagnosis.step_time, diagnosis.aim
    return {
        STEP: format.duration(step.mean_ns),
        ("step", "p50"): format.duration(step.p50_ns),
        ("step", "p95"): format.duration(step.p95_ns),
        ("step", "longest"): format.duration(step.longest_ns),
        ("change", ""): format.percent_change(diagnosis.change),
        ("imbalance", ""): format.severity(diagnosis.exposed_imbalance),
        SUSPECT: HEALTHY if aim is None else suspect(diagnosis.needs_attention, aim.stage, aim.rank),
        **{("share", stage): format.percent(share) for stage, share in shares.items()},
    }


def suspect(needs_attention: bool, stage: str | None, rank: object) -> str:
    """Stage and rank in short words, or ``healthy``."""
    if not needs_attention or stage is None:
        return HEALTHY
    return format.short_stage(stage) + ("" if rank in (None, "") else f" on rank {rank}")


def suspect_in(sentence: str) -> str:
    """The suspect in a sentence such as ``data on rank 3 (node-0), every step``."""
    if sentence.startswith("Healthy") or sentence == HEALTHY:
        return HEALTHY
    found = re.match(r"([\w. -]+?) on rank (\d+)\b", sentence)
    return f"{found[1]} on rank {found[2]}" if found else re.split(r",| on | \(", sentence)[0]


def shares_of(values: Mapping[str, Any] | None) -> Facts:
    """Shares by stage; in a frame of several runs, stages of another run have none."""
    return {
        ("share", stage): format.percent(share)
        for stage, share in (values or {}).items()
        if share is not None
    }


def in_document(found: Mapping[str, Any]) -> Facts:
    """The JSON object of a window: page, store, report and notebook have the same."""
    name = "carry_over_shares" if found["frontier"] == "carry_over" else "shares"
    step, aim = found["step_time"], found["aim"]
    return {
        **{("step", part): format.duration(step[f"{part}_ns"]) for part in ("mean", "p50", "p95", "longest")},
        ("change", ""): format.percent_change(found.get("change")),
        ("imbalance", ""): format.severity(found.get("exposed_imbalance")),
        SUSPECT: suspect(found["needs_attention"], aim["stage"], aim["rank"]),
        **shares_of(found[name]),
    }


def in_csv(row: Mapping[str, str]) -> Facts:
    """A row of ``analyze --csv``."""
    prefix = "carry_over_share." if row["frontier"] == "carry_over" else "share."
    number = {name: float(value) for name, value in row.items() if re.fullmatch(r"-?[\d.]+(e-?\d+)?", value)}
    shares = {name.removeprefix(prefix): value for name, value in number.items() if name.startswith(prefix)}
    steps = {("step", part): number[f"step_time_{part}_ns"] for part in ("mean", "p50", "p95")}
    return {
        **{key: format.duration(value) for key, value in steps.items()},
        ("change", ""): format.percent_change(number.get("change")),
        ("imbalance", ""): format.severity(number.get("exposed_imbalance")),
        SUSPECT: suspect(row["needs_attention"] == "True", row["aim_stage"], row["aim_rank"]),
        **shares_of(shares),
    }


def in_stored_row(row: Mapping[str, Any]) -> Iterator[Facts]:
    """A row of the store, which notebooks show as it is, and the texts of the table of windows."""
    shares = row["carry_over_shares" if row["frontier"] == "carry_over" else "shares"]
    yield {
        **{("step", part): format.duration(row[f"step_{part}_ns"]) for part in ("mean", "p50", "p95")},
        ("change", ""): format.percent_change(row["change"]),
        ("imbalance", ""): format.severity(row["exposed_imbalance"]),
        SUSPECT: suspect(row["needs_attention"], row["aim_stage"], row["aim_rank"]),
        **shares_of(shares),
    }
    shown = window_row(row)
    p50, p95 = shown["spread"].split(" / ")
    by_name = {format.short_stage(stage): stage for stage in row["stages"]}
    bar = [part[2].split(" ", 1) for part in shown["bar"]]
    yield {
        STEP: shown["time"],
        ("step", "p50"): p50,
        ("step", "p95"): p95,
        **({} if row["is_reference"] else {("change", ""): shown["change"]}),
        ("imbalance", ""): shown["imbalance"],
        SUSPECT: suspect_in(shown["aim"]),
        **{("share", by_name[name]): text for name, text in (*bar, shown["top"].split(" ", 1))},
    }


def in_timeline(point: Mapping[str, Any]) -> Facts:
    """A bar of the timeline of windows."""
    return {
        STEP: format.duration(point["step_time_ns"]),
        SUSPECT: suspect(point["needs_attention"], point["aim_stage"], point["aim_rank"]),
        **shares_of(point["shares"]),
    }


def in_card(diagnosis: Diagnosis) -> Facts:
    """The verdict card: in the app, in reports and in notebooks."""
    card = words.verdict(diagnosis)
    step, imbalance, _ = card.numbers
    change = re.match(r"([+−][\d,.]+ %|±?0 %) vs healthy", step.note)
    return {
        STEP: step.value,
        ("imbalance", ""): imbalance.value,
        SUSPECT: HEALTHY if card.tone == "quiet" else suspect_in(card.sentence),
        **({("change", ""): change[1]} if change else {}),
    }


def decoded(values: Any) -> np.ndarray:
    """Return an array as Plotly receives it."""
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])
    return np.asarray(values)


def in_plots(found: JudgedWindow) -> Iterator[Facts]:
    """Bars and totals of the plots that show shares, their rows as a table, and the stages' table."""
    diagnosis, measures = found.diagnosis, found.measures
    by_name = {format.short_stage(stage): stage for stage in diagnosis.stages}
    blocks, *lines = frontier_steps(measures, diagnosis)["data"]
    step = next(line["name"] for line in lines if line.get("legendrank") == 1).rpartition("frontier ")[2]
    total = sum(blocks["y"])
    risen = {stage: rise / total for stage, rise in zip(blocks["customdata"], blocks["y"], strict=True)}
    yield {STEP: step, **shares_of(risen)}
    bars = routing_pareto(diagnosis)["data"][0]
    yield shares_of({by_name[name]: share for name, share in zip(bars["x"], bars["y"], strict=True)})
    stacks = [trace for trace in step_timeline(measures, diagnosis)["data"] if trace["type"] == "bar"]
    means = {by_name[trace["name"]]: float(decoded(trace["y"]).mean()) for trace in stacks}
    yield shares_of({stage: mean / sum(means.values()) for stage, mean in means.items()})
    rows = stage_rows(diagnosis)
    total = sum(row["advance_ns"] for row in rows)
    yield {
        STEP: format.duration(total),
        **shares_of({row["stage"]: row["advance_ns"] / total for row in rows}),
    }
    key = "carry_share" if diagnosis.frontier == "carry_over" else "share"
    yield shares_of({row["stage"]: row[key] for row in rows})
    rule = RULE_NAMES["carry_over" if diagnosis.frontier == "carry_over" else "frontier"]
    traces = [trace for trace in rules(diagnosis)["data"] if trace["type"] == "bar"]
    yield shares_of({trace["customdata"][0]: trace["x"][trace["y"].index(rule)] for trace in traces})


def in_alternatives(found: JudgedWindow) -> Iterator[tuple[str, Facts]]:
    """What the sentences for screen readers state, by plot; reports print them below the plots."""
    given = WindowInput(found.measures, found.diagnosis, ViewState())
    by_name = {format.short_stage(stage): stage for stage in found.diagnosis.stages}
    for name in ("swim_lane", "frontier_steps", "step_timeline", "routing_pareto"):
        alt = draw_plot(name, given, dark=False)["layout"]["meta"]["alt"]
        facts: dict[tuple[str, str], str] = {}
        step = STEP_WORDS.search(alt)
        if step:
            facts[STEP] = step[0]
        if name == "routing_pareto":
            names = "|".join(map(re.escape, by_name))
            facts |= {
                ("share", by_name[each]): text for each, text in re.findall(rf"({names}) ({_PERCENT})", alt)
            }
        yield name, facts


def in_terminal(text: str) -> Iterator[tuple[str, int, Facts]]:
    """The rows of ``sfapp analyze``, by run and window; a row of several windows has no step of its own."""
    run, columns = "", ["window"]
    for line in text.splitlines():
        if title := re.match(r"run (\S+):", line):
            run = title[1]
        cells = re.split(r" {2,}", line)
        if cells[0] == "window":
            columns = cells
        named = dict(zip(columns, cells, strict=False))
        windows = list(_windows(named["window"]))
        if not run or not windows or len(cells) < 2:
            continue
        facts = {SUSPECT: suspect_in(named["likely cause"])}
        if len(windows) == 1:
            facts |= {STEP: named["step"]}
            facts |= {("change", ""): named["change"]} if re.match("[+−±]", named.get("change", "")) else {}
        for window in windows:
            yield run, window, facts


def _windows(listed: str) -> Iterator[int]:
    for part in re.split(r", | and ", listed):
        ends = re.fullmatch(r"(\d+)(?:–(\d+))?", part)
        if ends:
            yield from range(int(ends[1]), int(ends[2] or ends[1]) + 1)
