"""Every surface says where in a run its effects began and ended, from a few packets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

import sfapp
from benchmarks.ensemble.simulated_jobs import Fault, SimulatedJob, simulate
from sfapp.accounting import diagnose_runs
from sfapp.app import api
from sfapp.incidents import state_from_events
from sfapp.model import Window
from sfapp.model.onsets import StepEstimate
from sfapp.model.view import WindowKey
from sfapp.packets import packet_path, read_windows, write_packet
from sfapp.report.build import ReportRequest, build_report
from sfapp.report.parts import Section
from sfapp.service.onsets import MOST_LOCATED, run_episodes
from sfapp.service.packet_evidence import PacketEvidence
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.service.store_evidence import StoreEvidence
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views.text.onsets import episode_line
from tests.builders import BACKWARD, DATA

JOB = SimulatedJob(
    seed=1, ranks=4, meets=(BACKWARD,), noise=0.01, tails=False, memory=0.0, common=0.0, bias=0.0, drift=0.0,
    windows=6, faults=(Fault("persistent", DATA, 3, 0.2, 93, 171),),
)  # fmt: skip
RUN = "job-1"
LINE = "rank 3 · data: began at step 93, ended at step 170"


@pytest.fixture(scope="module")
def windows() -> list[Window]:
    return simulate(JOB, waits=True)


@pytest.fixture(scope="module")
def packets(windows: list[Window], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packets")
    for window in windows:
        path = packet_path(root, window.run_id, window.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_packet(window, path)
    return root


@pytest.fixture(scope="module")
def workspace(packets: Path) -> Iterator[Workspace]:
    with Store.open([packets], memory=True) as store:
        store.ingest()
        yield Workspace(store, [packets])


def test_only_the_windows_at_the_edges_are_read(windows: list[Window]) -> None:
    read: list[int] = []

    def reading(number: int) -> Window:
        read.append(number)
        return windows[number]

    (episode,) = run_episodes(diagnose_runs(windows), reading)
    assert episode_line(episode) == LINE
    assert read == [1, 2, 4, 5] or read == [1, 2, 3, 4]


def test_of_many_episodes_the_latest_are_located() -> None:
    faults = tuple(
        Fault("persistent", DATA, 3, 0.3, 80 * number + 43, 80 * number + 77)
        for number in range(MOST_LOCATED + 3)
    )
    windows = simulate(replace(JOB, faults=faults, windows=2 * len(faults) + 1), waits=True)
    found = run_episodes(diagnose_runs(windows), lambda number: windows[number])
    assert len(found) == len(faults)
    assert [one.began.step is None for one in found] == [True] * 3 + [False] * MOST_LOCATED
    assert found[-1].began == StepEstimate(faults[-1].first, faults[-1].first, faults[-1].first)


def test_the_store_says_the_same_and_says_it_again_from_memory(
    workspace: Workspace, windows: list[Window]
) -> None:
    found = workspace.episodes(RUN)
    assert found == run_episodes(diagnose_runs(windows), windows.__getitem__)
    assert workspace.episodes(RUN) is found
    assert workspace.episodes("no-such-run") == []
    assert workspace.episodes(RUN, 3) == found
    assert workspace.episodes(RUN, 0) == workspace.episodes(RUN, 99) == []


async def test_a_run_has_them_as_json(workspace: Workspace) -> None:
    application = FastAPI()
    api.build(application, workspace)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        found = (await client.get(f"/runs/{RUN}.json")).json()["episodes"]
        described = (await client.get("/openapi.json")).json()["paths"]["/runs/{run}.json"]["get"]
    assert found == json.loads(json.dumps([asdict(episode) for episode in workspace.episodes(RUN)]))
    assert all(f"`{name}`" in described["description"] for name in found[0] if name != "run_id")


def test_the_run_s_plot_marks_them(workspace: Workspace) -> None:
    from sfapp.views.figures.history import run_history

    rows, episodes = workspace.timeline(RUN), workspace.episodes(RUN)
    (marks,) = [
        one for one in run_history(rows, episodes=episodes)["data"] if one["name"] == "began and ended"
    ]
    # Step 93 is the 14th of the 40 steps of window 2
    assert marks["x"][0] == pytest.approx(1.5 + 13.5 / 40, abs=1e-3)
    assert marks["marker"]["symbol"] == ["triangle-right", "triangle-left"]
    assert marks["hovertext"] == [LINE, LINE]
    assert all(one["name"] != "began and ended" for one in run_history(rows)["data"])


@pytest.mark.parametrize("ending", ["md", "html", "pdf", "json"])
def test_a_report_says_them_of_its_windows(packets: Path, ending: str) -> None:
    request = ReportRequest(
        output=f"report.{ending}",
        paths=("packets",),
        windows=(WindowKey(RUN, 3), WindowKey(RUN, 0)),
        at=datetime(2026, 11, 21, tzinfo=UTC),
    )
    evidence = PacketEvidence(list(read_windows([packets]).windows))
    report, files = build_report(request, evidence, state_from_events(()), version="1.2.3")
    assert [section.onsets for section in report.of(Section)] == [LINE, ""]
    (made,) = [content for name, content in files.items() if name.endswith(f".{ending}")]
    if ending in ("md", "html"):
        assert LINE.encode() in made
    elif ending == "json":
        first, other = json.loads(made)["report"]["windows"]
        assert first["episodes"][0]["began"]["step"] == 93
        assert other["episodes"] == []


def test_a_redacted_report_names_neither_run_nor_host(workspace: Workspace, windows: list[Window]) -> None:
    evidence = StoreEvidence(workspace, Pseudonyms.of(windows), lambda _: None)
    (episode,) = evidence.episodes(WindowKey("run-1", 3))
    assert (episode.run_id, episode.hostname) == ("run-1", "host-1")


def test_a_notebook_has_them_as_a_frame(packets: Path) -> None:
    with sfapp.open(packets) as opened:
        frame = opened.onsets(RUN)
    assert frame.select("kind", "stage", "began", "began_low", "began_high", "ended").row(0) == (
        "rank", DATA, 93, 93, 93, 170,
    )  # fmt: skip
    assert frame["ranks"].to_list() == [[3]]


@pytest.mark.parametrize(("gone", "began"), [(1, StepEstimate(93, 93, 93)), (2, StepEstimate(None, 40, 119))])
def test_a_packet_that_went_since_widens_the_interval_beside_it_where_it_must(
    packets: Path, tmp_path: Path, gone: int, began: StepEstimate
) -> None:
    copies = {}
    for path in sorted(packets.glob(f"{RUN}/*.parquet")):
        copies[path.name] = tmp_path / RUN / path.name
        copies[path.name].parent.mkdir(exist_ok=True)
        copies[path.name].write_bytes(path.read_bytes())
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        list(copies.values())[gone].unlink()
        (episode,) = Workspace(store, [tmp_path]).episodes(RUN)
    assert episode.began == began
    assert episode.ended == StepEstimate(170, 170, 170)


def test_words_say_what_is_known() -> None:
    windows = simulate(JOB, waits=True)
    (episode,) = run_episodes(diagnose_runs(windows), windows.__getitem__)
    assert episode_line(replace(episode, ranks=(3, 4, 5, 9))).startswith("ranks 3–5 and 9 · data")
    assert episode_line(replace(episode, ended=None)).endswith(
        "began at step 93, lasts to the end of the run"
    )
    wide = replace(episode, ranks=(), kind="growth", began=StepEstimate(None, 80, 119))
    assert episode_line(wide).startswith("growth · data: began between steps 80 and 119,")
    near = replace(episode, began=StepEstimate(93, 90, 94))
    assert "began at step 93 (90–94)" in episode_line(near)
