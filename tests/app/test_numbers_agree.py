"""Every step time, share, stage and rank shown for a window is the same on every surface."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from sfapp.cli.analyze import analyze
from sfapp.cli.report import report
from sfapp.model.examples import CROSSINGS, DISPLACED
from sfapp.model.view import ViewState, WindowKey
from sfapp.notebook.packets import Packets, open_packets
from sfapp.service.judging import JudgedWindow
from sfapp.service.workspace import Workspace
from sfapp.store import Store, WindowQuery
from sfapp.views import text as words
from sfapp.views.text.problems import problem_text
from tests.app import shown_facts as facts
from tests.app.data_client import client_of
from tests.app.recorded_job import put

SAMPLE = Path(__file__).parent.parent.parent / "sample_data" / "packets" / "gpt-small-ddp"
RUN = "gpt-small-ddp"
CALLBACK = WindowKey(RUN, 10)
"""A callback after the last sync: step-aligned shares blame backward for it."""

WINDOWS = 16
EXAMPLE_KEYS = (WindowKey(DISPLACED.run_id, 0), WindowKey(CROSSINGS.run_id, 0))
KEYS = (*(WindowKey(RUN, number) for number in range(WINDOWS)), *EXAMPLE_KEYS)
REPORTED = (WindowKey(RUN, 1), CALLBACK, *EXAMPLE_KEYS)
"""Windows in the reports: healthy, blamed on another stage by step-aligned shares, and worked examples."""


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


@pytest.fixture(scope="module")
def packets(folders: list[Path]) -> Iterator[Packets]:
    with open_packets(*folders) as packets:
        yield packets


@pytest.mark.parametrize("key", KEYS, ids=str)
async def test_every_surface_shows_the_same_numbers(
    client: httpx.AsyncClient,
    workspace: Workspace,
    packets: Packets,
    csv_rows: dict[WindowKey, dict[str, str]],
    key: WindowKey,
) -> None:
    found = judged(workspace, key)
    in_notebook = packets.window(key.run_id, key.window)
    point = next(
        row for row in workspace.store.timeline(WindowQuery(key.run_id)) if row["window"] == key.window
    )
    surfaces = {
        "json": facts.in_document((await client.get(f"/w/{key}.json")).json()),
        "stored": facts.in_document(workspace.store.diagnosis(key.run_id, key.window).document()),
        "csv": facts.in_csv(csv_rows[key]),
        "timeline": facts.in_timeline(point),
        "card": facts.in_card(found.diagnosis),
        "notebook": facts.in_document(in_notebook.diagnosis.document()),
        "notebook's card": facts.in_card(in_notebook.diagnosis),
        **{f"index {place}": each for place, each in enumerate(facts.in_stored_row(row_of(workspace, key)))},
        **{f"plot {place}": each for place, each in enumerate(facts.in_plots(found))},
        **{f"words of {name}": each for name, each in facts.in_alternatives(found)},
        **{
            f"notebook's windows {place}": each
            for place, each in enumerate(facts.in_stored_row(frame_row(packets, key)))
        },
    }
    expected = facts.expected(found.diagnosis)
    for name, shown in surfaces.items():
        assert shown, name
        for fact, text in shown.items():
            assert text == expected[fact], (name, fact)
    # And together they show every fact
    assert set().union(*surfaces.values()) == set(expected)


def row_of(workspace: Workspace, key: WindowKey) -> dict[str, Any]:
    rows = workspace.store.windows(WindowQuery(run=key.run_id, limit=100)).rows
    return next(row for row in rows if row["window"] == key.window)


def frame_row(packets: Packets, key: WindowKey) -> dict[str, Any]:
    rows = packets.windows.iter_rows(named=True)
    return next(row for row in rows if WindowKey(row["run_id"], row["window"]) == key)


def test_the_terminal_shows_them_too(workspace: Workspace, terminal: str) -> None:
    shown = {WindowKey(run, window): found for run, window, found in facts.in_terminal(terminal)}
    assert set(shown) == set(KEYS)
    for key, found in shown.items():
        expected = facts.expected(judged(workspace, key).diagnosis)
        assert found.items() <= expected.items(), key


def test_a_problem_shows_the_numbers_of_its_windows(workspace: Workspace) -> None:
    problems = workspace.problems(RUN)
    assert len(problems) == 9
    for problem in problems:
        (number,) = problem.windows
        expected = facts.expected(judged(workspace, WindowKey(RUN, number)).diagnosis)
        sentence = problem_text(problem).sentence
        assert f"of {expected[facts.STEP]} per step" in sentence
        stage, _, rank = expected[facts.SUSPECT].partition(" on rank ")
        assert f"in {stage}" in sentence
        assert not rank or f"Rank {rank} " in sentence


@pytest.mark.parametrize("form", ["html", "md"])
def test_reports_show_them_too(workspace: Workspace, folders: list[Path], tmp_path: Path, form: str) -> None:
    text = html.unescape(reported(folders, tmp_path / f"r.{form}"))
    for key in REPORTED:
        found = judged(workspace, key)
        card = words.verdict(found.diagnosis)
        assert facts.in_card(found.diagnosis).items() <= facts.expected(found.diagnosis).items()
        for sentence in (card.headline, card.numbers[0].value, card.why[0], card.evidence_summary):
            assert sentence in text, sentence
        for name, shown in facts.in_alternatives(found):
            assert all(each in text for each in shown.values()), (key, name)


def test_a_report_as_json_has_the_same_objects(
    workspace: Workspace, folders: list[Path], tmp_path: Path
) -> None:
    windows = json.loads(reported(folders, tmp_path / "r.json"))["report"]["windows"]
    assert len(windows) == len(REPORTED)
    for window in windows:
        diagnosis = judged(workspace, WindowKey(window["run_id"], window["window"])).diagnosis
        assert facts.in_document(window["diagnosis"]) == facts.expected(diagnosis)


def reported(folders: list[Path], path: Path) -> str:
    options = [part for key in REPORTED for part in ("--window", str(key))]
    run(report, *folders, *options, "-o", path)
    return path.read_text(encoding="utf-8")


def test_a_fault_after_the_last_sync_has_one_name(workspace: Workspace) -> None:
    # Given a callback on rank 3, which step-aligned shares charge to the next step's backward
    found = judged(workspace, CALLBACK)
    aligned = found.diagnosis.shares or {}
    assert max(aligned, key=lambda stage: aligned[stage]) == "model.backward_cpu_wall"
    # Then every plot has its largest share in callbacks
    for shown in facts.in_plots(found):
        shares = {stage: text for (kind, stage), text in shown.items() if kind == "share"}
        largest = max(shares, key=lambda stage: float(shares[stage].strip("< %")))
        assert largest == "callbacks.cpu_wall"
    assert facts.in_card(found.diagnosis)[facts.SUSPECT] == "callbacks on rank 3"
