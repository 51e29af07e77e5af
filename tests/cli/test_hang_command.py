"""``sfapp hang`` through the real command: folders, junk, one dump of many, narrow terminals, JSON."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sfapp.cli import cli
from sfapp.errors import TraceError
from sfapp.service.hang import MOST_DETAILED, analyze_dumps


def hang(*args: object, columns: int = 100) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, ["hang", *map(str, args)])


def dump(folder: Path, rank: int, calls: int, description: str = "TENSOR", world: int = 4) -> None:
    entries = [
        {
            "process_group": ("7", description),
            "pg_id": 7,
            "collective_seq_id": sequence,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": 10**18,
            "state": "completed" if sequence < 3 else "scheduled",
        }
        for sequence in range(1, calls + 1)
    ]
    config = {"7": {"desc": description, "ranks": str(list(range(world)))}}
    content: dict[str, Any] = {"version": "2.10", "pg_config": config, "entries": entries}
    (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """A job of four ranks in which rank 2 has not made the third call, and a file that is no dump."""
    for rank in range(4):
        dump(tmp_path, rank, 2 if rank == 2 else 3)
    (tmp_path / "slurm.out").write_text("step 12")
    return tmp_path


def test_the_rank_that_holds_the_job_is_named_with_its_evidence(dumps: Path) -> None:
    result = hang(dumps)

    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[:5] == [
        "Rank 2 holds the job.",
        "Dumps of 4 of 4 ranks.",
        "",
        "Rank 2 (shown): 3 ranks wait for it, and it waits for no other rank",
        "  TENSOR (group 7): ranks 0–1 and 3 wait in all_reduce 3; rank 2 has not called it (its newest: 2)",
    ]
    assert "slurm.out: its name does not end in the rank" in " ".join(result.output.split())


def test_json_has_suspects_groups_and_ranks(dumps: Path) -> None:
    found = json.loads(hang(dumps, "--json").output)

    (suspect,) = found["suspects"]
    assert (suspect["rank"], suspect["certainty"], suspect["groups"]) == (2, "shown", ["7"])
    (evidence,) = suspect["evidence"]
    assert (evidence["kind"], evidence["sequence"], evidence["last_called"]) == ("not_called", 3, 2)
    (group,) = found["groups"]
    assert (group["group"], group["ranks"], group["waiting"], group["held_by"]) == (
        "7",
        [0, 1, 2, 3],
        [0, 1, 3],
        [2],
    )
    assert (found["ranks_without_entries"], found["ranks_without_dump"], found["lags"]) == ([], [], [])
    assert [note["kind"] for note in found["notes"]] == ["skipped"]
    assert len(found["files"]) == 4


def test_ranks_without_dumps_of_a_large_job_share_one_entry(tmp_path: Path) -> None:
    # With the ranks of the group in the evidence about each of them, the object would have 3 GB.
    for rank in range(4):
        dump(tmp_path, rank, 3, world=16_384)
    found = analyze_dumps([tmp_path])
    absent = found.found.suspects
    assert [suspect.rank for suspect in absent] == list(range(4, 16_384))
    assert len({id(suspect.evidence) for suspect in absent}) == 1
    document = found.document()
    assert [suspect["groups"] for suspect in document["suspects"]] == [["7"]] * len(absent)
    assert {len(suspect["evidence"]) for suspect in document["suspects"][:MOST_DETAILED]} == {1}
    assert len(json.dumps(document)) < 10_000_000
    output = hang(tmp_path).output
    assert "Ranks 4–16383 (possible): no dump" in output


def test_one_dump_of_four_identifies_no_rank(dumps: Path) -> None:
    result = hang(dumps / "nccl_trace_rank_0", columns=110)

    assert result.output.splitlines()[:4] == [
        "The dumps do not identify one rank: ranks 1–3 may hold the job.",
        "Dumps of 1 of 4 ranks; no dump of ranks 1–3.",
        "",
        "Ranks 1–3 (possible): no dump",
    ]
    assert "rank 0 waits in all_reduce 3, which all ranks with a dump called" in result.output


def test_dumps_in_which_no_call_is_pending_have_no_suspect(tmp_path: Path) -> None:
    for rank in range(4):
        dump(tmp_path, rank, 2)

    result = hang(tmp_path)

    assert result.exit_code == 0
    assert result.output.startswith("No rank waits: no call of any group is pending in these dumps.")


def test_lines_fit_a_narrow_terminal(dumps: Path) -> None:
    lines = hang(dumps, columns=44).output.splitlines()

    path_line = next(line for line in lines if str(dumps) in line)
    assert all(len(line) <= 44 for line in lines if line != path_line)


def test_names_from_dumps_reach_the_terminal_escaped(tmp_path: Path) -> None:
    for rank in range(4):
        dump(tmp_path, rank, 2 if rank == 2 else 3, description="\x1b[31mred\u202e")

    output = hang(tmp_path).output

    assert "\x1b" not in output
    assert "\u202e" not in output
    assert "\\x1b[31mred" in output


def test_a_folder_without_dumps_is_an_error_that_explains_how_to_get_them(tmp_path: Path) -> None:
    result = hang(tmp_path)

    assert isinstance(result.exception, TraceError)
    assert f"no Flight Recorder dump under {tmp_path}" in str(result.exception)


def test_a_dump_with_too_many_groups_is_left_out(dumps: Path) -> None:
    entries = [
        {
            "process_group": (str(group), f"group {group}"),
            "collective_seq_id": 1,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": 10**18,
            "state": "scheduled",
        }
        for group in range(5000)
    ]
    content = {"version": "2.10", "pg_config": {}, "entries": entries}
    (dumps / "nccl_trace_rank_3").write_bytes(pickle.dumps(content, protocol=2))
    result = hang(dumps)
    assert result.exit_code == 0, result.output
    assert "has entries of 5,000 groups, more than 4,096" in " ".join(result.output.split())


def test_counters_beyond_64_bits_are_not_used(dumps: Path) -> None:
    path = dumps / "nccl_trace_rank_2"
    content = pickle.loads(path.read_bytes())
    status = {"last_enqueued_collective": 2, "last_completed_collective": 10**5000}
    path.write_bytes(pickle.dumps({**content, "pg_status": {"7": status}}, protocol=2))
    result = hang(dumps)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Rank 2 holds the job.")


def test_a_link_that_cannot_be_followed_is_left_out_and_named(dumps: Path) -> None:
    (dumps / "nccl_trace_rank_9").symlink_to("x" * 300)
    result = hang(dumps, columns=200)
    assert result.exit_code == 0
    assert "File name too long" in result.output
