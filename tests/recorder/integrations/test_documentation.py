"""The examples of docs/recorder.md run as they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sfapp.packets import read_windows

PAGE = Path(__file__).parents[3] / "docs" / "recorder.md"


def test_every_example_runs_and_leaves_a_packet_without_faults(tmp_path: Path) -> None:
    for library in ("lightning", "transformers", "accelerate"):
        pytest.importorskip(library, reason=f"{library} is not installed", exc_type=ImportError)
    result = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "documented.py"), str(PAGE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-5000:]
    windows = [item.window for item in read_windows([tmp_path / "packets"]).windows]
    documented = re.findall(r'run_id="([^"]+)"', PAGE.read_text())
    assert sorted(window.run_id for window in windows) == sorted(documented)
    assert {window.manifest.faults for window in windows} == {()}
    assert not any("side_faults" in window.manifest.extra for window in windows)
