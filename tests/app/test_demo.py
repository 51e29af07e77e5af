"""``sfapp demo``: the sample job after an installation, without a checkout."""

from __future__ import annotations

import resource
import sys
import tempfile
import tomllib
from pathlib import Path

import httpx
import pytest

from sfapp.assets import sample_packets
from sfapp.model.view import WindowKey
from sfapp.views.address import window_page
from tests.app.served import PROGRAM, served
from tests.commands import run_sfapp

ROOT = Path(__file__).parents[2]
LARGEST_BYTES = 500_000
"""Largest size of the sample in the wheel; it is in every installation of the base."""


def packets_in(folder: Path) -> list[Path]:
    """Return the packets' paths below a folder."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*.parquet"))


def test_the_demo_serves_a_copy_of_the_sample_and_leaves_nothing(tmp_path: Path) -> None:
    with served(cwd=tmp_path, command=(*PROGRAM, "demo")) as server:
        assert httpx.get(f"{server.url}healthz").json()["status"] == "ok"
        assert server.process.stdout is not None
        folder = Path(server.process.stdout.readline().split(" are in ")[1].split(" until ")[0])
        copied = sorted(path.relative_to(folder) for path in folder.rglob("*.parquet"))
        assert copied == sorted(
            path.relative_to(sample_packets()) for path in sample_packets().rglob("*.parquet")
        )
        assert server.url.startswith("http://127.0.0.1:")
        code, error = server.stop()
    assert (code, error) == (0, "")
    assert not folder.parent.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [(), ("--copy", "copy")], ids=["served", "copied"])
def test_a_disk_without_room_for_the_sample_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        result = run_sfapp("demo", *options, cwd=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.returncode == 2
    assert "cannot copy the packets to" in result.stderr
    assert "File too large" in result.stderr
    assert list(tmp_path.iterdir()) == []


WITHOUT_NOTEBOOKS = (
    "import sys; sys.modules.update(dict.fromkeys(('plotly', 'polars'))); from sfapp.cli import main; main()"
)
"""The program where the packages of notebooks are not installed."""


def test_pages_draw_plots_without_the_python_packages_of_plotly_and_polars(tmp_path: Path) -> None:
    with served(cwd=tmp_path, command=(sys.executable, "-c", WITHOUT_NOTEBOOKS, "demo")) as server:
        page = httpx.get(f"{server.url.rstrip('/')}{window_page(WindowKey('gpt-small-ddp', 1))}", timeout=60)
        code, error = server.stop()
    assert (page.status_code, code, error) == (200, 0, "")
    assert "nicegui-plotly" in page.text
    assert "Traceback" not in page.text


def test_a_wheel_carries_the_whole_sample_and_nothing_else() -> None:
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    included = configuration["targets"]["wheel"]["force-include"]
    sample = ROOT / "sample_data" / "packets"
    folders = {
        ROOT / source: target for source, target in included.items() if target.startswith("sfapp/_sample/")
    }
    assert set(folders) == {path for path in sample.iterdir() if not path.name.startswith(".")}
    assert all(target == f"sfapp/_sample/{source.name}" for source, target in folders.items())
    files = [path for folder in folders for path in folder.rglob("*")]
    assert {path.suffix for path in files} == {".parquet"}
    assert sum(path.stat().st_size for path in files) < LARGEST_BYTES
