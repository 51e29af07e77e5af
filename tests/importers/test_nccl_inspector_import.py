"""NCCL Inspector's logs: who spends least in a collective came last to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sfapp.importers.collective_arrivals import TRANSFER, WAIT, WORK
from tests.importers.trace_files import diagnosed, imported, notes_of


def record(rank: int, number: int, took_us: int, *, group: str = "0x7f", ranks: int = 4) -> dict[str, Any]:
    """As NCCL's documentation shows it."""
    return {
        "header": {"id": group, "rank": rank, "n_ranks": ranks, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "",
            "rec_mechanism": "profiler_plugin",
            "dump_timestamp_us": 1_748_030_377_748_202 + number * 100_000,
            "hostname": "example-hostname",
            "pid": 1639453,
        },
        "coll_perf": {
            "coll": "AllReduce",
            "coll_sn": number,
            "coll_msg_size_bytes": 17179869184,
            "coll_exec_time_us": took_us,
            "coll_algobw_gbs": 277.210914,
            "coll_busbw_gbs": 485.119099,
        },
    }


def log(folder: Path, rank: int, records: list[dict[str, Any]]) -> Path:
    path = folder / f"host-pid{rank}.log"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def test_the_rank_that_spends_least_came_last(tmp_path: Path) -> None:
    for rank in range(4):
        log(tmp_path, rank, [record(rank, number, 2_000 if rank == 2 else 42_000) for number in range(12)])

    found = imported("nccl-inspector", tmp_path)

    window = found.windows[0].window
    shown = dict(zip(window.stages, (window.duration_SNR[:, 0] // 1_000_000).tolist(), strict=True))
    assert shown[WORK] == [0, 0, 40, 0]
    assert shown[WAIT] == [40, 40, 0, 40]
    assert shown[TRANSFER] == [2, 2, 2, 2]
    (diagnosis,) = diagnosed(found, tmp_path / "out")
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank) == (WORK, 2)
    assert found.windows[0].operators is not None
    assert len(found.windows[0].operators) == 48


def test_values_of_only_some_ranks_are_noted(tmp_path: Path) -> None:
    log(tmp_path, 0, [record(0, 1, 5), record(0, 2, 5), record(0, 9, 5, group="0x2", ranks=2)])
    log(tmp_path, 1, [record(1, 1, 7)])

    found = imported("nccl-inspector", tmp_path)

    assert found.windows[0].window.manifest.missing_ranks == (2, 3)
    skipped = {note.what for note in notes_of(found) if note.kind == "skipped"}
    assert skipped == {
        "1 collectives that are not in the logs of all ranks",
        "1 smaller communicators: events only",
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not an NCCL Inspector record"),
        ('{"header": {"id": "a", "rank": 0, "n_ranks": 1}}', "is not an NCCL Inspector record"),
        (json.dumps(record(0, 1, -5)), "out of range"),
        (json.dumps(record(7, 1, 5)), "rank 7 of 4"),
        ("x" * (2**20 + 2), "too long"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(tmp_path: Path, line: str, reason: str) -> None:
    path = log(tmp_path, 0, [record(0, 1, 5)])
    path.write_text(path.read_text() + line + "\n")
    log(tmp_path, 1, [record(1, 1, 7)])

    found = imported("nccl-inspector", tmp_path)

    (error,) = found.refused
    assert (error.path, error.place) == (str(path), "line 2")
    assert reason in error.reason
    assert len(found.windows) == 1
