"""Plain tables: columns, units, start and end, nested JSON; and what is wrong with a table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfapp.errors import TraceError
from sfapp.importers import ImportOptions, ImportResult, Mapping, read_traces
from sfapp.model import RESIDUAL
from tests.importers.trace_files import diagnosed, example, imported, real

DATA, FORWARD, BACKWARD = "data.next_wait", "model.fwd_loss_cpu_wall", "model.backward_cpu_wall"
MS = Mapping(unit="ms")
HALF_A_GZIP = gzip.compress(b"step,rank", mtime=0)[:-9]


def written(folder: Path, text: str, name: str = "steps.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def only_error(found: ImportResult) -> TraceError:
    assert not found.windows
    (error,) = found.refused
    return error


def test_a_long_table_is_a_window(tmp_path: Path) -> None:
    text = "step,rank,stage,duration_ms\n"
    for step in range(3):
        text += f"{step},0,{DATA},5\n{step},0,{FORWARD},10\n{step},1,{DATA},25\n{step},1,{FORWARD},10.5\n"

    (each,) = imported("table", written(tmp_path, text)).windows

    window = each.window
    assert window.stages == (DATA, FORWARD, RESIDUAL)
    assert window.duration_SNR[:, 0].tolist() == [[5_000_000, 25_000_000], [10_000_000, 10_500_000], [0, 0]]
    assert window.wall_NR[0].tolist() == [15_000_000, 35_500_000]
    assert (window.run_id, window.ranks.rank) == (tmp_path.name, (0, 1))


def test_durations_that_several_files_hold_are_added_up_with_a_note(tmp_path: Path) -> None:
    text = f"step,rank,stage,duration_ms\n0,0,{DATA},5\n0,0,{FORWARD},10\n"
    written(tmp_path, text)
    written(tmp_path, text.replace("0,0,", "0,1,"), "other rank.csv")
    assert not [note for note in imported("table", tmp_path).windows[0].notes if note.kind == "guessed"]

    (tmp_path / "copy.csv.gz").write_bytes(gzip.compress(text.encode()))
    (each,) = imported("table", tmp_path).windows

    (note,) = [note for note in each.notes if note.kind == "guessed"]
    assert note.what.startswith("2 durations of a step, rank and stage are in a further file")
    assert each.window.wall_NR[0].tolist() == [30_000_000, 15_000_000]


def test_columns_names_and_roles_are_those_of_the_mapping(tmp_path: Path) -> None:
    table = pa.table(
        {
            "iteration": [7, 7, 7, 7],
            "worker": [0, 0, 1, 1],
            "phase": ["load batch", "compute", "load batch", "compute"],
            "t": [1.0, 2.0, 3.0, 4.0],
            "whole": [4.0, 4.0, 9.0, 9.0],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    mapping = Mapping(
        unit="s",
        columns={"step": "iteration", "rank": "worker", "stage": "phase", "duration": "t", "wall": "whole"},
        ranges={"load*": DATA, "compute": "model.compute"},
        roles={"0": "pp0", "1": "pp1"},
    )

    (each,) = imported("table", tmp_path, mapping).windows

    window = each.window
    assert window.stages == (DATA, "model.compute", RESIDUAL)
    assert window.duration_SNR[:, 0, 1].tolist() == [3 * 10**9, 4 * 10**9, 2 * 10**9]
    assert window.ranks.role == ("pp0", "pp1")


def test_start_and_end_leave_gaps_that_can_be_named(tmp_path: Path) -> None:
    # Rank 1 begins 3 ms after rank 0; its spans overlap by 1 ms; rank 0 ends 2 ms before it.
    text = "step,rank,stage,start,end\n0,0,fwd,100,110\n0,0,bwd,112,120\n0,1,fwd,103,115\n0,1,bwd,114,122\n"
    mapping = Mapping(
        unit="ms", ranges={"fwd": FORWARD, "bwd": BACKWARD, "before *": "x.wait", "after": "x.rest"}
    )

    (each,) = imported("table", written(tmp_path, text), mapping).windows

    window = each.window
    found = dict(zip(window.stages, (window.duration_SNR[:, 0] // 1_000_000).tolist(), strict=True))
    assert found == {
        FORWARD: [10, 12],
        BACKWARD: [8, 7],
        "x.wait": [2, 3],
        "x.rest": [2, 0],
        RESIDUAL: [0, 0],
    }
    assert window.wall_NR[0].tolist() == [22_000_000] * 2
    assert each.operators is not None
    assert len(each.operators) == 4


def test_numbers_nested_in_json_are_found_by_their_path(tmp_path: Path) -> None:
    for rank in (0, 1):
        document = {"1": {"fwd_start": [0.0, 2.0], "fwd_end": [1.0, 3.0 + rank], "memory": 5.0}}
        path = tmp_path / f"pp_rank_{rank}.json.gz"
        path.write_bytes(gzip.compress(json.dumps(document).encode()))
    mapping = Mapping(
        unit="s",
        file="pp_rank_{rank}.json*",
        rows={"start": "{step}/{stage}_start/{micro_step}", "end": "{step}/{stage}_end/{micro_step}"},
        ranges={"fwd": FORWARD},
    )

    (each,) = imported("table", tmp_path, mapping).windows

    assert each.window.duration_SNR[:, 0].tolist() == [[2 * 10**9, 3 * 10**9], [2 * 10**9, 10**9]]
    assert each.window.manifest.accumulation.factor == 2
    assert not each.window.manifest.accumulation.ordered


def test_long_runs_are_cut_into_windows(tmp_path: Path) -> None:
    text = "step,rank,stage,duration_us\n" + "".join(f"{step},0,x,{step}\n" for step in range(250))

    found = imported("table", written(tmp_path, text))

    assert [len(each.window.step_N) for each in found.windows] == [100, 100, 50]
    assert [each.window.number for each in found.windows] == [0, 1, 2]


def test_steps_that_a_rank_lacks_are_left_out_with_a_note(tmp_path: Path) -> None:
    text = "step,rank,stage,duration_ms\n0,0,x,1\n1,0,x,1\n1,3,x,1\n"

    (each,) = imported("table", written(tmp_path, text)).windows

    assert each.window.step_N.tolist() == [1]
    assert each.window.manifest.missing_ranks == (1, 2)
    assert any(note.kind == "skipped" and "1 of 2 steps" in note.what for note in each.notes)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("step,rank,stage,duration_ms\n0,0,x,1\n0,1,x,-2\n", "row 1, column 'duration_ms'", "-2 is negative"),
        (
            "step,rank,stage,duration_ms\n0,0,x,1\n0,1,x,nan\n",
            "row 1, column 'duration_ms'",
            "missing duration",
        ),
        (
            "step,rank,stage,duration_ms\n0,0,x,1\n0,1,x,\n",
            "row 1, column 'duration_ms'",
            "missing duration",
        ),
        ("step,rank,stage,duration_ms\n0,-1,x,1\n", "row 0, column 'rank'", "-1 is out of range"),
        ("step,rank,stage,duration_ms\n0,0,x,1e300\n", "row 0, column 'duration_ms'", "longer than 2^62"),
        ("step,rank,stage,duration_ms\n0,0,x,fast\n", None, "cannot be read"),
        ("step,rank,stage,duration\n0,0,x,1\n", None, "unknown unit of column 'duration'"),
        ("step,stage,duration_ms\n0,x,1\n", None, "no column 'rank'"),
        ("step,rank,stage,time_ms\n0,0,x,1\n", None, "no column 'duration'"),
        ("step,rank,stage,start_ms\n0,0,x,1\n", None, "a start without an end"),
        (
            "step,rank,stage,duration_ms,duration_us\n0,0,x,1,2\n",
            None,
            "columns 'duration_ms' and 'duration_us' may each be duration",
        ),
        ("step,rank,rank,stage,duration_ms\n0,0,1,x,1\n", None, "columns 'rank' and 'rank' may each be rank"),
        ("", None, "cannot be read"),
    ],
)
def test_a_wrong_table_is_reported_with_its_place_and_the_others_remain(
    tmp_path: Path, text: str, place: str | None, reason: str
) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    path = written(bad, text)

    error = only_error(imported("table", path))

    assert error.path == str(path)
    assert error.place == place
    assert reason in error.reason
    written(tmp_path, "step,rank,stage,duration_ms\n0,0,x,1\n", "good.csv")
    assert len(imported("table", tmp_path).windows) == 1


def test_a_file_with_a_wrong_row_is_left_out_whole(tmp_path: Path) -> None:
    written(tmp_path, "step,rank,stage,duration_ms\n0,0,x,1\n", "rank0.csv")
    written(tmp_path, "step,rank,stage,duration_ms\n0,1,x,1\n0,1,x,-1\n", "rank1.csv")

    found = imported("table", tmp_path)

    assert found.windows[0].window.ranks.rank == (0,)
    assert len(found.refused) == 1


@pytest.mark.parametrize("content", [b"PAR1 but no parquet", b"", HALF_A_GZIP])
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    name = "a.csv.gz" if content[:2] == b"\x1f\x8b" else "a.parquet"
    (tmp_path / name).write_bytes(content)

    assert "cannot be read" in only_error(imported("table", tmp_path, MS)).reason


def test_a_json_bomb_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(b" " * 2**20)

    mapping = Mapping(unit="s", rows={"duration": "{step}/{stage}"})

    assert "expands to more than" in only_error(imported("table", path, mapping)).reason


@pytest.mark.parametrize("value", ["[]", "{}", "1"])
def test_json_with_too_many_values_is_refused_before_they_are_made(tmp_path: Path, value: str) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(f"[{f'{value},' * 2**21}{value}, 2]".encode(), 1))

    mapping = Mapping(unit="s", rows={"duration": "{step}/{stage}"})

    assert "more than 2,097,152 values" in only_error(imported("table", path, mapping)).reason


def test_deeply_nested_json_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "[" * 100_000 + "]" * 100_000, "a.json")

    mapping = Mapping(unit="s", rows={"duration": "{step}/{stage}"})

    assert "is not valid JSON" in only_error(imported("table", path, mapping)).reason


def test_a_wrong_column_as_stage_is_reported(tmp_path: Path) -> None:
    text = "step,rank,stage,duration_ms\n" + "".join(f"0,0,name {row},1\n" for row in range(2000))

    assert "different stages" in only_error(imported("table", written(tmp_path, text))).reason


def test_pipeline_timings_of_primus_show_the_heavy_last_stage(tmp_path: Path) -> None:
    found = imported("table", real("pipeline/primus_pp8"), example("primus_pipeline"))

    (diagnosis,) = diagnosed(found, tmp_path)

    assert (diagnosis.ranks, diagnosis.steps) == (8, 20)
    assert diagnosis.findings == ()  # each rank is the only one of its pipeline stage
    leaders = {culprit.stage: culprit for culprit in diagnosis.culprits}
    assert {leaders[FORWARD].rank, leaders[BACKWARD].rank} == {7}
    assert leaders[BACKWARD].kind == "chronic"
    assert "role_aware_needed" in diagnosis.label_names
    assert "gradient_accumulation_ambiguous" in diagnosis.label_names
    assert found.windows[0].operators is not None
    assert len(found.windows[0].operators) == 8 * 20 * 16 * 2


def test_telemetry_of_dlio_shows_the_first_load_of_an_epoch_and_one_late_reader(tmp_path: Path) -> None:
    found = imported("table", real("telemetry/dlio_unet3d_24rank_1host"), example("dlio"))

    diagnoses = diagnosed(found, tmp_path)

    assert [(diagnosis.window, diagnosis.ranks, diagnosis.steps) for diagnosis in diagnoses] == [
        (epoch, 24, 541) for epoch in range(1, 6)
    ]
    for each in found.windows:
        load_NR = each.window.duration_SNR[each.window.stages.index(DATA)]
        assert int(load_NR[0].min()) > 30 * int(load_NR[1:].mean())
    assert {diagnosis.aim.stage for diagnosis in diagnoses if diagnosis.aim and not diagnosis.is_healthy} == {
        DATA
    }
    assert not found.refused
    assert any("per_epoch_stats" in note.where for note in found.notes)


def test_an_unknown_format_or_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no table traces"):
        read_traces("table", [tmp_path], ImportOptions())


def test_a_window_is_refused_if_its_number_cannot_be_kept(tmp_path: Path) -> None:
    def table(*windows: int) -> Path:
        rows = [f"{window},{place},0,{DATA},5\n" for place, window in enumerate(windows)]
        return written(tmp_path, "window,step,rank,stage,duration_ms\n" + "".join(rows))

    numbers = [each.window.number for each in imported("table", table(0, 2**23 - 1)).windows]
    assert numbers == [0, 2**23 - 1]

    error = only_error(imported("table", table(0, 2**24)))
    assert error.reason == "window 16,777,216 is too large: the largest number of a window is 8,388,607"


@pytest.mark.parametrize("stages", ["dddd", "abcd"], ids=["rows of one stage", "stages"])
def test_times_of_a_step_that_add_up_beyond_64_bits_are_refused(tmp_path: Path, stages: str) -> None:
    rows = "".join(f"0,0,{stage},{2**62}\n" for stage in stages)
    path = written(tmp_path, f"step,rank,stage,duration_ns\n0,0,{FORWARD},1000\n{rows}")

    error = only_error(imported("table", path))

    assert error.reason == "the times of a step add up to more than 2^62 ns: check their unit"
