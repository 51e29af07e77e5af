"""Every surface lists the same problems of a run, with what users decided about them."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, get_ident

import pytest
from click.testing import CliRunner

from sfapp.cli.analyze import analyze
from sfapp.errors import WindowNotFoundError
from sfapp.model.onsets import StepEstimate
from sfapp.model.problems import Problem
from sfapp.model.view import ViewState
from sfapp.service.judging import WindowJudge
from sfapp.service.onsets import EpisodeLocator
from sfapp.service.packet_windows import load_windows
from sfapp.service.problems import StoredProblems, listed, problems_of_windows
from sfapp.service.verdicts import diagnose_windows
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views.text.problems import problem_text
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER
from tests.store.jobs import SLOW, put, window

SAMPLE = Path(__file__).parents[2] / "sample_data" / "packets"


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    """Those of the sample job, from its packets."""
    loaded = load_windows([SAMPLE])
    windows = [found.window for found in loaded.windows]
    return problems_of_windows(windows, diagnose_windows(windows, ViewState()))


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Store.open([SAMPLE], memory=True) as store:
        store.ingest()
        yield Workspace(store, [SAMPLE])


def test_every_fault_of_the_sample_job_is_one_problem_and_no_healthy_window_is_in_one(
    problems: list[Problem],
) -> None:
    found = {
        (one.kind, one.stage, one.ranks, one.windows) for one in problems if one.run_id == "gpt-small-ddp"
    }
    assert found == {
        ("rank", DATA, (3,), (3,)),
        ("turns", DATA, tuple(range(8)), (4,)),
        ("rank", FORWARD, (5,), (6,)),
        ("growth", BACKWARD, (), (7,)),
        ("rank", CALLBACKS, (6,), (8,)),
        ("growth", CALLBACKS, (), (9,)),
        ("rank", CALLBACKS, (3,), (10,)),
        ("rank", OPTIMIZER, (1,), (11,)),
        ("rank", DATA, (0,), (13,)),
    }


def test_a_rank_that_did_not_report_comes_first(problems: list[Problem]) -> None:
    first = problems[0]
    assert (first.kind, first.run_id, first.ranks) == ("missing", "gpt-small-rank-lost", (7,))
    assert problem_text(first).title == "Rank 7 is missing"


def test_they_began_where_the_faults_were_injected(problems: list[Problem]) -> None:
    began = {(one.ranks, one.stage): one.began for one in problems if one.run_id == "gpt-small-ddp"}
    for rank, stage, step in ((3, DATA, 120), (5, FORWARD, 240), (3, CALLBACKS, 400), (0, DATA, 520)):
        assert began[(rank,), stage] == StepEstimate(step, step, step)


def test_the_store_has_the_same_problems_as_the_packets(
    workspace: Workspace, problems: list[Problem]
) -> None:
    assert workspace.problems() == problems
    for problem in problems:
        assert workspace.problem(problem.id) == problem


def test_of_a_long_run_the_packets_and_the_store_have_the_same_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a run with more slow windows than are searched
    monkeypatch.setattr("sfapp.service.problems.MOST_WINDOWS", 3)
    for number in range(12):
        put(tmp_path, window("run", number, extra=SLOW if number in (3, 4, 7, 8) else None))
    windows = [found.window for found in load_windows([tmp_path]).windows]
    # When its problems are found in the packets and in the store
    of_packets = problems_of_windows(windows, diagnose_windows(windows, ViewState()))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        of_store = Workspace(store, [tmp_path]).problems("run")
    # Then both are of the latest ones
    assert of_packets == of_store
    assert [one.windows for one in of_store] == [(7, 8)]


def test_without_reading_packets_they_are_known_to_the_window(workspace: Workspace) -> None:
    with Store.open([SAMPLE], memory=True) as store:
        store.ingest()
        fresh = Workspace(store, [SAMPLE])
        quick = fresh.problems(locates=False)
        ends = fresh.locate_problems().result()
        fresh.close()
    located = workspace.problems()
    assert [(one.id, one.windows, one.cost) for one in quick] == [
        (one.id, one.windows, one.cost) for one in located
    ]
    assert all(one.began.low <= two.began.low for one, two in zip(quick, located, strict=True))
    # And with the packets of the first and the last episode alone, their ends are known as well as with all
    assert [(one.id, one.began, one.ended_at) for one in ends] == [
        (one.id, one.began, one.ended_at) for one in located
    ]


def test_a_missing_problem_is_reported(workspace: Workspace) -> None:
    with pytest.raises(WindowNotFoundError, match="no problem 'ffffffff'"):
        workspace.problem("ffffffff")


def test_analyze_begins_with_them_and_its_json_has_them(problems: list[Problem]) -> None:
    lines = CliRunner().invoke(analyze, [str(SAMPLE)], catch_exceptions=False).stdout.splitlines()
    lines = lines[: lines.index("run gpt-small-ddp: 8 ranks on 2 nodes")]
    assert lines[0] == "11 problems, 2 not ended when recording stopped"
    titles = [problem_text(problem).title for problem in problems]
    assert [line for line in lines if line.startswith(tuple(titles))] == [
        ", ".join(filter(None, (text.title, text.steps))) for text in map(problem_text, problems)
    ]
    printed = CliRunner().invoke(analyze, [str(SAMPLE), "--json"], catch_exceptions=False).stdout
    assert [one["id"] for one in json.loads(printed)["problems"]] == [one.id for one in problems]


def test_analyze_writes_windows_with_the_same_verdict_in_one_row() -> None:
    printed = CliRunner().invoke(analyze, [str(SAMPLE)], catch_exceptions=False).stdout
    assert "\n0–2, 5, 12 and 14–15  88.8 ms … 90.4 ms  " in printed


def test_without_a_decision_the_windows_determine_whether_it_is_over(problems: list[Problem]) -> None:
    statuses = {one.problem.windows: one.status for one in listed(problems)}
    assert statuses[2,] == statuses[1,] == "ongoing"
    assert statuses[13,] == "ended"


def test_problems_of_earlier_states_of_a_store_are_not_kept(tmp_path: Path) -> None:
    """A running job changes the store with each of its windows, for weeks."""
    shutil.copytree(SAMPLE, tmp_path / "packets")
    counts = []
    with Store.open([tmp_path / "packets"], memory=True) as store:
        workspace = Workspace(store, [tmp_path / "packets"])
        for packet in (None, *sorted((tmp_path / "packets").rglob("*.parquet"))[-3:]):
            if packet is not None:
                packet.unlink()
            store.ingest()
            assert workspace.problems()
            counts.append(sum(isinstance(each, Problem) for each in gc.get_objects()))
    assert counts[-1] <= counts[0]


@pytest.mark.parametrize("locates", [False, True])
def test_two_that_ask_at_the_same_time_get_problems_that_are_derived_once(
    tmp_path: Path, locates: bool
) -> None:
    for number in range(4):
        put(tmp_path, window("run", number, extra=SLOW if number > 1 else None))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        both = Barrier(2, timeout=60)
        threads = set[int]()

        def store_of(run_id: str) -> Store:
            """Both look for what is known before either derives it."""
            if get_ident() not in threads:
                threads.add(get_ident())
                both.wait()
            return store

        stored = StoredProblems(store_of, EpisodeLocator(WindowJudge(lambda _: store)))
        with ThreadPoolExecutor(2) as pool:
            (first,), (second,) = pool.map(stored.of_runs, [["run"], ["run"]], [locates, locates])
        assert first is second


def test_a_problem_that_goes_while_it_is_read_is_not_found(tmp_path: Path) -> None:
    # Given a store whose packets are removed between the two looks at a problem
    run = tmp_path / "gpt-small-rank-lost"
    shutil.copytree(SAMPLE / run.name, run)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        looks = 0

        def store_of(_: str) -> Store:
            nonlocal looks
            looks += 1
            if looks == 2:
                shutil.rmtree(run)
                store.ingest()
            return store

        problems = StoredProblems(store_of, EpisodeLocator(WindowJudge(lambda _: store)))
        (problem,) = Workspace(store, [tmp_path]).problems(locates=False)
        # When it is asked for, then the reason says that it is gone
        with pytest.raises(WindowNotFoundError, match="its windows may have been removed"):
            problems.named(problem.id, [problem.run_id])
        assert looks == 2
