"""Kineto traces of made-up and of really profiled jobs: stages, ranks, jobs, and what is refused."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.kineto_job import Shape, write_job
from sfapp.accounting import diagnose
from sfapp.cli import cli
from sfapp.importers import ImportOptions, ImportResult, Mapping, read_traces, write_imported
from sfapp.importers.kineto import event_reader as kineto_events
from sfapp.model.operators import CATEGORIES
from sfapp.model.stages import BACKWARD, DATA, FORWARD, OPTIMIZER, RESIDUAL
from sfapp.packets import operators_path, read_operators, read_window, validate_packet

MS = 1000.0  # µs, a trace's unit
MAIN = 100


def event(name: str, start: float, end: float, cat: str = "user_annotation", **more: Any) -> dict[str, Any]:
    """One event of thread 100 of process 100, between these milliseconds."""
    place = {"pid": MAIN, "tid": MAIN, "ts": start * MS, "dur": (end - start) * MS}
    return {"ph": "X", "cat": cat, "name": name} | place | more


def trace(path: Path, events: Sequence[dict[str, Any]], **header: Any) -> Path:
    content = json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events)})
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content)
    return path


def of_rank(rank: int, world_size: int = 2) -> dict[str, Any]:
    return {"distributedInfo": {"rank": rank, "world_size": world_size, "backend": "gloo"}}


def imported(*paths: Path, **mapping: Any) -> ImportResult:
    return read_traces("kineto", paths, ImportOptions(mapping=Mapping(**mapping)))


def spent_ms(found: ImportResult, window: int = 0) -> dict[str, list[float]]:
    """Milliseconds of each stage in each step of the first rank."""
    each = found.windows[window].window
    return {
        stage: [round(ns / 1e6, 3) for ns in plane[:, 0].tolist()]
        for stage, plane in zip(each.stages, each.duration_SNR, strict=True)
    }


def said(found: ImportResult, window: int = 0) -> str:
    return "\n".join(f"{note.kind}: {note}" for note in found.windows[window].notes)


NODE = "autograd::engine::evaluate_function: AddmmBackward0"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
PLAIN_STEP = (
    event("ProfilerStep#3", 0, 100),
    event(LOADER, 0, 20),
    event("aten::linear", 22, 50, "cpu_op"),
    event(NODE, 50, 60, "cpu_op", tid=101),
    event(NODE, 65, 75, "cpu_op", tid=101),
    event("Optimizer.step#SGD.step", 85, 95),
)


def test_the_gap_between_data_and_the_first_node_is_forward(tmp_path: Path) -> None:
    found = imported(trace(tmp_path / "a.json", PLAIN_STEP))

    assert spent_ms(found) == {DATA: [20], FORWARD: [30], BACKWARD: [25], OPTIMIZER: [10], RESIDUAL: [15]}
    assert "derived: forward is the gap between data and backward" in said(found)


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
    assert "the loss" in said(found)


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


def test_ranks_are_laid_together_and_a_late_one_is_named(tmp_path: Path) -> None:
    for rank, late in ((0, 0), (1, 30)):
        events = [event("ProfilerStep#1", late, 100 + late), event(LOADER, late, late + 10, pid=100)]
        trace(tmp_path / f"run_{rank}.json", events, **of_rank(rank))

    found = imported(tmp_path)

    window = found.windows[0].window
    assert window.side["step.start_late_ms"].value_NR.tolist() == [[0.0, 30.0]]
    assert "derived: rank 1 begins its steps 30.0 ms late" in said(found)


def test_two_jobs_in_one_folder_stay_two(tmp_path: Path) -> None:
    for pid, begin in ((100, 0), (200, 5_000)):
        for rank in (0, 1):
            step = event("ProfilerStep#4", begin + rank, begin + 90, pid=pid + rank)
            trace(tmp_path / f"{pid}-{rank}.json", [step], **of_rank(rank))

    found = imported(tmp_path)

    name = tmp_path.name
    assert [(each.window.run_id, len(each.window.ranks)) for each in found.windows] == [
        (name, 2),
        (f"{name}-2", 2),
    ]


def test_the_same_processes_profiled_again_are_further_windows_of_the_run(tmp_path: Path) -> None:
    for cycle in (0, 1):
        for rank in (0, 1):
            begin = cycle * 1_000
            step = event(f"ProfilerStep#{4 + 10 * cycle}", begin, begin + 90, pid=100 + rank)
            name = f"host_{100 + rank}.{cycle}.pt.trace.json"
            trace(tmp_path / name, [step], **of_rank(rank))

    found = imported(tmp_path)

    assert [(each.window.number, each.window.step_N.tolist()) for each in found.windows] == [
        (0, [4]),
        (1, [14]),
    ]
    assert len({each.window.run_id for each in found.windows}) == 1
    assert found.windows[0].window.ranks.hostname == ("host", "host")


def test_hosts_whose_clocks_differ_are_one_job_where_nothing_contradicts_it(tmp_path: Path) -> None:
    for rank, begin in ((0, 0), (1, 60_000)):
        trace(tmp_path / f"{rank}.json", [event("ProfilerStep#4", begin, begin + 90)], **of_rank(rank))

    found = imported(tmp_path)

    assert found.windows[0].window.ranks.rank == (0, 1)
    assert "ranks whose steps are 60.0 s apart are taken as one job with clock offsets" in said(found)


@pytest.mark.parametrize(
    ("name", "rank"), [("trace_rank-3.json", 3), ("w.worker2.1.pt.trace.json", 2), ("num_workers_4.json", 0)]
)
def test_the_rank_is_the_file_names_where_the_trace_says_none(tmp_path: Path, name: str, rank: int) -> None:
    found = imported(trace(tmp_path / name, PLAIN_STEP))

    assert found.windows[0].window.ranks.rank == (rank,)


def test_several_processes_in_one_file_are_several_ranks(tmp_path: Path) -> None:
    events = []
    for pid, device in ((100, 0), (200, 1)):
        events += [
            event("ProfilerStep#1", 0, 50, pid=pid, tid=pid),
            event("cudaLaunchKernel", 5, 6, "cuda_runtime", pid=pid, tid=pid, args={"correlation": pid}),
            event(f"kernel of {pid}", 7, 30, "kernel", pid=device, tid=7, args={"correlation": pid}),
        ]

    found = imported(trace(tmp_path / "merged.json", events))

    operators = found.windows[0].operators
    assert operators is not None
    assert found.windows[0].window.ranks.rank == (0, 1)
    for rank, pid in ((0, 100), (1, 200)):
        own = operators.of_rank(rank)
        assert f"kernel of {pid}" in {own.name(place) for place in range(len(own))}
        assert len(own) == 2
    assert "guessed: " in said(found)


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
    assert "skipped: step 4" in said(found)


def test_without_marks_a_step_ends_with_the_optimizer(tmp_path: Path) -> None:
    events = [
        each for begin in (0, 100) for each in (event("Optimizer.step#A.step", begin + 80, begin + 90),)
    ]

    found = imported(trace(tmp_path / "a.json", [event("aten::ones", 0, 1, "cpu_op"), *events]))

    assert found.windows[0].window.wall_NR.flatten().tolist() == [90_000_000, 100_000_000]
    assert "guessed: no ProfilerStep" in said(found)


class TestRefused:
    """What is wrong with a file is said with its place; the other files go on."""

    def refusal(self, folder: Path) -> Any:
        trace(folder / "good_rank0.json", PLAIN_STEP, **of_rank(0))
        found = imported(folder)
        assert len(found.windows) == 1
        assert found.windows[0].window.manifest.missing_ranks == (1,)
        (refused,) = found.refused
        return refused

    def test_a_packed_file_that_was_cut_off(self, tmp_path: Path) -> None:
        path = trace(tmp_path / "bad.json.gz", PLAIN_STEP * 500, **of_rank(1))
        path.write_bytes(path.read_bytes()[:-200])

        refused = self.refusal(tmp_path)

        assert "cut off" in refused.reason
        assert refused.path == str(path)
        assert refused.place.startswith("byte ")

    def test_text_that_was_cut_off(self, tmp_path: Path) -> None:
        path = trace(tmp_path / "bad.json", PLAIN_STEP, **of_rank(1))
        path.write_bytes(path.read_bytes()[:-40])

        refused = self.refusal(tmp_path)

        assert "cut off" in refused.reason
        assert refused.place.startswith("byte ")

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"PAR1....", "is not a trace"),
            (b"", "is not a trace"),
            (b'{"a": 1}', "is not a trace"),
            (b'{"traceEvents": []}', "no events"),
            (b'{"traceEvents": [1, 2]}', "Expected `object`"),
            (b'{"traceEvents": [{"ph": "X", "ts": "soon"}]}', "ts: Expected"),
            (b'{"traceEvents": [{"ph": "X"}]]}', "is not valid JSON"),
            (b'{"traceEvents": [{"ph": "X", "ts": 1, "name": "a"}], oops', "is not valid JSON"),
            (b'{"traceEvents": [{"ph": "X", "ts": 1, "name": "\xff"}]}', "is not valid JSON"),
            (b'{"traceEvents": [{"ph": "X", "args": ' + b'{"x": [' * 100_000, "is not valid JSON"),
            (b'{"traceEvents": [{"ph": "X", "ts": 1, "name": "a"}]}', "has no steps"),
        ],
    )
    def test_what_is_no_trace(self, tmp_path: Path, content: bytes, reason: str) -> None:
        path = tmp_path / "bad.json"
        path.write_bytes(content)

        refused = self.refusal(tmp_path)

        assert reason in refused.reason
        assert refused.path == str(path)

    def test_a_negative_duration(self, tmp_path: Path) -> None:
        trace(tmp_path / "bad.json", [*PLAIN_STEP, event("back", 9, 8)], **of_rank(1))

        refused = self.refusal(tmp_path)

        assert refused.place == "event 6"
        assert "'back' has a negative duration" in refused.reason

    def test_a_bomb_is_given_up_within_bounds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kineto_events, "MAX_BETWEEN_CUTS", 2**20)
        monkeypatch.setattr(kineto_events, "CHUNK", 2**16)
        inside = b'{"traceEvents": [{"ph": "X", "name": "' + b"a" * 2**22 + b'"}]}'
        (tmp_path / "bad.json.gz").write_bytes(gzip.compress(inside))

        assert "one event is longer than 1 MiB" in self.refusal(tmp_path).reason


def test_cuts_inside_strings_and_lists_do_not_mislead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch may end anywhere: here after every few bytes of text that looks like the end of an event."""
    monkeypatch.setattr(kineto_events, "CHUNK", 64)
    nasty = [
        event('a"},{"b}, {', 0, 1, "cpu_op", args={"x": [{"y": [{}, {}]}, {"z": "}]},{"}]}) for _ in range(40)
    ]
    path = trace(tmp_path / "a.json", [*nasty, *PLAIN_STEP])

    whole = kineto_events.EventFile(path)
    names = [each.name for batch in whole.batches() for each in batch]

    assert names == ['a"},{"b}, {'] * 40 + [each["name"] for each in PLAIN_STEP]


def test_environment_variables_are_never_kept(tmp_path: Path) -> None:
    secret = {"environment": {"TOKEN": "hunter2"}, "host_name": "hunter2", "mast_job_environment": "hunter2"}
    path = trace(
        tmp_path / "a.json", [*PLAIN_STEP, event("x", 1, 2, "cpu_op", args={"TOKEN": "hunter2"})], **secret
    )

    write_imported(imported(path), tmp_path / "packets")

    for file in (tmp_path / "packets").rglob("*.parquet"):
        assert b"hunter2" not in file.read_bytes()


def test_a_rank_that_waits_for_data_is_found_among_eight(tmp_path: Path) -> None:
    write_job(tmp_path / "traces", Shape())

    result = CliRunner().invoke(
        cli, ["import", "kineto", str(tmp_path / "traces"), "-o", str(tmp_path / "packets")]
    )

    assert result.exit_code == 0, result.output
    (window,) = (each for each in [read_window(tmp_path / "packets")])
    aim = diagnose(window).aim
    assert aim is not None
    assert (aim.stage, aim.rank, aim.hostname) == (DATA, 5, "host1")
    assert window.ranks.node_rank == (0,) * 4 + (1,) * 4
    operators = read_operators(operators_path(tmp_path / "packets", "traces", 0))
    collective_E = operators.category_E == CATEGORIES.index("collective")
    assert int(collective_E.sum()) == 8 * 12 * 4
    for rank in range(8):
        own = operators.of_rank(rank)
        of_own = own.sequence_E[own.category_E == CATEGORIES.index("collective")]
        assert np.array_equal(of_own, np.arange(48))
    assert set(operators.groups) == {"group 0"}


@pytest.mark.quiet  # which rank is late is a matter of milliseconds
def test_a_really_profiled_job_gives_its_slow_loader(tmp_path: Path) -> None:
    script = Path(__file__).parent / "profiled_job.py"
    traces = tmp_path / "traces"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            script,
            traces,
        ],
        check=True,
        capture_output=True,
        timeout=300,
    )

    found = imported(traces)
    written = write_imported(found, tmp_path / "packets")

    assert not found.refused
    assert not validate_packet(written.packets[0])
    window = read_window(tmp_path / "packets")
    assert window.stages == (DATA, FORWARD, BACKWARD, OPTIMIZER, RESIDUAL)
    assert window.step_N.tolist() == [2, 3, 4, 5, 6]
    assert window.manifest.recorder.backend == "gloo"
    aim = diagnose(window).aim
    assert aim is not None
    assert (aim.stage, aim.rank) == (DATA, 1)


def test_the_command_says_what_it_refused_and_exits_with_1(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    trace(traces / "rank0.json", PLAIN_STEP)
    (traces / "rank1.json").write_text("{")
    out = ["-o", str(tmp_path / "packets")]

    text = CliRunner().invoke(cli, ["import", "kineto", str(traces), *out])
    as_json = CliRunner().invoke(cli, ["import", "kineto", str(traces), "--json", *out])

    assert (text.exit_code, as_json.exit_code) == (1, 1)
    assert "1 packet written" in text.output
    assert "rank1.json: is not a trace" in text.output
    document = json.loads(as_json.stdout)
    assert document["refused"][0]["path"].endswith("rank1.json")
    assert document["windows"][0]["stages"] == [DATA, FORWARD, BACKWARD, OPTIMIZER, RESIDUAL]
    assert len(document["packets"]) == len(document["operators"]) == 1
