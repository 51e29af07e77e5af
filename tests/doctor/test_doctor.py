"""``sfapp doctor`` says what an environment can record, why not the rest, and how to fix each."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfapp.doctor.checks import results_of
from sfapp.doctor.child_readings import GpuReading, TorchReading
from sfapp.doctor.readings import (
    FolderReading,
    Readings,
    StackReading,
    StreamReading,
    answer_of,
    missing_modules,
    read_folder,
    within,
)
from sfapp.doctor.results import CheckResult, can_record
from sfapp.recorder.identity import RankPlace
from tests.commands import run_sfapp

GIB = 1 << 30

GOOD = Readings(
    environ={},
    system="linux",
    compiled={"timers": "ok", "page checks": "ok", "kernels": "ok"},
    compiler="/usr/bin/cc",
    has_headers=True,
    torch=TorchReading(
        version="2.6.0a0+ecf3bae", has_distributed=True, backends=("gloo", "nccl"), devices=8, cuda="12.8"
    ),
    gpus=GpuReading(names=("H100",) * 8),
    place=RankPlace(3, 8, 3, 8, 0, 1, "node0", "torchrun"),
    folder=FolderReading(path="packets", exists=True, free_bytes=100 * GIB),
    ports={8642: "", 29765: "", 29766: ""},
    stream=StreamReading(address="tcp://node0:29766", has_zmq=True, has_keys=True),
    stacks=StackReading(py_spy="/usr/bin/py-spy", ptrace_scope=0),
    evidence={"cpu": "", "pressure": ""},
    missing={"app": (), "traces": ()},
)
"""An environment in which everything works."""

OLD_TORCH = TorchReading(version="1.13.1", has_distributed=True, backends=("gloo",), devices=1)


def result(name: str, **changes: Any) -> CheckResult:
    """Return one result after some readings have changed."""
    (found,) = [each for each in results_of(replace(GOOD, **changes)) if each.name == name]
    return found


def test_an_environment_in_which_everything_works_needs_no_remedy() -> None:
    results = results_of(GOOD)
    assert {each.status for each in results} == {"ok"}
    assert [each.remedy for each in results if each.remedy] == []
    assert can_record(results)
    places = {(each.area, each.name) for each in results}
    assert len(places) == len(results)


@pytest.mark.parametrize(
    ("name", "changes", "found", "remedy"),
    [
        ("torch", {"torch": TorchReading(error="No module named 'torch'")}, "No module", "never installs"),
        ("torch", {"torch": None}, "does not end in time", "--timeout"),
        (
            "folder",
            {"folder": FolderReading(path="p", exists=True, refusal="Read-only")},
            "Read-only",
            "--out",
        ),
        ("rank", {"place": "RANK and SLURM_PROCID contradict"}, "contradict", "torchrun"),
        (
            "stream",
            {"stream": StreamReading(address="tcp://node0:1", has_zmq=True, silence="refused")},
            "tcp://node0:1: refused",
            "sfapp aggregate",
        ),
        ("stream", {"stream": StreamReading(address="tcp://node0:1")}, "pyzmq", "sfapp[stream]"),
        (
            "keys",
            {"stream": StreamReading(has_zmq=True, fault="invalid stream keys")},
            "invalid",
            "--make-keys",
        ),
    ],
)
def test_what_cannot_work_fails_with_its_remedy(
    name: str, changes: dict[str, Any], found: str, remedy: str
) -> None:
    failed = result(name, **changes)
    assert (failed.status, found in failed.found, remedy in failed.remedy) == ("failed", True, True)
    assert not can_record(results_of(replace(GOOD, **changes)))


@pytest.mark.parametrize(
    ("name", "changes", "found", "remedy"),
    [
        (
            "timers",
            {"compiled": {"timers": "absent"}, "compiler": None, "has_headers": False},
            "not compiled",
            "install a C compiler and Python's headers",
        ),
        ("timers", {"compiled": {"timers": "stale"}}, "another version", "--no-binary"),
        ("timers", {"environ": {"SFAPP_COMPILED": "off"}}, "SFAPP_COMPILED=off", "unset"),
        ("timers", {"compiled": {"timers": "absent"}, "system": "darwin"}, "in Python", "none"),
        ("folder", {"folder": FolderReading(path="p", exists=False, free_bytes=9)}, "can be made", "space"),
        ("torch", {"torch": OLD_TORCH}, "1.13.1", "2.4"),
        ("process groups", {"torch": TorchReading(version="2.9")}, "no torch.distributed", "install"),
        (
            "process groups",
            {"torch": TorchReading(version="2.9", has_distributed=True, backends=("nccl",))},
            "nccl",
            "gather='nccl'",
        ),
        ("pressure", {"evidence": {"pressure": "OSError: no file"}}, "no file", "psi=1"),
        ("choice", {"environ": {"SFAPP_EVIDENCE": "cpu"}}, "SFAPP_EVIDENCE=cpu", "unset"),
        ("native stacks", {"stacks": StackReading(py_spy="py-spy", ptrace_scope=1)}, "is 1", "SYS_PTRACE"),
        ("native stacks", {"stacks": StackReading()}, "not installed", "pip install py-spy"),
        ("sfapp stacks", {"environ": {"SFAPP_CAPTURES": "off"}}, "switched off", "unset"),
        ("sfapp stacks", {"stacks": StackReading(refusal="no signal")}, "no signal", "TMPDIR"),
        ("GPU metrics", {"gpus": None}, "in time", "nvidia-smi"),
        ("GPU metrics", {"gpus": GpuReading(error="no NVIDIA driver")}, "no NVIDIA driver", "without NVIDIA"),
        ("port 8642", {"ports": {8642: "Address already in use"}}, "sfapp serve cannot", "--port"),
        ("port 29766", {"ports": {29766: "Address already in use"}}, "sfapp relay cannot", "--listen"),
        ("app", {"missing": {"app": ("nicegui", "duckdb")}}, "lacks nicegui, duckdb", "sfapp[app]"),
    ],
)
def test_what_is_not_available_has_a_remedy_and_no_failure(
    name: str, changes: dict[str, Any], found: str, remedy: str
) -> None:
    limited = result(name, **changes)
    assert (limited.status, found in limited.found, remedy in limited.remedy) == ("limited", True, True)
    assert can_record(results_of(replace(GOOD, **changes)))


def test_every_result_but_a_good_one_has_a_remedy(tmp_path: Path) -> None:
    # Given this environment, with a folder that cannot be written
    (tmp_path / "file").touch()
    finished = run_sfapp("doctor", "--json", "--out", tmp_path / "file" / "packets", "--timeout", "60")
    # When it is checked, then the command fails, and every lack has its remedy
    document = json.loads(finished.stdout)
    by_name = {each["name"]: each for each in document["results"]}
    assert (finished.returncode, document["can_record"]) == (1, False)
    assert "NotADirectoryError" in by_name["folder"]["found"]
    assert by_name["torch"]["status"] == "ok"
    assert "gloo" in by_name["process groups"]["found"]
    assert by_name["cpu"]["status"] == by_name["app"]["status"] == "ok"
    assert [each for each in document["results"] if each["status"] != "ok" and not each["remedy"]] == []
    assert document["about"]["sfapp"]


def test_missing_modules_are_found_without_loading_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    assert missing_modules()["stream"] == ("zmq",)


def test_a_folder_is_tried_where_it_will_be_made(tmp_path: Path) -> None:
    later = read_folder(tmp_path / "a" / "b")
    assert (later.exists, later.refusal, list(tmp_path.iterdir())) == (False, "", [])
    assert (later.free_bytes or 0) > 0


def test_a_folder_beyond_a_quota_cannot_be_written_although_the_disk_has_room(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        folder = read_folder(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "File too large" in folder.refusal
    assert result("folder", folder=folder).status == "failed"


def test_what_does_not_answer_is_abandoned() -> None:
    began = time.monotonic()
    assert within(lambda: time.sleep(2), None, 0.05) is None
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert answer_of(child, TorchReading, time.monotonic() + 0.05) is None
        child.kill()
    assert time.monotonic() - began < 2


def test_a_process_that_crashes_is_described_by_its_last_line() -> None:
    program = "import sys; sys.exit('Illegal instruction\\nImportError: \\x1b[31mlibcuda')"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        found = answer_of(child, GpuReading, time.monotonic() + 10)
    assert found == GpuReading(error="ImportError: \\x1b[31mlibcuda")
