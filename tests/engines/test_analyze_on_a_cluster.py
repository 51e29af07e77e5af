"""``sfapp analyze`` prints the same on Ray, on Dask and in one process, to the last byte."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfapp.engines.tasks import WorkersLostError, results_on
from sfapp.errors import EngineError
from sfapp.packets import packet_path, read_window
from sfapp.service.packet_analysis import AnalysisRequest, analyse_packets, in_this_process
from tests.commands import run_sfapp
from tests.store.jobs import SLOW, put, put_run, window

SAMPLE = Path(__file__).parents[2] / "sample_data" / "packets"

ARGUMENTS: tuple[tuple[str, ...], ...] = (
    ("--json", "--what-if"),
    ("--json", "--group", "node:1", "--tau-c", "0.9", "--preset", "paper"),
    ("--json", "--reference", "run-1/1"),
    ("--csv",),
    (),
)


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample job, runs of several windows, one of them in three folders, files that are refused, and a
    reference chosen in the app."""
    root = tmp_path_factory.mktemp("packets")
    shutil.copytree(SAMPLE, root / "sample", ignore=lambda folder, names: [n for n in names if n[0] == "."])
    for run in range(3):
        put_run(root, f"run-{run}")
    for number in range(6):
        made = window("split", number, extra=SLOW if number == 4 else None)
        put(root, made, packet_path(root / f"part-{number % 3}", "split", number))
    choices = root / ".sfapp" / "store.references.json"
    choices.parent.mkdir()
    choices.write_text('{"format": 1, "references": {"run-0": 2, "split": 4, "gone": 1}}')
    (root / "damaged.parquet").write_bytes(b"PAR1 and no more")
    (root / "run-1" / "damaged.parquet").write_bytes(b"PAR1 and no more either")
    shutil.copy(root / "run-0" / "00000001.parquet", root / "part-0" / "again.parquet")
    return root


def analyzed(packets: Path, *arguments: str) -> str:
    result = run_sfapp("analyze", packets, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


class TestSameOutput:
    def test_every_form_of_the_output_is_that_of_one_process(self, engine: str, packets: Path) -> None:
        for arguments in ARGUMENTS:
            assert analyzed(packets, *arguments, "--engine", engine) == analyzed(packets, *arguments)

    def test_an_error_is_that_of_one_process(self, engine: str, packets: Path) -> None:
        for arguments in (("--group", "role:none"), ("--reference", "run-9/1")):
            here = run_sfapp("analyze", packets, *arguments)
            there = run_sfapp("analyze", packets, *arguments, "--engine", engine)
            assert (there.returncode, there.stderr) == (here.returncode, here.stderr)
            assert here.returncode == 2


def test_the_folders_of_a_run_are_analysed_together(packets: Path) -> None:
    numbers: list[int] = []

    def run_tasks(function: Any, tasks: Sequence[Any]) -> list[Any]:
        numbers.append(len(tasks))
        return in_this_process(function, tasks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfapp.service.packet_analysis._TASK_FILES", 1)
        found = analyse_packets([packets], AnalysisRequest(), run_tasks)
    # Each folder is a task. Then two folders of the sample job are one, and so are the three parts and run-0,
    # of which part-0 has a copy.
    assert numbers == [len({path.parent for path in packets.rglob("*.parquet")}), 2]
    assert found == analyse_packets([packets], AnalysisRequest())


def test_windows_of_a_task_that_ends_its_workers_are_named() -> None:
    class Lost:
        slots = 1

        def submit(self, function: Any, argument: Any) -> Any:
            return argument

        def finished(self, tasks: Any, seconds: float) -> list[Any]:
            return list(tasks)

        def result(self, task: Any) -> Any:
            raise WorkersLostError("killed by signal 9")

        def cancel(self, task: Any) -> None:
            raise AssertionError("nothing is left running")

    with pytest.raises(EngineError, match=r"every worker that ran a task ended \(killed by signal 9\)"):
        results_on(Lost(), str, ["a"])


def test_a_window_that_overflows_is_refused_in_order(tmp_path: Path) -> None:
    for run in ("a", "b"):
        path = put(tmp_path, window(run))
        made = read_window(path)
        put(tmp_path, replace(made, duration_SNR=made.duration_SNR + 2**61 // 40), path)
    here = analyse_packets([tmp_path], AnalysisRequest())
    there = analyse_packets([tmp_path], AnalysisRequest(), in_this_process)
    assert [refused.path.parent.name for refused in here.quarantined] == ["a", "b"]
    assert here == there
