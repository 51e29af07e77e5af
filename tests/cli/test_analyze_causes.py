"""``sfapp analyze`` where operator events lie next to the packets: the first cause, and whether it fits."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.kineto_job import Shape, write_job
from sfapp.cli import cli
from sfapp.importers import ImportOptions, read_traces, write_imported
from sfapp.model.stages import DATA
from sfapp.packets import operators_path, packet_path, write_packet
from tests.builders import ddp_job, window_of

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def ran(*arguments: str | Path, expect: int = 0) -> str:
    result = CliRunner().invoke(cli, ["analyze", *map(str, arguments)])
    assert result.exit_code == expect, result.output
    return result.stdout


def windows(*arguments: str | Path) -> dict[str, Any]:
    document = json.loads(ran(*arguments, "--json"))
    return {window["run_id"]: window for window in document["windows"]}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight ranks, rank 5 late in data in every step; and a run that has packets alone."""
    root = tmp_path_factory.mktemp("causes")
    write_job(root / "job", Shape(steps=6))
    write_imported(read_traces("kineto", [root / "job"], ImportOptions()), root / "packets")
    plain = packet_path(root / "packets", "plain", 0)
    plain.parent.mkdir()
    write_packet(window_of(ddp_job(), run_id="plain"), plain)
    return root / "packets"


@pytest.fixture
def packets(imported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(imported, tmp_path / "packets"))


def test_the_operator_its_rank_stage_and_cost_are_named_after_the_verdict(packets: Path) -> None:
    found = windows(packets)

    kair = found["job"]["kair"]
    cause = kair["cause"]
    assert (cause["kind"], cause["nature"], cause["name"]) == ("operator", "input", LOADER)
    assert (cause["rank"], cause["hostname"], cause["stage"]) == (5, "host1", DATA)
    assert cause["delay_ns"] == pytest.approx(6 * 60e6, rel=0.01)
    assert cause["steps"] == [5, 6, 7, 8, 9, 10]
    assert kair["source"] == "operators"
    assert (kair["agreement"], kair["reasons"], kair["first_rank"]) == ("agree", [], 5)
    assert "kair" not in found["plain"]


def test_the_table_shows_it_below_the_window(packets: Path) -> None:
    lines = ran(packets).splitlines()

    (place,) = (at for at, line in enumerate(lines) if "data on rank 5" in line and "host1" in line)
    assert "Rank 5's enumerate(DataLoader)" in lines[place + 1]
    assert "(input) delayed 7 ranks: 360" in lines[place + 1]
    assert "Verdict and operators agree" in lines[place + 2]


def test_a_row_of_csv_has_it_in_columns(packets: Path) -> None:
    rows = {row["run_id"]: row for row in csv.DictReader(io.StringIO(ran(packets, "--csv")))}

    job = rows["job"]
    assert (job["cause_operator"], job["cause_rank"], job["cause_stage"]) == (LOADER, "5", DATA)
    assert (job["cause_kind"], job["cause_nature"], job["agreement"]) == ("operator", "input", "agree")
    assert rows["plain"]["cause_operator"] == rows["plain"]["agreement"] == ""


def test_only_the_ranks_that_were_diagnosed_are_compared(packets: Path) -> None:
    found = windows(packets, "--group", "node:0")

    kair = found["job"]["kair"]
    assert kair["cause"] is None
    assert kair["first_rank"] in (0, 1, 2, 3)


def test_a_damaged_file_of_events_is_named_and_leaves_the_verdict(packets: Path) -> None:
    path = operators_path(packets, "job", 0)
    path.write_bytes(path.read_bytes()[:-100])

    document = json.loads(ran(packets, "--json", "--strict", expect=1))

    (refused,) = document["quarantined"]
    assert refused["path"] == str(path)
    found = {window["run_id"]: window for window in document["windows"]}
    assert found["job"]["aim"]["rank"] == 5
    assert "kair" not in found["job"]
