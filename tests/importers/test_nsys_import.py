"""Nsight Systems exports: steps and stages out of NVTX, ranks out of processes, and what may be missing."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from sfapp.importers import ImportResult, Mapping, write_imported
from sfapp.model import CATEGORIES, RESIDUAL
from sfapp.model.operators import COLLECTIVE, KERNEL, RUNTIME
from sfapp.model.window import NOT_MEASURED
from sfapp.packets import packet_path
from tests.importers.trace_files import diagnosed, imported, notes_of, real

DATA, FORWARD, BACKWARD = "data.next_wait", "model.fwd_loss_cpu_wall", "model.backward_cpu_wall"
MS = 1_000_000
PUSH_POP, START_END = 59, 60


def thread(process: int) -> int:
    return (1 << 48) | (process << 24) | process


def export(
    path: Path,
    ranges: Sequence[tuple[int, int | None, str, int]],
    kernels: Sequence[tuple[int, int, str, int, int]] = (),
    kind: int = PUSH_POP,
    calls: Sequence[tuple[int, int, str, int]] = (),
) -> Path:
    """An export of ranges (start ms, end ms, name, process), names by ``textId``, and kernels (start, end,
    name, process, launched at), launches included.

    A kernel's launch is ``cudaLaunchKernel``, which takes 1 µs; ``calls`` are further calls of the runtime
    (start, end, name, process)."""
    strings: dict[str, int] = {"cudaLaunchKernel": 0}
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        file.execute(
            "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, "
            "globalTid INTEGER, textId INTEGER)"
        )
        for start, end, name, process in ranges:
            text = strings.setdefault(name, len(strings))
            end_ns = None if end is None else end * MS
            file.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, NULL, ?, ?)",
                (start * MS, end_ns, kind, thread(process), text),
            )
        if kernels:
            file.execute(
                "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, "
                "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, shortName INTEGER)"
            )
            file.execute(
                "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, "
                "correlationId INTEGER, nameId INTEGER)"
            )
        for place, (start, end, name, process, at) in enumerate(kernels):
            text = strings.setdefault(name, len(strings))
            row = (start * MS, end * MS, process % 10, 7, place, thread(process) & ~0xFFFFFF, text)
            file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            row = (at * MS, at * MS + 1000, thread(process), place, 0)
            file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", row)
        for start, end, name, process in calls:
            text = strings.setdefault(name, len(strings))
            row = (start * MS, end * MS, thread(process), 1000 + text, text)
            file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", row)
        file.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(key, text) for text, key in strings.items()]
        )
    file.close()
    return path


def a_step(at: int, number: int, process: int, data: int = 1) -> list[tuple[int, int | None, str, int]]:
    middle = at + data
    return [
        (at, middle + 8, f"Step {number}", process),
        (at, middle, "load_batch", process),
        (middle, middle + 3, "Forward", process),
        (middle, middle + 1, "Forward", process),  # nested: the outer one counts
        (middle + 3, middle + 7, "backward pass", process),
    ]


def stage_ms(found: ImportResult, stage: str, step: int = 0) -> list[int]:
    window = found.windows[0].window
    return (window.duration_SNR[window.stages.index(stage), step] // MS).tolist()


@pytest.mark.parametrize("kind", [PUSH_POP, START_END])
def test_numbered_ranges_are_steps_and_those_in_them_stages(tmp_path: Path, kind: int) -> None:
    ranges = [*a_step(0, 3, 11), *a_step(20, 4, 11, data=5), (40, 44, "Forward", 11)]

    found = imported("nsys", export(tmp_path / "job.sqlite", ranges, kind=kind))

    window = found.windows[0].window
    assert (window.run_id, window.step_N.tolist()) == ("job", [3, 4])
    assert window.stages == (DATA, FORWARD, BACKWARD, RESIDUAL)
    assert [stage_ms(found, stage, 1) for stage in window.stages] == [[5], [3], [4], [1]]
    notes = [note.what for note in notes_of(found)]
    assert "1 stage ranges outside any step" in notes
    assert any("no range in a step is optim" in what for what in notes)


def test_processes_of_one_file_are_ranks_by_device(tmp_path: Path) -> None:
    ranges = [*a_step(0, 1, 21), *a_step(0, 1, 10, data=4)]
    kernels = [(2, 3, "gemm", 21, 1), (5, 6, "ncclDevKernel_AllReduce", 10, 30)]

    found = imported("nsys", export(tmp_path / "job.sqlite", ranges, kernels))

    assert stage_ms(found, DATA) == [4, 1]  # process 10 is on device 0, process 21 on device 1
    operators = found.windows[0].operators
    assert operators is not None
    names = {operators.name(place): place for place in range(len(operators))}
    assert CATEGORIES[operators.category_E[names["gemm"]]] == CATEGORIES[KERNEL]
    assert operators.category_E[names["ncclDevKernel_AllReduce"]] == COLLECTIVE
    assert operators.step_E[names["gemm"]] == 1
    assert operators.step_E[names["ncclDevKernel_AllReduce"]] == -1  # launched after the step
    assert (operators.category_E == RUNTIME).sum() == 2
    assert any(note.kind == "guessed" and "by device" in note.what for note in notes_of(found))


def test_a_synchronising_call_waits_while_collectives_alone_run(tmp_path: Path) -> None:
    """Step 1 ends at 9: data until 1, forward until 4, backward until 8."""
    ranges = [*a_step(0, 1, 20), *a_step(0, 1, 11)]
    kernels = [(2, 7, "ncclDevKernel_AllReduce", 20, 1), (3, 5, "gemm", 20, 1)]
    kernels += [(2, 4, "ncclDevKernel_AllReduce", 11, 1)]
    calls = [(1, 9, "cudaStreamSynchronize_v3020", 20), (1, 9, "cudaMalloc_v3020", 11)]

    found = imported("nsys", export(tmp_path / "job.sqlite", ranges, kernels, calls=calls))

    window = found.windows[0].window
    waits = {stage: (wait_NR[0] // MS).tolist() for stage, wait_NR in window.waits.items()}
    assert waits == {FORWARD: [1, 0], BACKWARD: [2, 0]}  # 2 to 3, and 5 to 7


def test_without_collectives_the_waits_of_ranks_are_unknown(tmp_path: Path) -> None:
    kernels = [(2, 7, "ncclDevKernel_AllReduce", 20, 1), (2, 4, "gemm", 11, 1)]
    calls = [(1, 9, "cudaDeviceSynchronize", process) for process in (20, 11)]
    path = export(tmp_path / "job.sqlite", [*a_step(0, 1, 20), *a_step(0, 1, 11)], kernels, calls=calls)

    window = imported("nsys", path).windows[0].window

    assert window.waits[FORWARD].tolist() == [[2 * MS, NOT_MEASURED]]


def test_files_that_differ_in_rank_are_one_run(tmp_path: Path) -> None:
    for rank in (0, 1):
        export(tmp_path / f"train.rank{rank}.sqlite", a_step(0, 1, 30 + rank, data=1 + 6 * rank))

    found = imported("nsys", tmp_path)

    assert found.windows[0].window.run_id == "train"
    assert stage_ms(found, DATA) == [1, 7]


def test_a_mapping_names_steps_and_stages(tmp_path: Path) -> None:
    ranges = [(0, 9, "outer loop 7", 1), (1, 4, "my data", 1), (4, 6, "Forward", 1)]
    mapping = Mapping(step="outer loop *", ranges={"my data": DATA, "Forward": ""})

    found = imported("nsys", export(tmp_path / "a.sqlite", ranges), mapping)

    window = found.windows[0].window
    assert (window.step_N.tolist(), window.stages) == ([7], (DATA, RESIDUAL))


def test_operators_of_pytorch_keep_their_name_and_sequence(tmp_path: Path) -> None:
    ranges = [
        (0, 9, "Step 1", 1),
        (1, 2, "aten::add, seq = 12, op_id = 34", 1),
        (3, 4, "aten::mul, op_id = 35", 1),
    ]

    found = imported("nsys", export(tmp_path / "a.sqlite", ranges))

    operators = found.windows[0].operators
    assert operators is not None
    assert {"aten::add", "aten::mul"} < set(operators.names)
    assert 12 in operators.sequence_number_E.tolist()


def test_events_without_end_or_that_end_too_early_are_skipped_and_counted(tmp_path: Path) -> None:
    ranges = [*a_step(0, 1, 1), (30, None, "Forward", 1), (9, 2, "Forward", 1)]

    found = imported("nsys", export(tmp_path / "a.sqlite", ranges))

    assert any("2 events without an end" in note.what for note in notes_of(found))
    assert stage_ms(found, FORWARD) == [3]


def test_the_environment_is_not_read(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", a_step(0, 1, 1))
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        file.execute(
            "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'node-9'), ('Env', 'TOKEN=secret')"
        )
    file.close()

    found = imported("nsys", path)

    assert found.windows[0].window.ranks.hostname == ("node-9",)
    write_imported(found, tmp_path / "out")
    assert b"secret" not in packet_path(tmp_path / "out", "a", 0).read_bytes()


def test_a_view_that_stands_for_a_table_is_not_read(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", a_step(0, 1, 1))
    with sqlite3.connect(path) as file:
        file.execute("ALTER TABLE NVTX_EVENTS RENAME TO hidden")
        file.execute("CREATE VIEW NVTX_EVENTS AS SELECT * FROM hidden")
    file.close()

    found = imported("nsys", path)

    assert not found.windows
    assert "no process" in found.refused[0].reason


def truncated(path: Path) -> None:
    packed = gzip.compress(path.read_bytes())
    path.with_name("b.sqlite.gz").write_bytes(packed[: len(packed) // 2])
    path.unlink()


def foreign(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0 and then nothing of it" * 40)


def other_tables(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE t (a)")
    file.close()


def other_columns(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("ALTER TABLE NVTX_EVENTS RENAME COLUMN globalTid TO thread")
    file.close()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncated, "cannot be read after"),
        (foreign, "is not a readable SQLite file"),
        (other_tables, "is not an Nsight Systems export"),
        (other_columns, "no column 'globalTid'"),
    ],
)
def test_a_bad_export_is_refused_and_the_others_go_on(tmp_path: Path, damage: object, reason: str) -> None:
    export(tmp_path / "good.sqlite", a_step(0, 1, 1))
    assert callable(damage)
    damage(export(tmp_path / "b.sqlite", a_step(0, 1, 1)))

    found = imported("nsys", tmp_path)

    assert [each.window.run_id for each in found.windows] == ["good"]
    (error,) = found.refused
    assert reason in error.reason
    assert error.path is not None
    assert "b.sqlite" in error.path


def test_real_steps_of_a_benchmark(tmp_path: Path) -> None:
    found = imported("nsys", real("nsys/transformer_bench_steps.sqlite.gz"))

    (diagnosis,) = diagnosed(found, tmp_path)

    window = found.windows[0].window
    assert window.step_N.tolist() == [1, 2, 3, 4, 5]
    assert window.stages == (FORWARD, BACKWARD, RESIDUAL)
    assert (window.duration_SNR[0, :, 0] // MS).tolist() == [349, 47, 35, 26, 36]  # the first compiles
    assert "single_rank" in diagnosis.all_reasons
    assert "closure_residual" in diagnosis.all_reasons  # its optimizer is not marked
    assert any("10 stage ranges outside any step" in note.what for note in notes_of(found))
    assert found.windows[0].operators is not None
    assert (found.windows[0].operators.category_E == KERNEL).sum() == 17_032


def test_a_real_capture_of_two_ranks_without_steps_is_one_step(tmp_path: Path) -> None:
    found = imported("nsys", real("nsys/h100_2gpu_1s.sqlite.gz"))

    (diagnosis,) = diagnosed(found, tmp_path)

    assert (diagnosis.ranks, diagnosis.steps) == (2, 1)
    assert diagnosis.is_healthy
    assert "telemetry_limited" in diagnosis.label_names
    operators = found.windows[0].operators
    assert operators is not None
    assert [(operators.of_rank(rank).category_E == KERNEL).sum() for rank in (0, 1)] == [1721, 1721]
    assert "aten::index_select" in operators.names
    assert any("whole capture is taken as one" in note.what for note in notes_of(found))


@pytest.mark.parametrize(
    ("name", "missing"),
    [("no_nvtx_table", "no table NVTX_EVENTS"), ("non_utf8_metadata", "no table CUPTI_ACTIVITY_KIND_KERNEL")],
)
def test_real_exports_without_ranges_import_with_a_note(tmp_path: Path, name: str, missing: str) -> None:
    found = imported("nsys", real(f"nsys/{name}.sqlite.gz"))

    (diagnosis,) = diagnosed(found, tmp_path)

    assert not found.refused
    assert diagnosis.ranks == 1
    assert missing in {note.what for note in notes_of(found)}
