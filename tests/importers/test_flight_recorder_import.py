"""Flight Recorder dumps: late ranks of each collective, ranks that never arrived, pickles that would run
code."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfapp.errors import TraceError
from sfapp.importers import ImportResult
from sfapp.importers.collective_arrivals import WAIT, WORK, period
from sfapp.importers.safe_pickle import plain_data
from tests.importers.gloo_ranks import dumped_by
from tests.importers.trace_files import diagnosed, imported, notes_of

MS = 1_000_000
JOB = Path(__file__).with_name("flight_recorder_job.py")


def entry(
    sequence: int, at_ms: float, name: str = "nccl:all_reduce", group: str = "0", size: int = 4
) -> dict[str, Any]:
    return {
        "process_group": (group, "default_pg"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "profiling_name": name,
        "time_created_ns": 10**18 + round(at_ms * MS),
        "time_discovered_completed_ns": None,
        "input_sizes": [[size]],
        "is_p2p": False,
        "state": "completed",
        "thread_id": "7",
    }


def dump(path: Path, entries: list[dict[str, Any]], world: int = 2) -> Path:
    content = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}},
        "entries": entries,
    }
    path.write_bytes(pickle.dumps(content, protocol=2))
    return path


def stage_ms(found: ImportResult, stage: str) -> list[list[int]]:
    window = found.windows[0].window
    return (window.duration_SNR[window.stages.index(stage)] // MS).tolist()


def test_work_is_until_the_call_and_wait_until_the_last_rank_calls(tmp_path: Path) -> None:
    dump(tmp_path / "nccl_trace_rank_0", [entry(1, 10), entry(2, 30)])
    dump(tmp_path / "nccl_trace_rank_1", [entry(1, 15), entry(2, 40)])

    found = imported("flight-recorder", tmp_path)

    assert stage_ms(found, WORK) == [[0, 5], [15, 25]]
    assert stage_ms(found, WAIT) == [[5, 0], [10, 0]]
    operators = found.windows[0].operators
    assert operators is not None
    assert operators.sequence_E.tolist() == [1, 2, 1, 2]
    assert operators.groups == ("0",)


def test_collectives_that_overlap_are_not_waited_for(tmp_path: Path) -> None:
    # Rank 0 launches its second bucket before rank 1 launches its first.
    dump(tmp_path / "trace_0", [entry(1, 10), entry(2, 20)])
    dump(tmp_path / "trace_1", [entry(1, 30), entry(2, 40)])

    found = imported("flight-recorder", tmp_path)

    assert stage_ms(found, WORK) == [[0, 20], [10, 10]]
    assert stage_ms(found, WAIT) == [[0, 0], [20, 0]]


def test_collectives_that_repeat_are_a_step(tmp_path: Path) -> None:
    for rank in (0, 1):
        entries = [entry(1, 0, "nccl:broadcast")]
        for step in range(4):
            entries += [
                entry(2 + 2 * step, 10 * step + 1, size=8),
                entry(3 + 2 * step, 10 * step + 5 + 3 * rank),
            ]
        dump(tmp_path / f"trace_{rank}", entries)

    found = imported("flight-recorder", tmp_path)

    assert found.windows[0].window.step_N.tolist() == [0, 1, 2, 3]
    assert [row[1] - row[0] for row in stage_ms(found, WORK)] == [3] * 4
    assert any("a cycle of 2 collectives" in note.what for note in notes_of(found))


def test_what_repeats() -> None:
    assert period(list("xxabcabcabc")) == (2, 3)
    assert period(list("abcdefg")) == (0, 1)
    assert period(["a"] * 20) == (0, 1)
    assert period([]) == (0, 1)


def test_a_rank_that_stopped_is_named_with_what_it_did_not_call(tmp_path: Path) -> None:
    for rank in range(3):
        calls = [entry(1, 1), entry(2, 2)] + ([entry(3, 3, "nccl:all_gather")] if rank != 1 else [])
        dump(tmp_path / f"trace_{rank}", calls, world=4)

    found = imported("flight-recorder", tmp_path)

    assert found.windows[0].window.manifest.missing_ranks == (3,)
    assert any(
        "rank 1 stopped after 2, others called 3 (nccl:all_gather 4)" in note.what for note in notes_of(found)
    )


class Bomb:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_calls_os_system_does_not(tmp_path: Path, protocol: int) -> None:
    witness = tmp_path / "witness"
    bad = tmp_path / "trace_1"
    bad.write_bytes(pickle.dumps({"entries": [Bomb(f"touch {witness}")]}, protocol=protocol))
    dump(tmp_path / "trace_0", [entry(1, 1)])

    found = imported("flight-recorder", tmp_path)

    assert not witness.exists()
    (error,) = found.refused
    assert "would run code" in error.reason
    assert error.place is not None
    assert error.place.startswith("byte ")
    assert len(found.windows) == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x80\x02]r\xff\xff\xff\x7f.", "larger than the pickle"),
        (b"\x80\x02cos\nsystem\n.", "would run code"),
        (b"\x80\x02\x8c\x02os\x8c\x06system\x93.", "would run code"),
        (b"\x80\x02\x82\x01.", "would run code"),
        (b"P1\n.", "would run code"),
        (pickle.dumps([1, 2, 3])[:-2], "not a complete pickle"),
        (b"\x80\x02g\x05.", "not a complete pickle"),
        (b"", "not a complete pickle"),
        (pickle.dumps(["\ud800"], protocol=2), "not valid Unicode"),
    ],
)
def test_what_is_no_plain_data_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(TraceError, match=reason):
        plain_data(data)


def nested(value: object, levels: int) -> object:
    for _ in range(levels):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "value",
    [nested([7], 40), [["x" * 2**20] * 1000] * 2, [[[0] * 1000] * 1000] * 1000],
    ids=["levels", "texts", "lists"],
)
def test_many_references_to_one_object_are_refused(value: object) -> None:
    data = pickle.dumps(value, protocol=2)
    assert len(data) < 2**21
    with pytest.raises(TraceError, match="expands to more than 536,870,912 bytes"):
        plain_data(data)


def test_a_list_that_contains_itself_is_refused() -> None:
    value: list[object] = [1]
    value.append({"again": (value,)})
    with pytest.raises(TraceError, match="contains itself"):
        plain_data(pickle.dumps(value, protocol=2))


def test_a_small_dump_of_endless_sizes_is_left_out(tmp_path: Path) -> None:
    dump(tmp_path / "nccl_trace_rank_0", [{**entry(1, 10), "input_sizes": [[4] * 50_000] * 50_000}])
    dump(tmp_path / "nccl_trace_rank_1", [entry(1, 10), entry(2, 20)])
    (refused,) = imported("flight-recorder", tmp_path).refused
    assert "references to the same objects" in refused.reason


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_comes_back(protocol: int) -> None:
    value = {"a": [1, 2.5, None, True, "ü", (1, 2)], "b": {"c": 2**70}, "empty": [[], {}, ()]}

    assert plain_data(pickle.dumps(value, protocol=protocol)) == value


@pytest.mark.parametrize(
    ("name", "content", "reason", "place"),
    [
        (
            "trace_0.json",
            b'{"version": "2.1", "entries": [{"profiling_name": 3}]}',
            "is not a Flight Recorder dump",
            "$.entries[0]",
        ),
        ("trace_0.json", b'{"version": "2.1"', "not valid JSON", None),
        ("trace_0.json", b'{"a":' * 20_000, "not valid JSON", None),
        ("trace_0", pickle.dumps({"version": "2.1"}), "is not a Flight Recorder dump", None),
        ("trace", pickle.dumps({}), "does not end in the rank", None),
    ],
)
def test_a_wrong_dump_is_reported_with_its_place(
    tmp_path: Path, name: str, content: bytes, reason: str, place: str | None
) -> None:
    (tmp_path / name).write_bytes(content)

    (error,) = imported("flight-recorder", tmp_path).refused

    assert reason in error.reason
    assert error.path == str(tmp_path / name)
    assert place is None or (error.place or "").startswith(place)


def test_two_dumps_of_a_rank_are_distinguished(tmp_path: Path) -> None:
    dump(tmp_path / "first_0", [entry(1, 1)])
    dump(tmp_path / "second_0", [entry(1, 1)])

    assert "another dump of rank 0" in imported("flight-recorder", tmp_path).refused[0].reason


@pytest.mark.torchrun
def test_a_real_job_over_gloo_shows_the_late_rank(tmp_path: Path) -> None:
    dumped_by(JOB, tmp_path, ranks=3, special=2)

    pickled = imported("flight-recorder", sorted(tmp_path.glob("dump_*")))
    as_json = imported("flight-recorder", tmp_path / "json")

    (diagnosis,) = diagnosed(pickled, tmp_path / "out")
    assert (diagnosis.ranks, diagnosis.steps) == (3, 6)
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank) == (WORK, 2)
    assert np.array_equal(pickled.windows[0].window.duration_SNR, as_json.windows[0].window.duration_SNR)
    assert json.loads((tmp_path / "json" / "dump_rank_0.json").read_text())["version"]
