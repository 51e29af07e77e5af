"""What ``sfapp run`` prints when the script has ended, while other processes change the packets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sfapp.cli import run as run_module
from sfapp.cli.run import find_run_packets, newest

SAMPLE = Path(__file__).parents[2] / "sample_data" / "packets" / "moe-two-roles"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Result]:
    """Runs ``sfapp run`` of a script that leaves two packets and ends with exit code 7."""
    script = tmp_path / "train.py"
    script.touch()

    def launch(*_: object) -> int:
        folder = tmp_path / "packets" / "run"
        folder.mkdir(parents=True)
        for name in ("00000000.parquet", "00000001.parquet"):
            shutil.copy(SAMPLE / name, folder)
        return 7

    monkeypatch.setattr(run_module, "launch", launch)
    options = ["--out", str(tmp_path / "packets"), "--run-id", "run", "--no-live"]
    return lambda: CliRunner().invoke(run_module.run, [*options, str(script)])


def vanish_when_read(monkeypatch: pytest.MonkeyPatch, vanishing: Path) -> None:
    """Remove this file when its status is read for the first time."""
    stat = os.stat

    def stat_after_removal(path: object, **options: Any) -> object:
        if path == vanishing:
            vanishing.unlink(missing_ok=True)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", stat_after_removal)


def test_a_packet_that_vanishes_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{number:08d}.parquet" for number in range(3)]
    for path in paths:
        path.write_bytes(b"x" * 100)
    vanish_when_read(monkeypatch, paths[1])
    assert newest(paths, most_bytes=1000) == [paths[2], paths[0]]


def test_a_packet_that_vanishes_keeps_the_exit_code_and_the_report(
    start: Callable[[], Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vanish_when_read(monkeypatch, tmp_path / "packets" / "run" / "00000001.parquet")
    result = start()
    assert result.exit_code == 7
    assert "1 window in " in result.output


def test_a_packet_that_vanishes_before_it_is_loaded_is_skipped(
    start: Callable[[], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def newest_then_removed(*arguments: object) -> list[Path]:
        paths = newest(*arguments)
        paths[0].unlink()
        return paths

    monkeypatch.setattr(run_module, "newest", newest_then_removed)
    result = start()
    assert result.exit_code == 7
    assert "1 window in " in result.output


@pytest.mark.parametrize("error", [OSError("stale file handle"), ValueError("broken"), KeyboardInterrupt()])
def test_any_failure_of_the_report_keeps_the_exit_code(
    start: Callable[[], Result], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(run_module, "report", fail)
    assert start().exit_code == 7


def test_a_run_folder_that_vanishes_holds_no_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    is_dir = Path.is_dir

    def is_dir_then_removed(path: Path) -> bool:
        found = is_dir(path)
        if found and path.name == "run":
            path.rmdir()
        return found

    monkeypatch.setattr(Path, "is_dir", is_dir_then_removed)
    assert find_run_packets(tmp_path, "run") == set()
