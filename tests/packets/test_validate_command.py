"""``sfapp validate``: every fault with file, row and column, and an exit code that scripts can use."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

from sfapp.packets import packet_path, write_packet
from tests.builders import ddp_job, window_of
from tests.packets.make_golden import BROKEN, GOLDEN

COMMAND = [sys.executable, "-c", "from sfapp.cli import main; main()", "validate"]


def validate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True)


def test_good_packets_pass() -> None:
    result = validate(GOLDEN / "valid")

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "21 files checked: no faults\n"


def test_every_fault_is_printed_with_file_row_and_column(tmp_path: Path) -> None:
    good = packet_path(tmp_path, "run", 0)
    write_packet(window_of(ddp_job()), good)
    path = GOLDEN / "broken" / "duration_negative.parquet"
    steps = GOLDEN / "broken" / "micro_steps_missing.parquet"

    result = validate(tmp_path, path, steps)

    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert f"{path}: row 9, column 'model.backward_cpu_wall': -5 is negative" in lines
    assert [line for line in lines if line.startswith(f"{steps}: stage ")] == lines[1:3]
    assert lines[-1] == "3 files checked: 3 faults in 2 files"


def test_faults_can_be_read_by_scripts() -> None:
    result = validate(GOLDEN / "broken", "--json")

    document = json.loads(result.stdout)
    assert result.returncode == 1
    assert document["files"] == document["bad_files"] == len(BROKEN)
    assert {
        "path": str(GOLDEN / "broken" / "row_twice.parquet"),
        "row": 12,
        "column": None,
        "reason": "step 101, rank 1 is also in row 5",
    } in document["faults"]


def test_a_missing_path_and_an_empty_folder_are_reported(tmp_path: Path) -> None:
    missing = validate(tmp_path / "nowhere")
    assert missing.returncode == 2
    assert "nowhere' does not exist" in missing.stderr

    empty = validate(tmp_path)
    assert empty.returncode == 0
    assert empty.stdout == f"no packet files (*.parquet) under '{tmp_path}'\n"


def all_of(terminal: int) -> str:
    """Return everything written to a terminal whose writer has ended; it is read in pieces."""
    pieces = []
    with contextlib.suppress(OSError):  # how a terminal ends
        while piece := os.read(terminal, 100_000):
            pieces.append(piece)
    return b"".join(pieces).decode()


def test_many_files_show_their_progress_on_a_terminal_only(tmp_path: Path) -> None:
    first = packet_path(tmp_path, "run", 0)
    write_packet(window_of(ddp_job(steps=2)), first)
    for number in range(1, 60):
        packet_path(tmp_path, "run", number).hardlink_to(first)
    assert validate(tmp_path).stderr == ""

    terminal, stderr = pty.openpty()
    try:
        result = subprocess.run([*COMMAND, str(tmp_path)], stdout=subprocess.PIPE, stderr=stderr, text=True)
        os.close(stderr)
        shown = all_of(terminal)
    finally:
        os.close(terminal)

    assert "Checking" in shown
    assert "100%" in shown
    assert result.stdout == "60 files checked: no faults\n"
