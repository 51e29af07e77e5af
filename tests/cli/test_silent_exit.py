"""Nothing that sfapp opens is left open: no library complains when the interpreter exits."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[2] / "sample_data" / "packets" / "gpt-small-rank-lost"
MAIN = "from sfapp.cli import main; main()"
OPENED = "import sfapp; packets = sfapp.open(sys.argv[1]); print(packets.windows.shape)"


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (MAIN, ["analyze", "{packets}"]),
        (MAIN, ["validate", "{packets}"]),
        (MAIN, ["report", "{packets}", "-o", "{packets}/report.html"]),
        (MAIN, ["top", "{packets}", "--once"]),
        (MAIN, ["capture", "{packets}", "gpt-small-rank-lost", "--no-wait"]),
        (OPENED, ["{packets}"]),
        (OPENED + "; 1 / 0", ["{packets}"]),
    ],
    ids=["analyze", "validate", "report", "top", "capture", "open", "open-and-fail"],
)
def test_the_exit_is_silent(program: str, arguments: list[str], tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path / "packets" / SAMPLE.name)
    given = [each.replace("{packets}", str(tmp_path / "packets")) for each in arguments]
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}", *given], capture_output=True, text=True, timeout=120
    )
    assert "nanobind" not in result.stderr
    assert "leaked" not in result.stderr
