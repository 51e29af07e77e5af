"""`sfapp compact` of a folder in which links lead to packets of other folders."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands import run_sfapp
from tests.store.jobs import put, window

WINDOWS = 6
LONG_AGO = "2026-01-01T00:00:00Z"


def compacted(root: Path, *arguments: str) -> str:
    result = run_sfapp("compact", root, "--older-than", 1, "--steps", 4, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_packets_to_which_a_link_leads_stay(tmp_path: Path) -> None:
    packets, archive = tmp_path / "packets", tmp_path / "archive"
    for run in ("folder", "files"):
        for number in range(WINDOWS):
            put(archive, window(run, number, started_at=LONG_AGO, ended_at=LONG_AGO))
    (packets / "files").mkdir(parents=True)
    (packets / "folder").symlink_to(archive / "folder")
    for path in (archive / "files").iterdir():
        (packets / "files" / path.name).symlink_to(path)
    before = sorted(tmp_path.rglob("*.parquet"))

    kept = json.loads(compacted(packets, "--dry-run", "--json"))["kept"]
    assert kept == {"the packet is in another folder": 2 * WINDOWS}
    assert compacted(packets).startswith("0 windows thinned")
    assert not set(before).difference(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("*.thinned.parquet"))
