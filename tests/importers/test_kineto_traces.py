"""Real Kineto traces of other people's jobs: every one imports, and this says what it shows.

They are not part of this repository: they are looked for beside it, or under ``SFAPP_TRACES``.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from sfapp.accounting import diagnose
from sfapp.importers import ImportOptions, ImportResult, read_traces, write_imported
from sfapp.model.stages import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER, RESIDUAL
from sfapp.packets import validate_packet

FOLDER = Path(os.environ.get("SFAPP_TRACES", Path(__file__).parents[3] / "shared" / "traces")) / "kineto"
SPARSE = "data.sparse_dist"

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no real traces in {FOLDER}: set SFAPP_TRACES to the folder that has them"
)


@cache
def imported(name: str) -> ImportResult:
    return read_traces("kineto", sorted(FOLDER.glob(f"*/{name}")), ImportOptions())


def shares(found: ImportResult, window: int = 0) -> dict[str, float]:
    """Part of the first rank's time in each stage, in per cent."""
    each = found.windows[window].window
    total = each.duration_SNR[:, :, 0].sum()
    return {
        stage: round(100 * float(plane[:, 0].sum() / total))
        for stage, plane in zip(each.stages, each.duration_SNR, strict=True)
    }


def note_texts(found: ImportResult, window: int = 0) -> set[str]:
    return {f"{note.kind}: {note}" for note in found.windows[window].notes}


TORCHREC = {DATA: 2, SPARSE: 21, FORWARD: 26, BACKWARD: 45, CALLBACKS: 1, OPTIMIZER: 4, RESIDUAL: 1}
TORCHREC_2 = {DATA: 1, SPARSE: 46, FORWARD: 20, BACKWARD: 29, CALLBACKS: 1, OPTIMIZER: 2, RESIDUAL: 1}
RESNET50 = {DATA: 40, FORWARD: 26, BACKWARD: 20, OPTIMIZER: 14, RESIDUAL: 0}
DLRM = {DATA: 0, SPARSE: 1, FORWARD: 76, BACKWARD: 21, OPTIMIZER: 1, RESIDUAL: 0}
SHOWN = {  # files → steps, ranks, ranks expected, per cent of the first rank's time in each stage
    "resnet50_num_workers_0*": (6, (0,), 1, RESNET50),
    "resnet50_num_workers_4*": (6, (0,), 1, RESNET50 | {DATA: 1, FORWARD: 45, BACKWARD: 33, OPTIMIZER: 21}),
    "trace_diff_control*": (6, (3,), 8, TORCHREC | {SPARSE: 22, BACKWARD: 44}),
    "trace_diff_test*": (6, (1,), 2, TORCHREC_2),
    "ns_resolution_rank-0*": (5, (0,), 1, {FORWARD: 37, BACKWARD: 61, OPTIMIZER: 1, RESIDUAL: 0}),
    "nccl_data*": (3, (0,), 2, {FORWARD: 46, BACKWARD: 47, OPTIMIZER: 7, RESIDUAL: 0}),
    "cpu_only_rank-34*": (1, (34,), 300, {RESIDUAL: 100}),
    "mi250_minitoy_train*": (1, (0,), 1, {FORWARD: 15, BACKWARD: 81, OPTIMIZER: 3, RESIDUAL: 1}),
    "distributed_info_not_found*": (1, (0,), 1, TORCHREC),
    "rank_not_found*": (1, (0,), 1, TORCHREC),
    "rank_non_gpu*": (1, (0,), 1, TORCHREC),
    "triton_example*": (1, (0,), 1, {RESIDUAL: 100}),
    "with_gpu_user_annotation*": (5, (0,), 1, {FORWARD: 56, BACKWARD: 28, OPTIMIZER: 13, RESIDUAL: 4}),
    "resnet18": (3, (0, 1), 2, {FORWARD: 99, RESIDUAL: 1}),
    "sst_long_a2a_optimizer_4": (3, (0, 1, 2, 3), 4, DLRM | {SPARSE: 2, FORWARD: 73, BACKWARD: 24}),
    "sst_long_a2a_optimizer_5": (3, (0, 1, 2, 3), 4, DLRM),
    "sst_sleep_pl_dense_after_backward_2": (
        3, (0, 1, 2, 3), 4, {DATA: 0, SPARSE: 0, FORWARD: 99, OPTIMIZER: 0, RESIDUAL: 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_every_trace_shows_its_stages_and_gives_a_diagnosis(name: str, tmp_path: Path) -> None:
    steps, ranks, expected, in_stages = SHOWN[name]
    found = imported(name)

    assert not found.refused
    (each,) = found.windows
    assert (len(each.window.step_N), each.window.ranks.rank) == (steps, ranks)
    assert each.window.manifest.world_size == expected
    assert shares(found) == in_stages
    assert each.operators is not None
    written = write_imported(found, tmp_path)
    assert not written.refused
    assert not [fault for path in written.packets for fault in validate_packet(path)]
    diagnosis = diagnose(each.window)
    assert diagnosis.label_names[0] == "frontier_accounting"
    if len(ranks) < expected:
        assert "missing_ranks" in diagnosis.all_reasons
    if in_stages == {RESIDUAL: 100}:
        assert "closure_residual" in diagnosis.all_reasons


def test_two_jobs_in_one_folder_are_two_runs() -> None:
    found = imported("sst_long_a2a_optimizer_2")

    began = [(each.window.manifest.started_at or "")[:19] for each in found.windows]
    assert began == ["2023-11-02T20:02:40", "2023-11-02T20:07:08"]
    assert [each.window.ranks.rank for each in found.windows] == [(0, 1, 2, 3)] * 2
    assert shares(found, 0)[FORWARD] == 96
    assert "derived: rank 2 begins its steps 29.8 ms late" in note_texts(found, 1)


@pytest.mark.parametrize("name", ["sst_long_a2a_optimizer_4", "sst_long_a2a_optimizer_5"])
def test_rank_2_begins_its_steps_late_and_collectives_are_the_same_on_all_ranks(name: str) -> None:
    found = imported(name)

    assert any(note.startswith("derived: rank 2 begins its steps") for note in note_texts(found))
    operators = found.windows[0].operators
    assert operators is not None
    tied = operators.select(operators.sequence_E >= 0)
    assert len(tied)
    per_rank = [
        set(zip(of_rank.group_E.tolist(), of_rank.sequence_E.tolist(), strict=True))
        for of_rank in map(tied.of_rank, range(4))
    ]
    assert all(each == per_rank[0] for each in per_rank)


@pytest.mark.parametrize(
    ("name", "noted"),
    [
        ("rank_not_found*", "guessed: rank 0, which no file states: it is the only process"),
        ("resnet50_num_workers_0*", "derived: rank 0 from the file's name"),
        ("mi250_minitoy_train*", "skipped: step 2, truncated by the profiler to 0.049 ms"),
        ("cpu_only_rank-34*", "missing: 299 of 300 ranks have no file"),
        ("nccl_data*", "skipped: events of kind gpu_user_annotation"),
        (
            "with_gpu_user_annotation*",
            "guessed: no ProfilerStep: each Optimizer.step is taken as the end of a step",
        ),
        ("resnet18", "missing: no backward: neither a range nor autograd's nodes"),
    ],
)  # fmt: skip
def test_missing_information_of_a_trace_is_noted(name: str, noted: str) -> None:
    assert noted in note_texts(imported(name))


def test_the_same_process_in_several_files_counts_once() -> None:
    found = read_traces("kineto", sorted(FOLDER.glob("single_rank/*n*_*ound*")), ImportOptions())

    assert len(found.windows) == 1
    assert "skipped: rank_not_found.json.gz: the same process and steps as in another file" in note_texts(
        found
    )
