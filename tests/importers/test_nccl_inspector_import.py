"""NCCL Inspector's logs: who spends least in a collective came last to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sfapp.errors import TraceError
from sfapp.importers.collective_arrivals import TRANSFER, WAIT, WORK
from sfapp.importers.nccl_inspector_log import read_log
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


def marker(
    rank: int, counts: dict[str, int], *, group: str = "0x7f", version: str = "v4.3"
) -> dict[str, Any]:
    """As NVIDIA/nccl's inspector_json.cc writes it at the begin of a dump, from format 4.1 on."""
    dump = record(rank, 0, 0, group=group)
    zero = dict.fromkeys(("coll_records", "coll_dropped_total", "coll_dropped_since_last_dump"), 0)
    zero |= dict.fromkeys(("p2p_records", "p2p_dropped_total", "p2p_dropped_since_last_dump"), 0)
    metadata = dump["metadata"] | {"inspector_output_format_version": version}
    return {"header": dump["header"], "metadata": metadata, "dump_stats": zero | counts}


def bare(rank: int, number: int, took_us: float) -> dict[str, Any]:
    """A record of format 4.3: without header and metadata, and with the algorithm."""
    call = record(rank, number, 0)["coll_perf"] | {"coll_exec_time_us": took_us}
    return {"coll_perf": call | {"coll_algo": "RING", "coll_proto": "LL"}}


POINT_TO_POINT = {
    "p2p_perf": {
        "p2p": "Send",
        "p2p_sn": 8,
        "p2p_peer": 1,
        "p2p_msg_size_bytes": 524288,
        "p2p_exec_time_us": 50,
        "p2p_timing_source": "kernel_gpu",
        "p2p_algobw_gbs": 30.0,
        "p2p_busbw_gbs": 30.0,
    }
}

PROXY = {
    "proxy_trace": {
        "record_type": "proxy_step",
        "record_sn": 41,
        "parent_type": "coll",
        "parent_sn": 1407,
        "proxy_op_sn": 12,
        "channel_id": 0,
        "peer": 3,
        "direction": "send",
        "proxy_step_sn": 1,
        "event_trace_ts": {"proxy_step_start_ts": 1752867229235100, "proxy_step_stop_ts": 1752867229235140},
    }
}
"""Abridged from the README of formats 4.3 and 4.4."""


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


@pytest.mark.parametrize("version", ["v4.1", "v4.3"])
def test_records_belong_to_the_dump_of_the_marker_before_them(tmp_path: Path, version: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    for rank in range(4):
        took_us = [2_000 if rank == 2 else 42_000] * 6
        log(old, rank, [record(rank, number, took) for number, took in enumerate(took_us)])
        records = [marker(rank, {"coll_records": 0, "p2p_records": 0}, group="0x2", version=version)]
        for half in (took_us[:3], took_us[3:]):
            records.append(marker(rank, {"coll_records": 3}, version=version))
            for took in half:
                number = sum("coll_perf" in each for each in records)
                whole = record(rank, number, took)
                records.append(bare(rank, number, took) if version == "v4.3" else whole)
        log(new, rank, records)

    before, after = (imported("nccl-inspector", folder) for folder in (old, new))

    assert not after.refused
    expected, window = before.windows[0].window, after.windows[0].window
    assert window.duration_SNR.tolist() == expected.duration_SNR.tolist()
    assert window.ranks.hostname == expected.ranks.hostname
    assert after.windows[0].notes == before.windows[0].notes


def test_each_record_belongs_to_the_last_markers_communicator(tmp_path: Path) -> None:
    for rank in range(2):
        small = [marker(rank, {"coll_records": 1}, group="0x2"), bare(rank, 1, 9.5)]
        large = [marker(rank, {"coll_records": 2}), bare(rank, 1, 61_974.5), bare(rank, 2, 61_974)]
        log(tmp_path, rank, [*small, *large])

    (each,) = imported("nccl-inspector", tmp_path).windows

    assert each.window.wall_NR[:, 0].tolist() == [61_974_500, 61_974_000]
    assert each.operators is not None
    assert set(each.operators.groups) == {"0x2", "0x7f"}


def test_a_log_that_contradicts_another_of_its_rank_is_refused_and_a_copy_is_not(tmp_path: Path) -> None:
    for rank in range(2):
        log(tmp_path, rank, [record(rank, 0, 100 + rank, ranks=2)])
    (tmp_path / "host-pid0.copy.log").write_bytes((tmp_path / "host-pid0.log").read_bytes())
    expected = imported("nccl-inspector", tmp_path)
    assert not expected.refused

    log(tmp_path, 9, [record(0, 0, 5_000, ranks=2)])
    found = imported("nccl-inspector", tmp_path)

    (refused,) = found.refused
    assert refused.path == str(tmp_path / "host-pid9.log")
    assert "another log of rank 0 with another time of collective 0" in refused.reason
    assert found.windows[0].window.wall_NR.tolist() == expected.windows[0].window.wall_NR.tolist()


def test_point_to_point_records_are_events_and_proxy_traces_are_counted(tmp_path: Path) -> None:
    for rank in range(2):
        inherited = [
            marker(rank, {"coll_records": 1, "p2p_records": 1, "proxy_records": 2}),
            bare(rank, 1, 5),
        ]
        own = record(rank, 0, 0) | POINT_TO_POINT
        del own["coll_perf"]
        log(tmp_path, rank, [own, *inherited, POINT_TO_POINT, PROXY, PROXY])

    found = imported("nccl-inspector", tmp_path)

    assert not found.refused
    assert {note.what for note in notes_of(found) if note.kind == "skipped"} == {
        "4 point-to-point records: events only, because their two ranks number them independently",
        "4 records that are neither collectives nor point-to-point (proxy traces)",
    }
    events = found.windows[0].operators
    assert events is not None
    sends = [event for event in range(len(events)) if events.name(event) == "Send"]
    assert len(sends) == 4
    assert {int(events.end_ns_E[event] - events.start_ns_E[event]) for event in sends} == {50_000}
    assert diagnosed(found, tmp_path / "out")


def test_what_a_dump_lacks_is_noted(tmp_path: Path) -> None:
    for rank in range(2):
        first = [marker(rank, {"coll_records": 1, "coll_dropped_total": 100}), bare(rank, 1, 5)]
        cut_off = [marker(rank, {"coll_records": 3, "coll_dropped_total": 512}), bare(rank, 2, 5)]
        log(tmp_path, rank, [*first, *cut_off])

    missing = {note.what for note in notes_of(imported("nccl-inspector", tmp_path)) if note.kind == "missing"}

    assert "1,024 collectives that the Inspector overwrote before it dumped them" in missing
    assert "4 records that a dump announces and the log lacks" in missing


def test_logs_without_collectives_are_refused(tmp_path: Path) -> None:
    log(tmp_path, 0, [marker(0, {"p2p_records": 1}), POINT_TO_POINT])
    log(tmp_path, 1, [])

    found = imported("nccl-inspector", tmp_path)

    assert [error.reason for error in found.refused] == ["the logs hold no collectives, only other records"]


def test_an_import_keeps_a_limited_number_of_records(tmp_path: Path) -> None:
    path = log(
        tmp_path, 0, [marker(0, {"coll_records": 2, "coll_dropped_total": 1}), bare(0, 1, 5), bare(0, 2, 5)]
    )

    assert read_log(path, 3).size == 3
    with pytest.raises(TraceError, match="fewer files") as caught:
        read_log(path, 2)
    assert caught.value.place == "line 3"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not an NCCL Inspector record"),
        ('{"header": {"id": "a", "rank": 0, "n_ranks": 1}}', "is not an NCCL Inspector record"),
        (json.dumps(record(0, 1, -5)), "out of range"),
        (json.dumps(record(7, 1, 5)), "rank 7 of 4"),
        (
            json.dumps(bare(0, 2, 5)),
            "neither the line nor a dump_stats line before it has header and metadata",
        ),
        (json.dumps(marker(0, {}) | {"metadata": None}), "header and metadata belong together"),
        (json.dumps(marker(0, {"coll_records": -1})), "out of range"),
        (json.dumps(record(0, 1, 5, group="x" * 257)), "more than 256 characters"),
        ("[]", "is not an NCCL Inspector record"),
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


def test_a_record_that_its_dump_does_not_announce_refuses_the_log(tmp_path: Path) -> None:
    log(tmp_path, 0, [marker(0, {"coll_records": 1}), PROXY, bare(0, 1, 5), bare(0, 2, 5)])

    (error,) = imported("nccl-inspector", tmp_path).refused

    assert (error.place, error.reason) == (
        "line 4",
        "follows more records than its dump_stats line announces",
    )
