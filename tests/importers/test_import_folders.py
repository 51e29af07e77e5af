"""The folders of imported runs: no two sources share one, and no packet of another job is replaced."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sfapp.importers import ImportOptions, WrittenFiles, import_result, read_traces, write_imported
from sfapp.importers.import_formats import find_files
from sfapp.importers.run_names import run_names
from sfapp.model.job_fields import job_fields
from sfapp.packets import WindowDraft, find_packets, packet_path, read_packet, run_lock, write_packet
from sfapp.packets.paths import thinned_path
from tests.builders import ddp_job, window_of
from tests.commands import run_sfapp
from tests.importers.test_nsys_import import a_step, export
from tests.importers.test_straggler_analysis_import import a_job
from tests.importers.test_traceml_import import events, telemetry
from tests.importers.trace_files import imported


def table(folder: Path, steps: int = 3, name: str = "t.csv", *, spans: bool = False) -> Path:
    """Write a table of two ranks, with spans for operator events or with durations."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "step,rank,stage,start_ms,end_ms\n" if spans else "step,rank,stage,duration_ms\n"
    for row in (f"{step},{rank},forward" for step in range(steps) for rank in (0, 1)):
        text += f"{row},0,20\n" if spans else f"{row},20\n"
    (folder / name).write_text(text)
    return folder


def put(root: Path, *paths: Path, source: str = "table") -> WrittenFiles:
    return write_imported(read_traces(source, paths, ImportOptions()), root)


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a run but its lock."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != run_lock.NAME}


def full_disk(patch: pytest.MonkeyPatch, name: str) -> None:
    """Let there be no room for a file of this name."""
    opened = os.open

    def refused(path: Path, *more: int) -> int:
        if f".{name}." in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return opened(path, *more)

    patch.setattr(os, "open", refused)


def a_nsys_export(folder: Path) -> None:
    export(folder / "report1.sqlite", a_step(0, 3, 11))


def a_ranked_nsys_export(folder: Path) -> None:
    export(folder / "report_rank0.sqlite", a_step(0, 3, 11))


def an_operation_table(folder: Path) -> None:
    a_job(folder / "trace-J.parquet")


def a_telemetry(folder: Path) -> None:
    (folder / "run" / "aggregator").mkdir(parents=True)
    telemetry(folder / "run" / "aggregator", [(1, 0, events(2, 3, 4, 10))])


def a_database(folder: Path) -> None:
    telemetry(folder, [(1, 0, events(2, 3, 4, 10))]).rename(folder / "steps.db")


@pytest.mark.parametrize(
    ("source", "make"),
    [
        ("table", lambda folder: table(folder / "node0" / "traces")),
        ("nsys", a_nsys_export),
        ("nsys", a_ranked_nsys_export),
        ("straggler-analysis", an_operation_table),
        ("traceml", a_telemetry),
        ("traceml", a_database),
    ],
)
def test_every_source_of_one_import_is_a_run_of_its_own(
    tmp_path: Path, source: str, make: Callable[[Path], object]
) -> None:
    jobs = [tmp_path / f"exp{number}" for number in range(3)]
    for job in jobs:
        job.mkdir()
        make(job)

    found = imported(source, jobs)
    written = write_imported(found, tmp_path / "packets")

    assert not found.refused
    assert not written.refused
    runs = [each.draft.run_id for each in found.windows]
    assert [run.split("/")[0] for run in runs] == [job.name for job in jobs]
    assert [read_packet(path).window.run_id for path in find_packets([tmp_path / "packets"])] == runs


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (["/a/x/t", "/b/x/t", "/b/u"], ["a/x/t", "b/x/t", "u"]),
        (["/a/t", "/t", "/"], ["a/t", "t", "run"]),
        (["/a/t", "/a/t", "/a/t-2"], ["t", "t-2", "t-2-2"]),
    ],
)
def test_as_many_folders_as_are_needed_are_in_a_name(places: list[str], names: list[str]) -> None:
    assert run_names([Path(place) for place in places]) == names


def test_a_folder_that_is_removed_while_files_are_looked_for_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = table(tmp_path / "job")
    (job / "gone").mkdir()
    listed = os.scandir

    def scandir(path: str) -> object:
        if Path(path).name == "gone":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)

    assert find_files([job], (".csv",)) == [job / "t.csv"]


def test_a_folder_that_is_given_in_two_ways_is_imported_once(tmp_path: Path) -> None:
    folder = table(tmp_path / "job")
    (tmp_path / "link").symlink_to(folder)

    found = imported("table", [folder, tmp_path / "link", tmp_path / "link" / ".." / "job" / "t.csv"])

    assert [each.draft.run_id for each in found.windows] == ["job"]


def recorded(root: Path) -> None:
    path = packet_path(root, "job", 0)
    path.parent.mkdir(parents=True)
    write_packet(window_of(ddp_job(), run_id="job"), path)


def thinned(root: Path) -> None:
    recorded(root)
    path = packet_path(root, "job", 0)
    path.rename(thinned_path(path))


def damaged(root: Path) -> None:
    put(root, table(root.parent / "b" / "job"))
    packet_path(root, "job", 0).write_bytes(b"PAR1")


def operators_alone(root: Path) -> None:
    put(root, table(root.parent / "b" / "job", spans=True))
    packet_path(root, "job", 0).unlink()


def of_another_folder(root: Path) -> None:
    put(root, table(root.parent / "a" / "job"))


def of_another_format(root: Path) -> None:
    trace = a_job(root.parent / "b" / "trace-job.parquet")
    put(root, trace, source="straggler-analysis")
    trace.unlink()


def of_one_file(root: Path) -> None:
    put(root, table(root.parent / "b" / "job") / "t.csv")


@pytest.mark.parametrize(
    "before",
    [recorded, thinned, damaged, operators_alone, of_another_folder, of_another_format, of_one_file],
)
def test_a_run_is_refused_if_its_folder_holds_other_packets(
    tmp_path: Path, before: Callable[[Path], None]
) -> None:
    root = tmp_path / "packets"
    (tmp_path / "b").mkdir()
    before(root)
    kept = content(root / "job")

    written = put(root, table(tmp_path / "b" / "job", 250), table(tmp_path / "b" / "other"))

    (error,) = written.refused
    assert str(error).startswith(f"{root / 'job'}: run 'job': holds '00000000.")
    assert "choose another folder with -o, or move this one away" in str(error)
    assert content(root / "job") == kept
    assert written.packets == (packet_path(root, "other", 0),)


def test_sources_that_are_imported_at_the_same_time_do_not_replace_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, write, others = tmp_path / "packets", import_result.write_packet, list[WrittenFiles]()
    first, second = (table(tmp_path / name / "job", 250) for name in "ab")

    def write_amid_another_import(window: WindowDraft, path: Path) -> int:
        monkeypatch.setattr(import_result, "write_packet", write)
        others.append(put(root, second))
        return write(window, path)

    monkeypatch.setattr(import_result, "write_packet", write_amid_another_import)

    written = put(root, first)

    (error,) = others[0].refused
    assert "run 'job'" in str(error)
    assert "another process has locked the run" in str(error)
    assert not others[0].packets
    assert (len(written.packets), written.refused) == (3, ())
    assert put(root, first).refused == ()  # Its packets are all of this source.


def test_nothing_is_written_through_a_link_to_a_folder(tmp_path: Path) -> None:
    job, elsewhere = table(tmp_path / "job"), tmp_path / "elsewhere"
    put(elsewhere, job)
    kept = content(elsewhere / "job")
    (tmp_path / "packets").mkdir()
    (tmp_path / "packets" / "job").symlink_to(elsewhere / "job")

    (error,) = put(tmp_path / "packets", table(job, 250)).refused

    assert "packets/job: run 'job': is a link" in str(error)
    assert content(elsewhere / "job") == kept


def test_the_same_source_again_replaces_all_that_it_wrote(tmp_path: Path) -> None:
    root, job = tmp_path / "packets", tmp_path / "job"
    first = put(root, table(job, 250, spans=True))
    assert (len(first.packets), len(first.operators)) == (3, 3)

    (root / "job" / "samples").touch()
    again = put(root, table(job, 150), table(tmp_path / "other"))

    assert not again.refused
    assert set(content(root / "job")) == {"00000000.parquet", "00000001.parquet", "samples"}
    fields = job_fields(read_packet(again.packets[0]).window.manifest, {})
    assert fields["imported_from"] == "table"
    assert "imported_source" not in fields


@pytest.mark.parametrize(
    ("full_for", "left"),
    [
        ("00000001.parquet", {"00000001.parquet", "00000001.ops.parquet"}),
        ("00000001.ops.parquet", {"00000001.parquet"}),
    ],
)
def test_a_window_that_a_full_disk_refuses_stays_as_the_last_import_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_for: str, left: set[str]
) -> None:
    root, job = tmp_path / "packets", tmp_path / "job"
    put(root, table(job, 250, spans=True))
    before = content(root / "job")

    with monkeypatch.context() as disk:
        full_disk(disk, full_for)
        (error,) = put(root, table(job, 150, spans=True)).refused

    assert f"{full_for}: run 'job', window 1: cannot be written: No space left on device" in str(error)
    after = content(root / "job")
    assert set(after) == {"00000000.parquet", "00000000.ops.parquet"} | left
    if full_for == "00000001.parquet":
        assert after[full_for] == before[full_for]


def test_packets_below_the_folder_of_traces_are_no_traces_at_the_next_import(tmp_path: Path) -> None:
    job = table(tmp_path / "job")

    first, again = (run_sfapp("import", "table", job, "-o", job / "packets") for _ in range(2))

    assert (again.returncode, again.stdout, again.stderr) == (0, first.stdout, first.stderr)
    assert [path.name for path in find_packets([job])] == ["00000000.parquet"]


def test_a_grown_folder_is_the_same_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, job = tmp_path / "packets", tmp_path / "job"
    put(root, table(job))
    table(job, name="more.csv")
    monkeypatch.chdir(job)

    found = imported("table", Path("."))

    assert not write_imported(found, root).refused
