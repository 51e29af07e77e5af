"""``sfapp compact`` reduces old windows to verdicts and some steps, and keeps what is of interest."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sfapp.app.panels.item_evidence import ViewEvidence, evidence_of
from sfapp.assistants.problem_tools import get_problem
from sfapp.assistants.tool_arguments import ProblemArguments
from sfapp.errors import PacketError
from sfapp.incidents import IncidentEditor, IncidentLog
from sfapp.model.incidents import Pin
from sfapp.model.sides import parse_compare
from sfapp.model.view import WindowKey
from sfapp.packets import read_window, read_windows, write_packet
from sfapp.packets.paths import thinned_path
from sfapp.report.workspace_report import ReportOptions, ReportProgress, incident_report
from sfapp.service import thinning
from sfapp.service.compare import compare_sides
from sfapp.service.fleet import fleet_of
from sfapp.service.problem_view import ProblemView
from sfapp.service.thinning import ThinningPlan, some_steps, thin_packets
from sfapp.service.workspace import Workspace
from sfapp.store import Store, WindowQuery, ingest_to_dataset
from sfapp.views import text
from sfapp.views.text.compare import CAVEAT_WORDS
from tests.app.data_client import client_of
from tests.app.recorded_job import job_window, waiting_window
from tests.app.simulation import simulated
from tests.builders import reduced
from tests.commands import run_sfapp
from tests.store.jobs import SLOW, SLOW_EVERYWHERE, contents, put, put_part, window

WINDOWS = 10
NOW = datetime.now(UTC).replace(hour=12)  # The windows of a run begin on one day.


def moment(days: float) -> str:
    return (NOW - timedelta(days=days)).isoformat().replace("+00:00", "Z")


@pytest.fixture
def packets(tmp_path: Path) -> Path:
    """A run of ten old windows, the sixth of which is slow, and one of new windows."""
    root = tmp_path / "packets"
    for run, days in (("old", 60.0), ("new", 1.0)):
        for number in range(WINDOWS):
            at = moment(days - number / 1000)
            extra = SLOW if number == 5 else None
            put(root, window(run, number, extra=extra, started_at=at, ended_at=at))
    return root


def compacted(root: Path, *arguments: object) -> str:
    result = run_sfapp("compact", root, "--older-than", 30, "--steps", 4, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def thinned_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.thinned.parquet"))


def stored(root: Path, tmp_path: Path) -> dict[str, list[str]]:
    db = tmp_path / "compared.duckdb"
    with Store.open([root], db) as store:
        store.ingest()
    found = contents(db)
    db.unlink()
    return {name: found[name] for name in ("windows", "stages", "run_references")}


def test_temporary_files_of_killed_processes_are_removed(packets: Path) -> None:
    left = packets / "old" / ".00000099.parquet.4711.01234567.tmp"
    left.write_bytes(b"half a packet")
    os.utime(left, (0, 0))
    assert json.loads(compacted(packets, "--dry-run", "--json"))["report"]["leftovers"] == 0
    assert left.exists()
    assert json.loads(compacted(packets, "--json"))["report"]["leftovers"] == 1
    assert not left.exists()


def test_old_windows_are_thinned_and_their_verdicts_stay(packets: Path, tmp_path: Path) -> None:
    before = stored(packets, tmp_path)
    printed = compacted(packets)
    with Store.open([packets], memory=True) as store:
        store.ingest()
        healthy = {row["window"] for row in store.timeline(WindowQuery("old")) if row["is_reference"]}
        kept = {4, 5, 6, WINDOWS - 1} | healthy
        expected = [f"old/{number:08d}.thinned.parquet" for number in range(WINDOWS) if number not in kept]
        assert thinned_in(packets) == expected != []
        assert f"{len(expected)} windows thinned to 4 steps" in printed
        assert len(store.window("old", 0).step_N) == 4
        assert len(store.window("old", 5).step_N) > 4
    assert stored(packets, tmp_path) == before
    assert len(list((packets / "new").glob("*.parquet"))) == WINDOWS


@pytest.mark.parametrize("served", [".", "packets", "packets/old"], ids=["above", "itself", "below"])
def test_a_reference_chosen_in_the_app_is_kept_with_the_problems_that_it_shows(
    packets: Path, served: str
) -> None:
    # Given a run that is slower than its first window, which a user chose
    for number in range(WINDOWS):
        at = moment(60.0 - number / 1000)
        extra = None if number == 0 else SLOW_EVERYWHERE
        put(packets, window("old", number, extra=extra, started_at=at, ended_at=at))
    with Store.open([packets.parent / served]) as app:
        app.ingest()
        app.set_reference("old", 0)
    compacted(packets)
    assert thinned_in(packets) == []


def test_again_changes_nothing_and_a_store_that_was_open_follows(packets: Path, tmp_path: Path) -> None:
    with Store.open([packets], tmp_path / "store.duckdb") as store:
        store.ingest()
        found = fleet_of(store).hosts, store.runs()
        compacted(packets)
        store.ingest()
        assert (fleet_of(store).hosts, store.runs()) == found
        assert len(store.window("old", 0).step_N) == 4
        assert not store.ingest().changed
    thinned = thinned_in(packets)
    assert compacted(packets).startswith("0 windows thinned")
    assert thinned_in(packets) == thinned


def test_packets_of_another_folder_that_a_dataset_names_stay(packets: Path, tmp_path: Path) -> None:
    target = tmp_path / "dataset"
    assert run_sfapp("ingest", packets, "--to", f"{target}/").returncode == 0
    before = sorted(packets.rglob("*.parquet"))
    assert "in another folder" in compacted(target, "--dry-run")
    assert compacted(target).startswith("0 windows thinned")
    assert sorted(packets.rglob("*.parquet")) == before


def test_a_dry_run_lists_and_writes_nothing(packets: Path) -> None:
    before = sorted(packets.rglob("*"))
    found = json.loads(compacted(packets, "--dry-run", "--json"))
    assert sorted(packets.rglob("*")) == before
    assert "old/0" in found["windows"]
    assert "old/5" not in found["windows"]
    assert found["kept"]["too new, or without a time"] == WINDOWS
    assert "would be thinned; kept:" in compacted(packets, "--dry-run")


def test_what_notes_and_incidents_refer_to_is_kept(packets: Path) -> None:
    log = IncidentLog.for_packets(packets)
    editor = IncidentEditor(log, "Ana")
    editor.write_note("look", Pin(window=WindowKey("old", 0)))
    editor.open_incident("slow", "high", "open", "")
    (incident,) = log.state().incidents
    editor.add_window(incident, WindowKey("old", 1))
    editor.add_comparison(incident, "a=old/2&b=old/5")
    found = json.loads(compacted(packets, "--dry-run", "--json"))
    assert not {"old/0", "old/1", "old/2"} & set(found["windows"])
    assert found["kept"]["a note or an incident refers to it"] == 4
    editor.add_comparison(incident, "a=old&b=new")
    assert not json.loads(compacted(packets, "--dry-run", "--json"))["windows"]


@pytest.mark.parametrize("served", ["..", "old"])
def test_notes_next_to_a_folder_above_or_below_count(packets: Path, served: str) -> None:
    """The packets may have been served as a part of a larger folder, or folder by folder."""
    editor = IncidentEditor(IncidentLog.for_packets((packets / served).resolve()), "Ana")
    editor.write_note("look", Pin(window=WindowKey("old", 0)))
    assert "old/0" not in json.loads(compacted(packets, "--dry-run", "--json"))["windows"]


def once_planned(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Have something change between the plan and the thinning."""
    planned = thinning.plan_thinning

    def plan_and_change(*given: Any) -> ThinningPlan:
        found = planned(*given)
        change()
        return found

    monkeypatch.setattr(thinning, "plan_thinning", plan_and_change)


def test_a_note_that_is_written_meanwhile_counts(packets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = IncidentEditor(IncidentLog.for_packets(packets), "Ana")
    once_planned(monkeypatch, lambda: editor.write_note("look", Pin(window=WindowKey("old", 0))))
    result = run_sfapp("compact", packets, "--older-than", 30, "--steps", 4)
    assert result.returncode == 1
    assert "00000000.parquet: a note or an incident refers to it meanwhile" in result.stderr
    assert (packets / "old" / "00000000.parquet").exists()


@pytest.mark.parametrize("days", ["1e7", "inf", "nan"])
def test_an_age_that_no_window_has_is_refused(packets: Path, days: str) -> None:
    result = run_sfapp("compact", packets, "--older-than", days)
    assert result.returncode == 2
    assert "--older-than" in result.stderr


def test_notes_that_cannot_be_read_stop_it(packets: Path) -> None:
    (packets / ".sfapp").mkdir(exist_ok=True)
    (packets / ".sfapp" / "incidents.jsonl").write_text('{"no": "edit"}\n')
    result = run_sfapp("compact", packets, "--older-than", 30)
    assert result.returncode == 2
    assert "nothing was thinned" in result.stderr
    assert not thinned_in(packets)


def test_verdicts_that_cannot_be_read_stop_it(packets: Path) -> None:
    """They are all that is left of windows that were thinned before."""
    compacted(packets)
    (verdicts,) = (packets / "verdicts" / "run=old").rglob("*.verdicts.parquet")
    damaged = verdicts.read_bytes()[:-200] + b"PAR1"
    verdicts.write_bytes(damaged)
    before = sorted(packets.rglob("0*.parquet"))
    result = run_sfapp("compact", packets, "--older-than", 0)
    assert result.returncode == 2
    assert "is not replaced, because it cannot be read" in result.stderr
    assert verdicts.read_bytes() == damaged
    assert sorted(packets.rglob("0*.parquet")) == before


def test_a_bucket_is_refused_with_what_to_do_instead() -> None:
    result = run_sfapp("compact", "s3://fleet/packets", "--older-than", 30)
    assert result.returncode == 2
    assert "s3://fleet/packets: windows in a bucket are not thinned" in result.stderr
    assert "lifecycle rule" in result.stderr


@pytest.mark.parametrize("step", ["write_packet", "sync_folder"])
def test_a_crash_loses_nothing_and_the_next_call_continues(
    packets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = stored(packets, tmp_path)

    class Killed(BaseException):
        """The process ends."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(thinning, step, die)
        with pytest.raises(Killed):
            _thinned(packets)
    assert stored(packets, tmp_path) == before
    with Store.open([packets], memory=True) as store:
        store.ingest()
        assert len(store.window("old", 0).step_N) > 4
    compacted(packets)
    assert thinned_in(packets)
    assert stored(packets, tmp_path) == before


def _thinned(root: Path) -> None:
    thin_packets(
        root, timedelta(days=30), 4, dry_run=False, progress=lambda *_: None, cancel=threading.Event()
    )


def test_a_packet_that_changed_meanwhile_is_left(packets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once_planned(monkeypatch, lambda: put(packets, window("old", 0, seed=77)))
    result = run_sfapp("compact", packets, "--older-than", 30, "--steps", 4)
    assert result.returncode == 1
    assert "00000000.parquet: it has changed since it was judged" in result.stderr
    assert (packets / "old" / "00000000.parquet").exists()


def test_a_restarted_job_does_not_use_a_number_again(packets: Path) -> None:
    compacted(packets)
    numbers = [
        int(path.name[:8]) for path in (packets / "old").glob("*.parquet") if ".thinned" not in path.name
    ]
    assert max(numbers) == WINDOWS - 1


def test_parts_that_come_after_a_window_was_thinned_replace_nothing(packets: Path, tmp_path: Path) -> None:
    compacted(packets)
    before = stored(packets, tmp_path)
    late = put_part(packets, window("old", 0, seed=77, started_at=moment(50)), rank=2)
    compacted(packets)
    assert stored(packets, tmp_path) == before
    (refused,) = read_windows([packets]).quarantined
    assert refused.path == late
    assert refused.reason.startswith("window 0 was thinned")


def test_packets_that_are_not_thinned_are_named_or_counted(
    packets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PacketError("refused")

    monkeypatch.setattr(thinning, "write_packet", refuse)
    monkeypatch.setattr("sfapp.cli.compact._MOST_SHOWN", 0)
    result = run_sfapp("compact", packets, "--older-than", 30, "--steps", 4)
    assert (result.returncode, "sfapp: not thinned: 1 more" in result.stderr) == (1, True), result.stderr


def test_kept_steps_are_evenly_spaced(packets: Path) -> None:
    whole = read_window(packets / "old" / "00000000.parquet")
    some = some_steps(whole, 4)
    assert some.step_N.tolist() == [0, 4, 7, 11]
    assert (some.duration_SNR == whole.duration_SNR[:, [0, 4, 7, 11]]).all()


@pytest.mark.parametrize("has_waits", [False, True], ids=["durations", "waits"])
def test_windows_that_ranks_reduced_are_thinned(tmp_path: Path, has_waits: bool) -> None:
    # Given a run whose ranks reduced its windows
    for number in range(WINDOWS):
        whole = waiting_window(number, {}, run_id="old") if has_waits else job_window(number, {}, "old")
        at = moment(60.0 - number / 1000)
        made = reduced(whole)
        put(tmp_path, replace(made, manifest=replace(made.manifest, started_at=at, ended_at=at)))
    before = stored(tmp_path, tmp_path)
    # When they are thinned
    compacted(tmp_path)
    # Then some are, their verdicts stay, and what is left is a reduced window of these steps
    assert stored(tmp_path, tmp_path) == before
    name, *_ = thinned_in(tmp_path)
    left = read_window(tmp_path / name)
    assert left.reduced is not None
    assert left.reduced.frontier_SN.shape == (len(left.stages), 4)
    assert (left.reduced.own is not None) == has_waits


def without_steps(root: Path, number: int) -> None:
    """Thin a window, as if it had become one of interest only since."""
    ingest_to_dataset([root], root / thinning.DATASET, lambda _: None, threading.Event())
    path = root / "old" / f"{number:08d}.parquet"
    write_packet(some_steps(read_window(path), 4), thinned_path(path))
    path.unlink()


def test_a_problem_shows_that_its_latest_window_was_thinned(packets: Path) -> None:
    without_steps(packets, 5)
    with Store.open([packets], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [packets])
        (problem,) = (one for one in workspace.problems("old") if one.latest_window == 5)
        view = ProblemView.of(workspace, problem.id, None)
        assert "4 of 12 steps are kept" in view.missing_rows
        assert "The verdict on all steps: data on rank 2" in view.missing_rows
        assert "were thinned" in get_problem(workspace, ProblemArguments(id=problem.id)).notes[0]


def test_reports_and_incidents_show_what_was_thinned(packets: Path) -> None:
    # Given an incident with a thinned window, and comparisons with another under both kinds of settings
    without_steps(packets, 5)
    editor = IncidentEditor(IncidentLog.for_packets(packets), "Ana")
    editor.open_incident("slow", "high", "open", "")
    (incident,) = IncidentLog.for_packets(packets).state().incidents
    editor.add_window(incident, WindowKey("old", 5))
    views = "a=old/4&b=old/5", "a=old/4&b=old/5&group=node:0"
    for view in views:
        editor.add_comparison(incident, view)
    (incident,) = IncidentLog.for_packets(packets).state().incidents
    with Store.open([packets], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [packets])
        # When its page and its report are made
        shown = next(evidence_of(workspace, item) for item in incident.items if item.kind == "window")
        made = incident_report(workspace, incident.id)
        _, content = made(ReportOptions(".json", redact=False), ReportProgress())
        _, redacted = made(ReportOptions(".json", redact=True), ReportProgress())
        found = [text.comparison(compare_sides(workspace, parse_compare(view)[0])) for view in views]
    # Then both say it, the report under pseudonyms without names
    assert isinstance(shown, ViewEvidence)
    assert "4 of 12 steps are kept" in shown.messages[0]
    report = json.loads(content)["report"]
    assert report["windows"][0]["not_known"][0] == shown.messages[0]
    assert "(node-0" in shown.messages[0]
    assert "(host-1" in json.loads(redacted)["report"]["windows"][0]["not_known"][0]
    # And comparisons are those of the app
    assert sorted(each["summary"] for each in report["comparisons"]) == sorted(
        ", ".join(filter(None, (one.headline, one.rest))) for one in found
    )
    assert [CAVEAT_WORDS["thinned_rows"] in one.caveats for one in found] == [False, True]


async def test_the_page_and_json_name_what_was_thinned(packets: Path) -> None:
    compacted(packets)
    with Store.open([packets], memory=True) as store:
        store.ingest()
        async with simulated(Workspace(store, [packets])) as user:
            await user.open("/w/old/0")
            await user.should_see(f"Rows were thinned on {NOW:%Y-%m-%d}: 4 of 12 steps are kept")
            await user.should_see("The verdict on all steps: Healthy")
        async with client_of(Workspace(store, [packets])) as client:
            assert (await client.get("/w/old/0.json")).json()["steps"] == 12
            assert (await client.get("/w/old/0.json?group=node:0")).json()["steps"] == 4
