"""Waits within stages from Kineto traces: only where a thread demonstrably waits for a collective."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sfapp.accounting import diagnose
from sfapp.importers import ImportResult, write_imported
from sfapp.model.stages import BACKWARD, DATA, FORWARD, OPTIMIZER
from sfapp.model.window import NOT_MEASURED
from sfapp.packets import read_window, validate_packet
from tests.importers.kineto_events import NODE, PLAIN_STEP, event, imported, of_rank, trace
from tests.importers.trace_files import real

LAUNCH = event("cudaLaunchKernel", 22, 22.1, "cuda_runtime")
DATA_PARALLEL = event("DistributedDataParallel.forward", 22, 48)


def on_device(name: str, start: float, end: float) -> dict[str, Any]:
    return event(name, start, end, "kernel", pid=0, tid=13)


def all_reduce(start: float, end: float) -> dict[str, Any]:
    return on_device("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", start, end)


def gloo(start: float, end: float) -> dict[str, Any]:
    return event("gloo:all_reduce", start, end, tid=777)


def waits_ms(found: ImportResult) -> dict[str, list[float]]:
    """Milliseconds of each wait of each rank in the first step."""
    (each,) = found.windows
    return {
        stage: [round(ns / 1e6, 3) for ns in wait_NR[0].tolist()]
        for stage, wait_NR in each.window.waits.items()
    }


def waits_of(path: Path, more: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    return waits_ms(imported(trace(path / "a.json", [*PLAIN_STEP, *more])))


class TestOnTheDevice:
    def test_a_synchronising_call_waits_while_collectives_alone_run(self, tmp_path: Path) -> None:
        more = [
            on_device("gemm", 22, 40),
            all_reduce(30, 70),
            on_device("gemm", 70, 72),
            event("cudaStreamSynchronize", 35, 80, "cuda_runtime"),
        ]

        # The call lasts until 80; the device runs the collective alone from 40 to 70: 10 ms of that are in
        # forward, 20 ms in backward. What it waits for after 72 is unknown.
        assert waits_of(tmp_path, more) == {FORWARD: [10.0], BACKWARD: [20.0]}

    def test_the_call_of_autograds_thread_counts_in_backward_alone(self, tmp_path: Path) -> None:
        call = event("cudaStreamSynchronize", 45, 60, "cuda_runtime", tid=101)

        assert waits_of(tmp_path, [all_reduce(40, 90), call]) == {BACKWARD: [10.0]}

    def test_a_thread_that_does_neither_holds_no_step_up(self, tmp_path: Path) -> None:
        call = event("cudaStreamSynchronize", 25, 60, "cuda_runtime", tid=555)

        assert waits_of(tmp_path, [LAUNCH, all_reduce(25, 60), call]) == {}

    def test_a_call_that_starts_a_collective_waits_for_nothing(self, tmp_path: Path) -> None:
        calls = [event("c10d::allreduce_", 30, 35, "cpu_op"), event("nccl:all_reduce", 31, 34)]

        assert waits_of(tmp_path, [LAUNCH, all_reduce(30, 60), *calls]) == {}

    def test_an_unknown_runtime_leaves_the_rank_untold(self, tmp_path: Path) -> None:
        call = event("cudaStreamSynchronize", 35, 80, "cuda_runtime")
        with_rank = trace(tmp_path / "0.json", [*PLAIN_STEP, all_reduce(30, 45), call], **of_rank(0, 3))
        without_rank = trace(tmp_path / "1.json", [*PLAIN_STEP, all_reduce(30, 45)], **of_rank(1, 3))
        waits = trace(tmp_path / "2.json", [*PLAIN_STEP, LAUNCH, all_reduce(30, 45)], **of_rank(2, 3))

        (each,) = imported(with_rank, without_rank, waits).windows
        assert {stage: wait_NR.tolist() for stage, wait_NR in each.window.waits.items()} == {
            FORWARD: [[10_000_000, NOT_MEASURED, 0]]
        }


class TestOnTheHost:
    def test_data_parallel_waits_from_the_last_gradient_to_the_last_collective(self, tmp_path: Path) -> None:
        work = event("aten::copy_", 78, 79, "cpu_op", tid=101)

        # The last node ends at 75.
        assert waits_of(tmp_path, [DATA_PARALLEL, gloo(60, 82), work]) == {BACKWARD: [6.0]}

    def test_without_data_parallel_no_transfer_waits_for_another_member(self, tmp_path: Path) -> None:
        assert waits_of(tmp_path, [gloo(60, 82)]) == {}

    def test_a_backward_in_pieces_waits_at_its_end(self, tmp_path: Path) -> None:
        pieces = [
            event("my hook", 76, 77),
            event(NODE, 77, 79, "cpu_op", tid=101),
            DATA_PARALLEL,
            gloo(74, 83),
            gloo(78, 84),
        ]
        found = imported(trace(tmp_path / "a.json", [*PLAIN_STEP, *pieces]), ranges={"my hook": "comm.hook"})

        assert waits_ms(found) == {BACKWARD: [5.0]}

    def test_wait_tensor_waits_while_a_collective_runs(self, tmp_path: Path) -> None:
        call = event("_c10d_functional::wait_tensor", 30, 45, "cpu_op")

        assert waits_of(tmp_path, [gloo(25, 40), call]) == {FORWARD: [10.0]}


def test_a_rank_that_is_slow_inside_backward_is_named(tmp_path: Path) -> None:
    paths = []
    for rank in range(4):
        events = []
        for step in range(12):
            at, own = 100.0 * step, 70 if rank == 2 else 20
            events += [
                event(f"ProfilerStep#{step}", at, at + 99),
                event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 5),
                event("DistributedDataParallel.forward", at + 5, at + 10),
                event(NODE, at + 10, at + 10 + own, "cpu_op"),
                gloo(at + 10 + own, at + 85),
                event("Optimizer.step#SGD.step", at + 85, at + 95),
            ]
        paths.append(trace(tmp_path / f"rank{rank}.json", events, **of_rank(rank, 4)))
    found = imported(*paths)
    assert waits_ms(found) == {BACKWARD: [55.0, 55.0, 5.0, 55.0]}
    durations = found.windows[0].window.duration_SNR[:, 0].tolist()
    assert durations[:4] == [[5e6] * 4, [5e6] * 4, [75e6] * 4, [10e6] * 4]

    written = write_imported(found, tmp_path / "packets")

    assert not validate_packet(written.packets[0])
    window = read_window(tmp_path / "packets")
    assert window.stages[:4] == (DATA, FORWARD, BACKWARD, OPTIMIZER)
    aim = diagnose(window).aim
    assert aim is not None
    assert (aim.stage, aim.rank) == (BACKWARD, 2)


def test_the_others_of_a_real_job_wait_for_the_sleeper() -> None:
    folder = real("kineto/torchrec_dlrm/sst_sleep_pl_dense_after_backward_2")

    (each,) = imported(*sorted(folder.iterdir())).windows

    window = each.window
    wait_NR, forward_NR = window.waits[FORWARD], window.duration_SNR[window.stages.index(FORWARD)]
    assert (wait_NR <= forward_NR).all()
    # The sleep lasts 1 s. In one step of three the others wait for it in a call that allocates memory.
    assert [bool(ns > 800_000_000) for ns in np.median(wait_NR, axis=0)] == [True, True, False, True]
