"""Kineto traces of whole jobs: ranks, runs and windows from several files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.kineto_job import Shape, write_job
from sfapp.accounting import diagnose
from sfapp.cli import cli
from sfapp.importers import write_imported
from sfapp.model.operators import CATEGORIES
from sfapp.model.stages import BACKWARD, DATA, FORWARD, OPTIMIZER, RESIDUAL
from sfapp.packets import operators_path, read_operators, read_window, validate_packet
from tests.forked_ranks import forked
from tests.importers.kineto_events import LOADER, PLAIN_STEP, event, imported, notes_text, of_rank, trace


def test_ranks_are_laid_together_and_a_late_one_is_named(tmp_path: Path) -> None:
    for rank, late in ((0, 0), (1, 30)):
        events = [event("ProfilerStep#1", late, 100 + late), event(LOADER, late, late + 10, pid=100)]
        trace(tmp_path / f"run_{rank}.json", events, **of_rank(rank))

    found = imported(tmp_path)

    window = found.windows[0].window
    assert window.side["step.start_late_ms"].value_NR.tolist() == [[0.0, 30.0]]
    assert "derived: rank 1 begins its steps 30.0 ms late" in notes_text(found)


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


def test_hosts_with_different_clocks_are_one_job_unless_something_contradicts_it(tmp_path: Path) -> None:
    for rank, begin in ((0, 0), (1, 60_000)):
        trace(tmp_path / f"{rank}.json", [event("ProfilerStep#4", begin, begin + 90)], **of_rank(rank))

    found = imported(tmp_path)

    assert found.windows[0].window.ranks.rank == (0, 1)
    assert "ranks whose steps are 60.0 s apart are taken as one job with clock offsets" in notes_text(found)


@pytest.mark.parametrize(
    ("name", "rank"), [("trace_rank-3.json", 3), ("w.worker2.1.pt.trace.json", 2), ("num_workers_4.json", 0)]
)
def test_without_a_rank_in_the_trace_the_file_name_gives_it(tmp_path: Path, name: str, rank: int) -> None:
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
    assert "guessed: " in notes_text(found)


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
        forked(2, script, traces),
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
