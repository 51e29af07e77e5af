"""A hostile file costs an import itself only: its fault names file and place, and the others are read."""

from __future__ import annotations

import json
import pickle
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sfapp.errors import TraceError
from sfapp.importers import ImportOptions, ImportResult
from sfapp.importers.flight_recorder_dump import rank_of
from sfapp.importers.import_formats import read_traces
from sfapp.importers.import_result import guarded
from sfapp.importers.sqlite_reader import open_database
from tests.importers.test_nsys_import import a_step, export
from tests.importers.test_traceml_import import events, telemetry

TABLE = "step,rank,stage,duration_ms\n0,0,load,1\n1,0,load,2\n"


def imported_files(name: str, *paths: Path) -> ImportResult:
    return read_traces(name, list(paths), ImportOptions())


def entry(**fields: object) -> dict[str, object]:
    return {
        "profiling_name": "nccl:all_reduce",
        "collective_seq_id": 1,
        "time_created_ns": 1,
        "process_group": ["0", "default"],
    } | fields


def test_a_csv_header_that_is_not_utf8_is_refused_and_the_other_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bad.csv").write_bytes(TABLE.encode().replace(b"rank", b"ra\xffnk"))
    (tmp_path / "good.csv").write_text(TABLE)

    result = imported_files("table", tmp_path / "a" / "bad.csv", tmp_path / "good.csv")

    assert len(result.windows) == 1
    (refused,) = result.refused
    assert refused.path == str(tmp_path / "a" / "bad.csv")
    assert "utf-8" in refused.reason


def test_text_in_a_csv_that_is_not_utf8_is_refused_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(TABLE.encode().replace(b"load", b"lo\xffad"))

    (refused,) = imported_files("table", path).refused

    assert refused.path == str(path)


@pytest.mark.parametrize("name", ["nsys", "traceml"])
def test_sqlite_messages_that_are_not_utf8_are_refused(tmp_path: Path, name: str) -> None:
    # given a database whose damaged schema makes SQLite name what is not UTF-8 in its message
    path = tmp_path / "bad.sqlite"
    with sqlite3.connect(path) as file:
        table = "NVTX_EVENTS" if name == "nsys" else "step_time_samples"
        file.execute(f"CREATE TABLE {table} (id INTEGER, abcdef TEXT)")
    file.close()
    path.write_bytes(path.read_bytes().replace(b"abcdef TEXT", b"\xff\xfe(f TEXT"))

    (refused,) = imported_files(name, path).refused

    assert refused.path == str(path)


@pytest.mark.parametrize(
    "fields",
    [
        {"time_created_ns": 10**40},
        {"collective_seq_id": 10**40},
        {"time_discovered_completed_ns": 10**40},
        {"time_discovered_started_ns": -1},
        {"input_sizes": [[10**5000]]},
        {"thread_id": 10**5000},
    ],
)
def test_a_dump_with_a_number_beyond_64_bits_is_refused_and_the_others_are_read(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "good").mkdir()
    bad, good = tmp_path / "bad" / "trace_0", tmp_path / "good" / "trace_0"
    bad.write_bytes(pickle.dumps({"version": "2.5", "entries": [entry(**fields)]}))
    calls = [entry(collective_seq_id=place, time_created_ns=place) for place in range(4)]
    good.write_text(json.dumps({"version": "2.5", "entries": calls}))

    result = imported_files("flight-recorder", bad, good)

    assert [each.path for each in result.refused] == [str(bad)]
    assert result.windows


@pytest.mark.parametrize("most", [4e12, 9e12])
def test_telemetry_with_times_too_large_to_add_up_is_refused(tmp_path: Path, most: float) -> None:
    huge = {name: {"a": {"cpu_ms": most}, "b": {"cpu_ms": most}} for name in events(1, 1, 1, 1)}

    (refused,) = imported_files("traceml", telemetry(tmp_path, [(1, 0, huge)])).refused

    assert "ms" in refused.reason


def test_an_export_with_long_texts_is_read_in_little_time_and_memory(tmp_path: Path) -> None:
    path = export(tmp_path / "long.sqlite", [(0, 9, "step 1", 1)])
    with sqlite3.connect(path) as file:
        for place in range(60):
            text = "a, seq = 1" * (16_000_000 // 10) + f"{place}"
            row = (place, place + 1, 59, text, (1 << 48) | (1 << 24) | 1, None)
            file.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", row)
    file.close()
    assert windows_in_little_memory("nsys", path) == 1


def windows_in_little_memory(name: str, path: Path) -> int:
    """How many windows an import of one file gives in 60 s and 500 MB."""
    script = (
        "import sys; from pathlib import Path\n"
        "from sfapp.importers import ImportOptions\n"
        "from sfapp.importers.import_formats import read_traces\n"
        "result = read_traces(sys.argv[1], [Path(sys.argv[2])], ImportOptions())\n"
        "assert not [refused for refused in result.refused if 'MemoryError' in refused.reason]\n"
        "print(len(result.windows))"
    )

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        resource.setrlimit(resource.RLIMIT_DATA, (500 << 20, 500 << 20))

    command = [sys.executable, "-c", script, name, str(path)]
    return int(subprocess.run(command, check=True, preexec_fn=limited, stdout=subprocess.PIPE).stdout)


def test_a_table_that_names_a_rank_of_no_job_is_refused_before_missing_ranks_are_listed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(f"{TABLE}0,{2**31 - 1},load,1\n1,{2**31 - 1},load,1\n")

    assert windows_in_little_memory("table", path) == 0

    (refused,) = imported_files("table", path).refused
    assert refused.reason == "rank 2,147,483,647 is larger than any job: the largest rank is 1,048,575"


def test_windows_that_lack_most_ranks_of_a_job_share_the_list_of_these(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    rows = [f"{window},0,{rank},load,1\n" for window in range(40) for rank in (0, 2**20 - 1)]
    path.write_text("window,step,rank,stage,duration_ms\n" + "".join(rows))

    assert windows_in_little_memory("table", path) == 40


def repeated(path: Path, table: str) -> Path:
    """Let 400 rows of a table be its only row."""
    with sqlite3.connect(path) as file:
        file.execute("VACUUM")  # leaves the row where a page's first one is
        (page,) = file.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = file.execute("PRAGMA page_size").fetchone()
    file.close()
    content = bytearray(path.read_bytes())
    at = (page - 1) * size
    row = content[at + 8 : at + 10]
    count = 400
    content[at + 3 : at + 5] = count.to_bytes(2)
    content[at + 8 : at + 8 + 2 * count] = row * count
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("value", ["zeroblob(8000000)", "hex(zeroblob(4000000))"], ids=["blob", "text"])
@pytest.mark.parametrize("column", ["start", "streamId"])
def test_a_long_value_that_many_rows_of_an_export_name_takes_little_memory(
    tmp_path: Path, value: str, column: str
) -> None:
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, streamId)")
        file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 1000, 7)")
        file.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {column} = {value}")
    file.close()

    assert windows_in_little_memory("nsys", repeated(path, "CUPTI_ACTIVITY_KIND_KERNEL")) in (0, 1)


@pytest.mark.parametrize("column", ["events_json", "hostname", "step"])
def test_a_long_value_that_many_rows_of_telemetry_name_takes_little_memory(
    tmp_path: Path, column: str
) -> None:
    path = telemetry(tmp_path, [(1, 0, events(1, 1, 1, 1))])
    with sqlite3.connect(path) as file:
        file.execute(f"UPDATE step_time_samples SET {column} = hex(zeroblob(4000000))")
    file.close()

    assert windows_in_little_memory("traceml", repeated(path, "step_time_samples")) in (0, 1)


@pytest.mark.parametrize(
    ("thread", "reason"),
    [("place << 24", "more than 4,096 processes"), ("place", "more than 65,536 threads and streams")],
)
def test_an_export_of_endless_processes_or_threads_is_refused(
    tmp_path: Path, thread: str, reason: str
) -> None:
    path = export(tmp_path / "a.sqlite", [(0, 9, "step 1", 1)])
    with sqlite3.connect(path) as file:
        file.execute(
            "WITH RECURSIVE places(place) AS (SELECT 1 UNION ALL SELECT place + 1 FROM places LIMIT 70000) "
            f"INSERT INTO NVTX_EVENTS SELECT 0, 1, 59, 'a', {thread}, NULL FROM places"
        )
    file.close()

    (refused,) = imported_files("nsys", path).refused

    assert refused.reason == reason


@pytest.mark.parametrize("begin", ["CREATE VIRTUAL", "CREATE  VIRTUAL", "CREATE/**/VIRTUAL"])
def test_a_virtual_table_is_not_read_however_its_definition_is_written(tmp_path: Path, begin: str) -> None:
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as file:
        file.execute("CREATE VIRTUAL TABLE StringIds USING rtree(id, value, above)")
        file.execute("PRAGMA writable_schema = ON")
        file.execute("UPDATE sqlite_master SET sql = replace(sql, 'CREATE VIRTUAL', ?)", (begin,))
    file.close()

    with open_database(path) as found:
        assert "StringIds" not in found.columns


def test_what_a_reader_does_not_expect_is_a_fault_of_the_file(tmp_path: Path) -> None:
    refused: list[TraceError] = []
    for error in (MemoryError(), KeyError("key"), AssertionError(), OverflowError("too large")):
        with guarded(refused, tmp_path / "file", "place"):
            raise error

    assert [each.place for each in refused] == ["place"] * 4
    assert {each.path for each in refused} == {str(tmp_path / "file")}


def test_an_interrupt_ends_the_import(tmp_path: Path) -> None:
    refused: list[TraceError] = []
    with pytest.raises(KeyboardInterrupt), guarded(refused, tmp_path):
        raise KeyboardInterrupt
    assert not refused


def test_a_gzipped_bomb_is_refused_by_its_ratio(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "bomb.sqlite.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(bytes(2**22))

    (refused,) = imported_files("nsys", path).refused

    assert "expands to more than" in refused.reason


def pickled(head: bytes, each: bytes, times: int) -> bytes:
    return b"\x80\x04(" + head + each * times + b"."


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"version": "2.5", "entries": [entry(input_sizes=["..."])]})
        .replace('"..."', ",".join(["[]"] * 2**21))
        .encode(),
        json.dumps({"version": "2.5", "entries": [], "more": ["..."]})
        .replace('"..."', "1," * 2**24)
        .encode(),
        pickled(b"", b"]", 2**21 + 1),
        pickled(b"", b"\x8f", 2**21 + 1),
    ],
    ids=["lists", "numbers", "pickled lists", "pickled sets"],
)
@pytest.mark.parametrize("reads", ["import", "hang"])
def test_a_dump_with_more_values_than_calls_have_is_refused_in_little_memory(
    tmp_path: Path, content: bytes, reads: str
) -> None:
    path = tmp_path / "trace_0"
    path.write_bytes(content)
    script = (
        "import sys; from pathlib import Path\n"
        "from sfapp.importers import ImportOptions, read_traces\n"
        "from sfapp.importers.recorded_calls import read_calls\n"
        "path = [Path(sys.argv[1])]\n"
        "try:\n"
        "    found = read_traces('flight-recorder', path, ImportOptions()).refused if sys.argv[2] == 'import'"
        " else read_calls(path, ImportOptions())\n"
        "except Exception as error:\n"
        "    found = error\n"
        "print(found)\n"
    )

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (500 << 20, 500 << 20))

    result = subprocess.run(
        [sys.executable, "-c", script, path, reads], capture_output=True, text=True, preexec_fn=limited
    )
    assert "no dump of one rank has so many" in result.stdout, result.stderr


@pytest.mark.parametrize("name", ["nccl_trace_rank_1000000003", "dump_1000000003.json"])
def test_a_number_that_is_too_long_for_a_rank_is_not_read_in_part(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match="its name does not end in the rank"):
        rank_of(tmp_path / name)


def test_an_export_named_after_a_number_too_long_for_a_rank_is_a_run_of_its_own(tmp_path: Path) -> None:
    path = export(tmp_path / "report_rank20261129.sqlite", a_step(0, 3, 11))

    (window,) = imported_files("nsys", path).windows

    assert window.draft.run_id == "report_rank20261129"
    assert list(window.draft.ranks.rank) == [0]
