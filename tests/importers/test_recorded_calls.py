"""Dumps of jobs that stand still: what is pending on which rank, and which files of a folder are dumps."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sfapp.errors import TraceError
from sfapp.importers import ImportOptions
from sfapp.importers.flight_recorder_dump import read_dump
from sfapp.importers.recorded_calls import CallReader, HangDump, read_calls
from sfapp.model.calls import JobCalls
from sfapp.operators.hang import Hang, find_hang
from tests.importers.gloo_ranks import dumped_by
from tests.importers.trace_files import real

JOB = Path(__file__).with_name("stopped_job.py")


def entry(sequence: int, *, group: str = "0", name: str = "nccl:all_reduce", **more: Any) -> dict[str, Any]:
    return {
        "record_id": sequence,
        "pg_id": int(group),
        "process_group": (group, "default_pg" if group == "0" else "TENSOR"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "profiling_name": name,
        "time_created_ns": 10**18 + sequence,
        "input_sizes": [[4]],
        "output_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "is_p2p": False,
    } | more


def transfer(sequence: int, name: str, **more: Any) -> dict[str, Any]:
    return entry(0, name=f"nccl:{name}", is_p2p=True, p2p_seq_id=sequence, **more)


def dump(
    path: Path,
    entries: list[dict[str, Any]],
    status: dict[str, tuple[int, int]] | None = None,
    world: int = 2,
) -> Path:
    ranks = str(list(range(world)))
    content: dict[str, Any] = {
        "version": "2.10",
        "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": ranks},
            "1": {"name": "1", "desc": "TENSOR", "ranks": ranks},
        },
        "entries": entries,
    }
    if status is not None:
        content["pg_status"] = {
            number: {"last_enqueued_collective": newest, "last_completed_collective": done}
            for number, (newest, done) in status.items()
        }
    path.write_bytes(pickle.dumps(content, protocol=2))
    return path


def calls_under(*paths: Path) -> JobCalls:
    return read_calls(paths, ImportOptions())[0]


def hang_of(*paths: Path) -> Hang:
    return find_hang(calls_under(*paths))


def test_what_is_pending_and_called_is_kept(tmp_path: Path) -> None:
    dump(tmp_path / "nccl_trace_rank_0", [entry(1, state="completed"), entry(2), entry(3, state="started")])
    dump(tmp_path / "nccl_trace_rank_1", [entry(1, state="completed")])

    calls = calls_under(tmp_path)

    assert [(call.kind, call.sequence, call.started) for call in calls.ranks[0].pending] == [
        ("all_reduce", 2, False),
        ("all_reduce", 3, True),
    ]
    assert calls.ranks[0].pending[0].signature == "4 elements Float"
    assert calls.ranks[0].pending[0].before == {"default_pg": 1}
    assert (calls.ranks[0].called, calls.ranks[0].completed) == ({0: 3}, {0: 1})
    assert (calls.ranks[1].pending, calls.ranks[1].called) == ((), {0: 1})
    assert calls.groups[0].ranks == calls.world == (0, 1)


def test_a_call_is_complete_if_it_is_retired_whatever_its_state_is(tmp_path: Path) -> None:
    dump(tmp_path / "trace_0", [entry(1, retired=True), entry(2, time_discovered_completed_ns=5), entry(3)])

    (pending,) = calls_under(tmp_path).ranks[0].pending

    assert pending.sequence == 3


def test_calls_of_one_batch_are_pending_until_the_batch_completes(tmp_path: Path) -> None:
    both = [transfer(1, "send 0->1"), transfer(1, "recv 0<-1")]
    dump(tmp_path / "done_0", [*both, transfer(1, "coalesced", state="completed")])
    dump(
        tmp_path / "pending_1", [transfer(1, "send 1->0"), transfer(1, "recv 1<-0"), transfer(1, "coalesced")]
    )

    calls = calls_under(tmp_path)

    assert calls.ranks[0].pending == ()
    assert [(call.kind, call.peer) for call in calls.ranks[1].pending] == [("send", 0), ("recv", 0)]


def test_counters_reveal_the_calls_of_a_rank_without_entries(tmp_path: Path) -> None:
    # Rank 1 completed the call of TENSOR that is pending on rank 0, and lacks the one of all ranks.
    dump(tmp_path / "trace_0", [entry(7), entry(4, group="1")], {"0": (7, 6), "1": (4, 3)})
    dump(tmp_path / "trace_1", [], {"0": (6, 6), "1": (4, 4)})

    calls = calls_under(tmp_path)
    hang = find_hang(calls)

    assert calls.ranks[1].called == {0: 6, 1: 4}
    assert [(suspect.rank, suspect.certainty) for suspect in hang.suspects] == [(1, "shown")]
    assert [wait.group.description for wait in hang.waits] == ["default_pg"]
    assert hang.ranks_without_entries == (1,)
    assert hang.suspects[0].evidence[-1].last_called == 6
    assert [(lag.rank, lag.group.description, lag.completed_on) for lag in hang.lags] == [(0, "TENSOR", (1,))]


def test_counters_that_contradict_entries_are_not_used(tmp_path: Path) -> None:
    dump(tmp_path / "trace_0", [entry(7)], {"0": (90, 6), "1": (4, 4)})
    dump(tmp_path / "trace_1", [], {"0": (90, 90), "1": (4, 4)})

    assert calls_under(tmp_path).ranks[1].called == {}
    assert [suspect.rank for suspect in hang_of(tmp_path).suspects] == [1]


def test_a_rank_waits_for_the_side_that_has_not_sent(tmp_path: Path) -> None:
    dump(tmp_path / "trace_0", [transfer(8, "recv 0<-1")])
    dump(tmp_path / "trace_1", [transfer(3, "recv 1<-0", state="completed")])

    hang = hang_of(tmp_path)

    assert [(suspect.rank, suspect.certainty) for suspect in hang.suspects] == [(1, "shown")]
    (wait,) = hang.waits
    assert (wait.reason, wait.call, wait.waiting, wait.held_by) == ("not_called", "recv", (0,), (1,))


def test_files_that_are_no_dumps_are_skipped_with_a_note(tmp_path: Path) -> None:
    dump(tmp_path / "trace_0", [entry(1)], world=3)
    dump(tmp_path / "trace_1", [], world=3)
    (tmp_path / "notes.txt").write_text("slow since Monday")
    (tmp_path / "trace_2").write_bytes(b"\x80\x02cos\nsystem\n.")

    _, notes, files = read_calls([tmp_path], ImportOptions())

    assert [path.name for path in files] == ["trace_0", "trace_1"]
    assert [Path(note.where).name for note in notes] == ["notes.txt", "trace_2"]
    assert "would run code" in notes[1].what
    assert hang_of(tmp_path).ranks_without_dump == (2,)


def test_a_dump_with_the_name_of_another_rank_is_left_out_and_named(tmp_path: Path) -> None:
    dump(tmp_path / "trace_0", [entry(1)])
    renamed = dump(tmp_path / "trace_5", [entry(1)])

    calls, notes, files = read_calls([tmp_path], ImportOptions())

    assert files == (tmp_path / "trace_0",)
    assert [note.where for note in notes] == [str(renamed)]
    assert "its name ends in rank 5, and it has calls of group '0', which lists other ranks" in notes[0].what
    assert [suspect.rank for suspect in find_hang(calls).suspects] == [1]
    with pytest.raises(TraceError, match="its name ends in rank 5"):
        read_calls([renamed], ImportOptions())


def test_dumps_of_two_jobs_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        dump(tmp_path / name / "trace_0", [entry(1)])

    with pytest.raises(TraceError, match="second dump of rank 0") as refused:
        read_calls([tmp_path], ImportOptions())

    assert refused.value.path == str(tmp_path / "b" / "trace_0")


def test_without_a_dump_the_error_explains_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="TORCH_NCCL_DUMP_ON_TIMEOUT=1"):
        read_calls([tmp_path], ImportOptions())


@pytest.mark.parametrize(
    "ranks", ["", "[0, 1", "{}", '["a"]', "[0, 0]", "[-1, 0]", "[1.5]", "[true, 0]", "[" * 100_000]
)
def test_a_list_of_ranks_that_is_none_counts_as_unknown(tmp_path: Path, ranks: str) -> None:
    content = {
        "version": "2.10",
        "pg_config": {"0": {"desc": "default_pg", "ranks": ranks}},
        "pg_status": ["not", "a", "table"],
    }
    for rank in (0, 1):
        (tmp_path / f"dump_{rank}.json").write_text(json.dumps(content | {"entries": [entry(2 - rank)]}))

    (group,) = calls_under(tmp_path).groups

    assert (group.ranks, group.listed) == ((0, 1), False)
    assert [suspect.rank for suspect in hang_of(tmp_path).suspects] == [1]


def test_a_rank_without_a_dump_belongs_to_the_default_group_that_no_dump_lists(tmp_path: Path) -> None:
    # Given dumps of Gloo, which list no groups, from all ranks but the one that stands still
    for rank in (0, 2):
        content = {"version": "2.10", "pg_config": {}, "entries": [entry(1)]}
        (tmp_path / f"dump_{rank}.json").write_text(json.dumps(content))

    # Then the others wait for it
    (suspect,) = hang_of(tmp_path).suspects
    assert (suspect.rank, suspect.certainty) == (1, "likely")


@pytest.mark.parametrize(
    ("case", "broken", "stopped_devices"),
    [("gpu_error_1st", [12], [12, 14]), ("lock_gil_1st", [9, 14], [])],
)
def test_real_jobs_name_the_ranks_that_were_broken(
    case: str, broken: list[int], stopped_devices: list[int]
) -> None:
    hang = hang_of(real(f"hangs/{case}"))

    assert [(suspect.rank, suspect.certainty) for suspect in hang.suspects] == [
        (rank, "shown") for rank in broken
    ]
    assert [lag.rank for lag in hang.lags] == stopped_devices


@pytest.mark.parametrize(("case", "broken"), [("gpu_error_1st", [12]), ("lock_gil_1st", [9, 14])])
@pytest.mark.parametrize("counters", [True, False])
def test_real_jobs_name_the_same_ranks_without_counters_or_any_one_dump(
    case: str, broken: list[int], counters: bool
) -> None:
    dumps = {rank: read_dump(real(f"hangs/{case}/_dump_{rank}"), HangDump) for rank in range(16)}
    for missing in (None, *dumps):
        reader = CallReader()
        for rank, each in dumps.items():
            if rank != missing:
                reader.add(rank, each if counters else msgspec.structs.replace(each, pg_status=None))
        found = {suspect.rank: suspect.certainty for suspect in find_hang(reader.job()).suspects}

        expected = dict.fromkeys(broken, "shown") | ({} if missing is None else {missing: "possible"})
        if broken == [missing]:  # then the other broken rank, which has a lag, leads, too
            expected = {12: "likely", 14: "likely"}
        assert found == expected, missing


@pytest.mark.torchrun
def test_a_real_job_over_gloo_names_the_stopped_rank(tmp_path: Path) -> None:
    dumped_by(JOB, tmp_path, ranks=4, special=2)

    hang = hang_of(tmp_path)

    assert [(suspect.rank, suspect.certainty) for suspect in hang.suspects] == [(2, "shown")]
    assert {wait.group.description for wait in hang.waits} == {"TENSOR", "default_pg"}


def listing(path: Path, *groups: str) -> Path:
    """A dump of one call with these lists of ranks."""
    lists = {str(number): {"desc": "default_pg", "ranks": ranks} for number, ranks in enumerate(groups)}
    path.write_text(json.dumps({"version": "2.10", "pg_config": lists, "entries": [entry(1)]}))
    return path


@pytest.mark.parametrize("ranks", ["[" + "0," * 2**20, "[0" + " " * 2**23 + "]"], ids=["ranks", "spaces"])
def test_a_dump_with_lists_of_more_ranks_than_any_job_is_left_out(tmp_path: Path, ranks: str) -> None:
    listing(tmp_path / "trace_0", *[ranks] * 5)
    listing(tmp_path / "trace_1", "[0, 1]")

    job, notes, files = read_calls([tmp_path], ImportOptions())

    assert [path.name for path in files] == ["trace_1"]
    assert "more than 4,194,304" in notes[0].what
    assert job.world == (0, 1)


def test_lists_that_differ_from_dump_to_dump_are_bounded_together(tmp_path: Path) -> None:
    """Each rank of a job names the same ranks for a group, so that the list is kept once."""
    for rank in range(3):
        claimed = [str([*range(2**19), 2**19 + 3 * rank + each]) for each in range(3)]
        listing(tmp_path / f"trace_{rank}", *claimed)

    _, notes, files = read_calls([tmp_path], ImportOptions())

    assert [path.name for path in files] == ["trace_0", "trace_1"]
    assert "with the dumps before" in notes[0].what
