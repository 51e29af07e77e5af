"""One window has one step time, one top stage with one share and one suspect, on every surface."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner

from sfapp.cli.analyze import analyze
from sfapp.cli.report import report
from sfapp.model import Diagnosis
from sfapp.model.examples import CROSSINGS, DISPLACED
from sfapp.model.view import ViewState, WindowKey
from sfapp.service.judging import JudgedWindow
from sfapp.service.workspace import Workspace
from sfapp.store import Store, WindowQuery
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.figures.frontier import frontier_steps
from sfapp.views.figures.routing import routing_pareto
from sfapp.views.figures.step_timeline import step_timeline
from sfapp.views.tables import stage_rows
from sfapp.views.window_list_rows import window_row
from tests.app.data_client import client_of
from tests.app.recorded_job import put

SAMPLE = Path(__file__).parent.parent.parent / "sample_data" / "packets" / "gpt-small-ddp"
RUN = "gpt-small-ddp"
CALLBACK = WindowKey(RUN, 10)
"""A callback after the last sync: step-aligned shares blame backward for it."""

KEYS = (
    WindowKey(RUN, 1),
    WindowKey(RUN, 3),
    WindowKey(RUN, 8),
    CALLBACK,
    WindowKey(DISPLACED.run_id, 0),
    WindowKey(CROSSINGS.run_id, 0),
)


@dataclass(frozen=True)
class Shown:
    """What one surface shows of a window; None where it does not show it.

    Attributes:
        step: the mean step. top: the stage with the largest share, and the share.
        suspect: stage and rank; the string ``healthy`` for a healthy window.
    """

    step: str | None = None
    top: tuple[str, str] | None = None
    suspect: tuple[str, str] | str | None = None


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("examples")
    for example in (DISPLACED, CROSSINGS):
        put(root, example.window())
    return [SAMPLE, root]


@pytest.fixture(scope="module")
def workspace(folders: list[Path]) -> Iterator[Workspace]:
    with Store.open(folders, memory=True) as store:
        store.ingest()
        yield Workspace(store, folders)


@pytest.fixture
async def client(workspace: Workspace) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(workspace) as client:
        yield client


def judged(workspace: Workspace, key: WindowKey) -> JudgedWindow:
    return workspace.judge(workspace.source(key), ViewState())


def run(command: Any, *arguments: str | Path) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def csv_rows(folders: list[Path]) -> dict[WindowKey, dict[str, str]]:
    rows = csv.DictReader(io.StringIO(run(analyze, *folders, "--csv")))
    return {WindowKey(row["run_id"], int(row["window"])): row for row in rows}


@pytest.fixture(scope="module")
def terminal(folders: list[Path]) -> str:
    return run(analyze, *folders)


def stage_and_share(stage: str, share: float) -> tuple[str, str]:
    return format.short_stage(stage), format.percent(share)


def suspect_of(needs_attention: bool, stage: str, rank: object) -> tuple[str, str] | str:
    return (
        (format.short_stage(stage), "" if rank in (None, "") else str(rank)) if needs_attention else "healthy"
    )


def in_document(found: dict[str, Any]) -> Shown:
    name = "carry_over_shares" if found["frontier"] == "carry_over" else "shares"
    top, aim = found["routing_set"][0], found["aim"]
    return Shown(
        format.duration(found["step_time"]["mean_ns"]),
        stage_and_share(top, found[name][top]),
        suspect_of(found["needs_attention"], aim["stage"], aim["rank"]),
    )


def in_csv(row: dict[str, str]) -> Shown:
    name = "carry_over_share" if row["frontier"] == "carry_over" else "share"
    top = row["routing_set"].split(";")[0]
    return Shown(
        format.duration(float(row["step_time_mean_ns"])),
        stage_and_share(top, float(row[f"{name}.{top}"])),
        suspect_of(row["needs_attention"] == "True", row["aim_stage"], row["aim_rank"]),
    )


def in_index(workspace: Workspace, key: WindowKey) -> Iterator[Shown]:
    """The row of the table, its bar of shares, and the timeline above it."""
    rows = workspace.store.windows(WindowQuery(run=key.run_id)).rows
    row = next(row for row in rows if row["window"] == key.window)
    shown = window_row(row)
    stage, _, share = shown["top"].partition(" ")
    suspect, _, rank = shown["aim"].partition(" on rank ")
    yield Shown(shown["time"], (stage, share), "healthy" if suspect == "healthy" else (suspect, rank))
    largest = max(shown["bar"], key=lambda part: part[1])[2]
    yield Shown(top=tuple(largest.split(" ", 1)))
    point = next(row for row in workspace.store.timeline(key.run_id) if row["window"] == key.window)
    top = max(point["shares"], key=point["shares"].get)
    yield Shown(
        format.duration(point["step_time_ns"]),
        stage_and_share(top, point["shares"][top]),
        suspect_of(point["needs_attention"], point["aim_stage"], point["aim_rank"]),
    )


def in_card(diagnosis: Diagnosis) -> Shown:
    card = words.verdict(diagnosis)
    stage, _, rank = card.headline.partition(" on rank ")
    return Shown(card.numbers[0].value, suspect="healthy" if card.tone == "quiet" else (stage, rank))


def decoded(values: dict[str, str]) -> np.ndarray:
    """Return an array as Plotly receives it."""
    return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])


def in_plots(found: JudgedWindow) -> Iterator[Shown]:
    """The frontier's total and tallest block, the largest bar of the routing set, the steps' mean, and the
    table of stages."""
    diagnosis = found.diagnosis
    blocks, *lines = frontier_steps(found.measures, diagnosis)["data"]
    step = next(line["name"] for line in lines if line.get("legendrank") == 1).rpartition("frontier ")[2]
    tallest = max(range(len(blocks["y"])), key=lambda place: blocks["y"][place])
    yield Shown(step, stage_and_share(blocks["customdata"][tallest], blocks["y"][tallest] / sum(blocks["y"])))
    bars = routing_pareto(diagnosis)["data"][0]
    yield Shown(top=(bars["x"][0], format.percent(bars["y"][0])))
    stacks = [trace for trace in step_timeline(found.measures, diagnosis)["data"] if trace["type"] == "bar"]
    means = {trace["name"]: float(decoded(trace["y"]).mean()) for trace in stacks}
    largest = max(means, key=lambda name: means[name])
    yield Shown(top=(largest, format.percent(means[largest] / sum(means.values()))))
    rows = stage_rows(diagnosis)
    longest = max(rows, key=lambda row: row["advance_ns"])
    total = sum(row["advance_ns"] for row in rows)
    yield Shown(format.duration(total), (longest["name"], format.percent(longest["advance_ns"] / total)))


@pytest.mark.parametrize("key", KEYS, ids=str)
async def test_every_surface_shows_the_same_numbers(
    client: httpx.AsyncClient,
    workspace: Workspace,
    csv_rows: dict[WindowKey, dict[str, str]],
    key: WindowKey,
) -> None:
    found = judged(workspace, key)
    document = in_document((await client.get(f"/w/{key}.json")).json())
    surfaces = {
        "stored": in_document(workspace.store.diagnosis(key.run_id, key.window).document()),
        "csv": in_csv(csv_rows[key]),
        "card": in_card(found.diagnosis),
        **{f"index {place}": shown for place, shown in enumerate(in_index(workspace, key))},
        **{f"plot {place}": shown for place, shown in enumerate(in_plots(found))},
    }
    for name, shown in surfaces.items():
        for value in ("step", "top", "suspect"):
            assert getattr(shown, value) in (None, getattr(document, value)), (name, value)
    assert document.suspect == "healthy" or document.top is not None


def is_row_of(line: str, window: int, step: str) -> bool:
    """Whether a row of the terminal is about a window: by itself with its step time, or among others."""
    first, _, rest = line.partition("  ")
    parts = [re.fullmatch(r"(\d+)(?:–(\d+))?", part) for part in re.split(", | and ", first)]
    ends = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    if not any(low <= window <= high for low, high in ends):
        return False
    return step in rest or " … " in rest


def test_terminal_and_report_show_them_too(
    workspace: Workspace, folders: list[Path], terminal: str, tmp_path: Path
) -> None:
    for key in KEYS:
        diagnosis = judged(workspace, key).diagnosis
        step, sentence = format.duration(diagnosis.step_time.mean_ns), words.summary(diagnosis)
        assert any(
            is_row_of(line, key.window, step) and sentence in line for line in terminal.splitlines()
        ), key
    run(report, *folders, "--window", str(CALLBACK), "-o", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    card = words.verdict(judged(workspace, CALLBACK).diagnosis)
    for sentence in (card.headline, card.numbers[0].value, card.why[0], card.evidence_summary):
        assert sentence in text, sentence


def test_a_fault_after_the_last_sync_has_one_name(workspace: Workspace) -> None:
    # Given a callback on rank 3, which step-aligned shares charge to the next step's backward
    found = judged(workspace, CALLBACK)
    assert max(found.diagnosis.shares or {}, key=lambda stage: (found.diagnosis.shares or {})[stage]) == (
        "model.backward_cpu_wall"
    )
    # Then index, timeline, card and every plot say callbacks
    shown = [*in_index(workspace, CALLBACK), in_card(found.diagnosis), *in_plots(found)]
    assert {each.top[0] for each in shown if each.top} == {"callbacks"}
    assert {each.suspect for each in shown if each.suspect} == {("callbacks", "3")}
