"""The systemd unit in assets is valid and hardened, and its command starts the app."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.app.served import served

UNIT = Path(__file__).parents[2] / "assets" / "systemd" / "sfapp.service"
SFAPP = Path(sys.executable).with_name("sfapp")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit_and_its_exposure_is_low(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/sfapp/bin/sfapp", str(SFAPP)))
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    # The threshold is in tenths.
    exposed = ["systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", str(unit)]
    checked = subprocess.run(exposed, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout[-200:]


def test_its_command_serves_the_packets_behind_the_token(tmp_path: Path) -> None:
    # Given the folders that systemd and its administrator provide
    (tmp_path / "packets").mkdir()
    (tmp_path / "token").write_text("0123456789abcdef\n")
    command = re.search(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert command is not None
    line = command[1].replace("/srv/packets", str(tmp_path / "packets"))
    for variable in ("STATE_DIRECTORY", "CREDENTIALS_DIRECTORY"):
        line = line.replace(f"${{{variable}}}", str(tmp_path))
    program, verb, *arguments = shlex.split(line)
    # When it is started
    assert (Path(program).name, verb) == ("sfapp", "serve")
    with served(*arguments, cwd=tmp_path) as server:
        # Then it answers those who know the token, and keeps its store where it may write
        address = f"http://127.0.0.1:{server.port}/problems.json"
        assert httpx.get(address).status_code == 401
        assert httpx.get(address, params={"token": "0123456789abcdef"}, follow_redirects=True).is_success
        assert (tmp_path / "store.duckdb").exists()
