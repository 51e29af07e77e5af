"""``sfapp top --once``: what is drawn of a job that streams, from the files it leaves."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from app.live_job import LIVE, LiveJob

COMMAND = [sys.executable, "-c", "from sfapp.cli import main; main()", "top", "--once"]


def top(*arguments: str | Path, expect: int = 0) -> str:
    result = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=ENVIRONMENT
    )
    assert result.returncode == expect, result.stderr
    return result.stdout if expect == 0 else result.stderr


ENVIRONMENT = {"PATH": "/usr/bin:/bin", "COLUMNS": "140", "OMP_NUM_THREADS": "1"}


def streamed(root: Path, silent: dict[int, float] | None = None, left: tuple[int, ...] = ()) -> None:
    """A job that goes on for as long as a command may take to start."""
    LiveJob(root).go(until=time.time() + 30, silent=silent, left=left)


def test_every_node_has_a_row_and_every_rank_a_tile(tmp_path: Path) -> None:
    streamed(tmp_path)
    lines = top(tmp_path).splitlines()
    assert lines[0].split() == [LIVE, "Live:", "8", "ranks", "heard", "of.", "step", "300"]
    assert [line.split()[:3] for line in lines[3:5]] == [["0", "node-0", "4"], ["1", "node-1", "4"]]
    grid = [line.split() for line in lines if line.startswith("node ")]
    assert grid[-2:] == [["node", "0", "0", "1", "2", "3"], ["node", "1", "4", "5", "6+", "7"]]


def test_who_is_silent_and_who_left_is_marked(tmp_path: Path) -> None:
    streamed(tmp_path, silent={5: 34.0}, left=(0,))
    shown = top(tmp_path, "--run", LIVE)
    assert " 0- 1  2  3" in shown
    assert " 4  5! 6+ 7" in shown
    assert "rank 5: no data for 34 s" in shown


def test_what_hosts_are_called_is_written_never_obeyed(tmp_path: Path) -> None:
    LiveJob(tmp_path, host="[red]\x1b[2J").go()
    assert "[red]\\x1b[2J-0" in top(tmp_path)


def test_a_folder_without_a_stream_is_told(tmp_path: Path) -> None:
    assert "no run was streamed here" in top(tmp_path, expect=2)
    LiveJob(tmp_path).go()
    assert "no run 'other' was streamed here" in top(tmp_path, "--run", "other", expect=2)
