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
from sfapp.accounting.episodes import episodes_of
from sfapp.accounting.problems import MOST_LOCATED
from sfapp.app import api
from sfapp.incidents import state_from_events
from sfapp.model import Window
from sfapp.model.onsets import StepEstimate
from sfapp.model.view import WindowKey
from sfapp.packets import packet_path, read_windows, write_packet
from sfapp.report.build import ReportRequest, build_report
from sfapp.report.parts import Section
from sfapp.service.onsets import located_by
from sfapp.service.packet_evidence import PacketEvidence
from sfapp.service.problems import episodes_in, problems_of_windows
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.service.store_evidence import StoreEvidence
from sfapp.service.workspace import Workspace
from sfapp.store import Store, WindowQuery
from sfapp.views.text.onsets import episode_line
from tests.builders import BACKWARD, DATA

JOB = SimulatedJob(
    seed=1, ranks=4, sync_stages=(BACKWARD,), noise=0.01,
    tails=False, memory=0.0, common=0.0, bias=0.0, drift=0.0,
    windows=6, faults=(Fault("persistent", DATA, 3, 0.2, 93, 171),),
)  # fmt: skip
RUN = "job-1"
SENTENCE = "Rank 3 (node-0) is late in data, every step · windows 2–4 of job-1 · began at step 93"
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

    (found,) = episodes_of(diagnose_runs(windows))
    assert episode_line(located_by(reading)(found)) == LINE
    assert read == [1, 2, 4, 5] or read == [1, 2, 3, 4]


def test_of_many_episodes_the_first_and_the_latest_are_located() -> None:
    faults = tuple(
        Fault("persistent", DATA, 3, 0.3, 80 * number + 43, 80 * number + 77)
        for number in range(MOST_LOCATED + 3)
    )
    windows = simulate(replace(JOB, faults=faults, windows=2 * len(faults) + 1), waits=True)
    (problem,) = problems_of_windows(windows, diagnose_runs(windows))
    found = problem.episodes
    assert len(found) == len(faults)
    unknown = [place for place, one in enumerate(found) if one.began.step is None]
    assert unknown == [1, 2, 3]
    assert found[-1].began == StepEstimate(faults[-1].first, faults[-1].first, faults[-1].first)


def test_the_store_gives_the_same_result_and_repeats_it_from_its_cache(
    workspace: Workspace, windows: list[Window]
) -> None:
    found = workspace.problems(RUN)
    assert found == problems_of_windows(windows, diagnose_runs(windows))
    assert workspace.problems(RUN) == found
    assert workspace.problems("no-such-run") == []


async def test_a_run_has_them_as_json(workspace: Workspace) -> None:
    application = FastAPI()
    api.build(application, workspace)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        found = (await client.get(f"/runs/{RUN}.json")).json()["episodes"]
        described = (await client.get("/openapi.json")).json()["paths"]["/runs/{run}.json"]["get"]
    assert found == json.loads(
        json.dumps([asdict(episode) for episode in episodes_in(workspace.problems(RUN))])
    )
    assert all(f"`{name}`" in described["description"] for name in found[0] if name != "run_id")


def test_the_run_s_plot_marks_them(workspace: Workspace) -> None:
    from sfapp.views.figures.history import run_history

    rows, episodes = workspace.timeline(WindowQuery(RUN)), episodes_in(workspace.problems(RUN))
    (marks,) = [
        one for one in run_history(rows, episodes=episodes)["data"] if one["name"] == "began and ended"
    ]
    # Step 93 is the 14th of the 40 steps of window 2
    assert marks["x"][0] == pytest.approx(1.5 + 13.5 / 40, abs=1e-3)
    assert marks["marker"]["symbol"] == ["triangle-right", "triangle-left"]
    assert marks["hovertext"] == [LINE, LINE]
    assert all(one["name"] != "began and ended" for one in run_history(rows)["data"])


@pytest.mark.parametrize("ending", ["md", "html", "pdf", "json"])
def test_a_report_lists_them_for_its_windows(packets: Path, ending: str) -> None:
    request = ReportRequest(
        output=f"report.{ending}",
        paths=("packets",),
        windows=(WindowKey(RUN, 3), WindowKey(RUN, 0)),
        at=datetime(2026, 11, 21, tzinfo=UTC),
    )
    evidence = PacketEvidence(list(read_windows([packets]).windows))
    report, files = build_report(request, evidence, state_from_events(()), version="1.2.3")
    first, other = report.of(Section)
    assert [line.startswith(SENTENCE) for line in first.problem_lines] == [True]
    assert other.problem_lines == ()
    (made,) = [content for name, content in files.items() if name.endswith(f".{ending}")]
    if ending in ("md", "html"):
        assert SENTENCE.partition(",")[0].encode() in made
    elif ending == "json":
        with_problem, without = json.loads(made)["report"]["windows"]
        assert with_problem["problems"][0]["began"]["step"] == 93
        assert without["problems"] == []


def test_a_redacted_report_names_neither_run_nor_host(workspace: Workspace, windows: list[Window]) -> None:
    evidence = StoreEvidence(workspace, Pseudonyms.of(windows), lambda _: None)
    (problem,) = evidence.problems(WindowKey("run-1", 3))
    (real,) = workspace.problems(RUN)
    assert (problem.run_id, problem.hostname) == ("run-1", "host-1")
    assert (problem.episodes[0].run_id, problem.episodes[0].hostname) == ("run-1", "host-1")
    assert problem.id != real.id


def test_a_notebook_has_them_as_a_frame(packets: Path) -> None:
    with sfapp.open(packets) as opened:
        frame, problems = opened.onsets(RUN), opened.problems
    assert problems["sentence"].str.starts_with(SENTENCE).to_list() == [True]
    assert problems.select("began", "ended").row(0) == (93, 170)
    assert frame.select("kind", "stage", "began", "began_low", "began_high", "ended").row(0) == (
        "rank", DATA, 93, 93, 93, 170,
    )  # fmt: skip
    assert frame["ranks"].to_list() == [[3]]


@pytest.mark.parametrize(("gone", "began"), [(1, StepEstimate(93, 93, 93)), (2, StepEstimate(None, 40, 119))])
def test_a_deleted_packet_widens_the_interval_next_to_it_if_necessary(
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
        (episode,) = episodes_in(Workspace(store, [tmp_path]).problems(RUN))
    assert episode.began == began
    assert episode.ended == StepEstimate(170, 170, 170)


def test_the_text_states_what_is_known() -> None:
    windows = simulate(JOB, waits=True)
    (episode,) = episodes_in(problems_of_windows(windows, diagnose_runs(windows)))
    assert episode_line(replace(episode, ranks=(3, 4, 5, 9))).startswith("ranks 3–5 and 9 · data")
    assert episode_line(replace(episode, ended=None)).endswith(
        "began at step 93, lasts to the end of the run"
    )
    wide = replace(episode, ranks=(), kind="growth", began=StepEstimate(None, 80, 119))
    assert episode_line(wide).startswith("growth · data: began between steps 80 and 119,")
    near = replace(episode, began=StepEstimate(93, 90, 94))
    assert "began at step 93 (90–94)" in episode_line(near)
