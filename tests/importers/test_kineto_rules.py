"""Rules by which an import of Kineto traces finds stages and steps."""

from __future__ import annotations

from pathlib import Path

from sfapp.model.stages import BACKWARD, DATA, FORWARD, OPTIMIZER, RESIDUAL
from tests.importers.kineto_events import (
    LOADER,
    NODE,
    PLAIN_STEP,
    event,
    imported,
    notes_text,
    spent_ms,
    trace,
)


def test_the_gap_between_data_and_the_first_node_is_forward(tmp_path: Path) -> None:
    found = imported(trace(tmp_path / "a.json", PLAIN_STEP))

    assert spent_ms(found) == {DATA: [20], FORWARD: [30], BACKWARD: [25], OPTIMIZER: [10], RESIDUAL: [15]}
    assert "derived: forward is the gap between data and backward" in notes_text(found)


def test_backward_goes_on_to_the_last_collective_before_the_optimizer(tmp_path: Path) -> None:
    on_its_thread = event("gloo:all_reduce", 60, 82, tid=777)
    after = event("gloo:all_reduce", 96, 99, tid=777)
    on_device = event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 61, 90, "kernel", pid=0, tid=13)

    host = imported(trace(tmp_path / "a.json", [*PLAIN_STEP, on_its_thread, after]))
    device = imported(trace(tmp_path / "b.json", [*PLAIN_STEP, on_device]))

    assert spent_ms(host)[BACKWARD] == [32]
    assert spent_ms(device)[BACKWARD] == [35]  # the optimizer begins while it still runs


def test_forward_of_the_wrapped_model_goes_on_to_backward_for_the_loss(tmp_path: Path) -> None:
    found = imported(
        trace(tmp_path / "a.json", [*PLAIN_STEP, event("DistributedDataParallel.forward", 25, 44)])
    )

    assert spent_ms(found)[FORWARD] == [25]
    assert "the loss" in notes_text(found)


def test_what_lies_between_forward_and_backward_keeps_its_own_stage(tmp_path: Path) -> None:
    events = [
        event("ProfilerStep#1", 0, 100),
        event("## load_batch ##", 0, 12),
        event(LOADER, 1, 9),
        event("## forward ##", 12, 40),
        event("DistributedDataParallel.forward", 13, 39),
        event("## sparse_data_dist ##", 40, 60),
        event("## backward ##", 60, 90),
        event("## optimizer ##", 90, 98),
        event("DistributedDataParallel.forward", 70, 80, tid=101),
    ]

    found = imported(trace(tmp_path / "a.json", events))

    assert spent_ms(found) == {
        DATA: [12], "data.sparse_dist": [20], FORWARD: [28], BACKWARD: [30], OPTIMIZER: [8], RESIDUAL: [2],
    }  # fmt: skip


def test_a_checkpoints_second_forward_is_part_of_backward(tmp_path: Path) -> None:
    events = [
        event("ProfilerStep#1", 0, 100),
        event("DistributedDataParallel.forward", 10, 40),
        event(NODE, 40, 80, "cpu_op"),
        event("DistributedDataParallel.forward", 50, 60),
    ]

    found = imported(trace(tmp_path / "a.json", events))

    assert spent_ms(found) == {FORWARD: [30], BACKWARD: [40], RESIDUAL: [30]}


def test_micro_steps_keep_forward_and_backward_apart(tmp_path: Path) -> None:
    micro = [
        each
        for begin in (0, 50)
        for each in (
            event(LOADER, begin, begin + 10),
            event("DistributedDataParallel.forward", begin + 10, begin + 30),
            event(NODE, begin + 30, begin + 45, "cpu_op", tid=101),
        )
    ]

    found = imported(trace(tmp_path / "a.json", [event("ProfilerStep#1", 0, 100), *micro]))

    assert spent_ms(found) == {DATA: [20], FORWARD: [40], BACKWARD: [30], RESIDUAL: [10]}


def test_a_mapping_names_user_ranges_and_stages_count_by_their_own_names(tmp_path: Path) -> None:
    events = [
        event("iteration 7", 0, 50),
        event("iteration 8", 50, 100),
        event("fetch", 0, 10),
        event("fetch", 50, 70),
        event("model.fwd_loss_cpu_wall", 10, 40),
        event("log to disk", 45, 50),
    ]

    found = imported(
        trace(tmp_path / "a.json", events),
        step="iteration *",
        ranges={"fetch": DATA, "log*": "callbacks.cpu_wall"},
    )

    assert found.windows[0].window.step_N.tolist() == [7, 8]
    assert spent_ms(found) == {
        DATA: [10, 20], FORWARD: [30, 0], "callbacks.cpu_wall": [5, 0], RESIDUAL: [5, 30],
    }  # fmt: skip


def test_base_time_and_fractions_of_a_microsecond_count(tmp_path: Path) -> None:
    step = event("ProfilerStep#1", 0, 1) | {"ts": 1_000.25, "dur": 2_000.125}
    found = imported(trace(tmp_path / "a.json", [step], baseTimeNanoseconds=1_700_000_000_000_000_000))

    window = found.windows[0].window

    assert window.wall_NR.item() == 2_000_125
    assert window.manifest.started_at == "2023-11-14T22:13:20.001000Z"


def test_a_kernel_is_of_the_step_that_launched_it(tmp_path: Path) -> None:
    events = [
        event("ProfilerStep#1", 0, 50),
        event("ProfilerStep#2", 50, 100),
        event("cudaLaunchKernel", 40, 41, "cuda_runtime", args={"correlation": 9}),
        event("late kernel", 60, 70, "kernel", pid=0, tid=7, args={"correlation": 9}),
        event("kernel from before", 1, 9, "kernel", pid=0, tid=7, args={"correlation": 3}),
        event("ProfilerStep#1", 10, 60, "gpu_user_annotation", pid=0, tid=7),
    ]

    operators = imported(trace(tmp_path / "a.json", events)).windows[0].operators

    assert operators is not None
    steps = {operators.name(place): int(operators.step_E[place]) for place in range(len(operators))}
    assert steps == {"cudaLaunchKernel": 1, "late kernel": 1, "kernel from before": -1}


def test_a_step_that_the_profiler_cut_is_left_out(tmp_path: Path) -> None:
    events = [*PLAIN_STEP, event("ProfilerStep#4", 100, 100.05)]

    found = imported(trace(tmp_path / "a.json", events))

    assert found.windows[0].window.step_N.tolist() == [3]
    assert "skipped: step 4" in notes_text(found)


def test_without_marks_a_step_ends_with_the_optimizer(tmp_path: Path) -> None:
    events = [
        each for begin in (0, 100) for each in (event("Optimizer.step#A.step", begin + 80, begin + 90),)
    ]

    found = imported(trace(tmp_path / "a.json", [event("aten::ones", 0, 1, "cpu_op"), *events]))

    assert found.windows[0].window.wall_NR.flatten().tolist() == [90_000_000, 100_000_000]
    assert "guessed: no ProfilerStep" in notes_text(found)
