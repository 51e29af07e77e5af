"""The recorder beside a CUDA device: events that nothing waits for, the device's memory, NCCL.

Needs one device; with two, NCCL runs between them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import sfapp
from sfapp.model import Window
from sfapp.model.stages import FORWARD_EVENT
from sfapp.packets import read_window, read_windows
from sfapp.recorder import Recorder
from sfapp.recorder.side_channels.channels import EventSampler
from sfapp.recorder.side_channels.memory import ALLOCATED, CUDA_EVERY, PEAK, RESIDENT
from tests.builders import BACKWARD, CALLBACKS, FORWARD, OPTIMIZER

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]

MS = 1_000_000
DEVICE_MS = 30.0
"""What a forward of ``slow`` takes on the device, at least; launching it takes the host well under 5 ms."""


class Deep(torch.nn.Module):
    """Large products, one after the other: few launches, much work."""

    def __init__(self, products: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(4096))
        self.products = products

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        for _ in range(self.products):
            batch = batch @ self.weight
        return batch


@pytest.fixture(scope="module")
def batch() -> torch.Tensor:
    return torch.ones(4096, 4096, device="cuda")


@pytest.fixture(scope="module")
def slow(batch: torch.Tensor) -> Deep:
    """A model whose forward keeps this device busy for ``DEVICE_MS``, however fast it is."""
    model = Deep(2).cuda()
    with torch.no_grad():
        model(batch)  # libraries are loaded, memory is reserved
        torch.cuda.synchronize()
        while True:
            begin = time.perf_counter()
            model(batch)
            torch.cuda.synchronize()
            if (time.perf_counter() - begin) * 1e3 > DEVICE_MS:
                return model
            model.products *= 2
            assert model.products <= 512, "launching the products would itself take long"


def recorder(root: Path, steps: int, **options: object) -> Recorder:
    return Recorder(root, run_id="run", window_steps=steps, event_fraction=1.0, **options)


def is_device_busy() -> bool:
    return not torch.cuda.current_stream().query()


def median_ms(window: Window, stage: str) -> float:
    return float(np.median(window.duration_SNR[window.stages.index(stage), :, 0])) / MS


def test_a_forward_that_is_slow_on_the_device_is_short_on_the_host_and_long_in_its_events(
    tmp_path: Path, slow: Deep, batch: torch.Tensor
) -> None:
    """The forward/device row: the host sees the cost where it first waits for the device."""
    optimizer = torch.optim.SGD(slow.parameters(), lr=1e-9)
    mine = []
    torch.cuda.Event(enable_timing=True).record()  # the first event loads what later ones need
    torch.cuda.synchronize()
    with recorder(tmp_path, steps=12) as perf:
        for _ in range(12):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with perf.step():
                with perf.stage(FORWARD), perf.cuda_event_sample():
                    begin.record()
                    with torch.no_grad():
                        features = slow(batch)
                    end.record()
                with perf.stage(BACKWARD):
                    loss = (features @ slow.weight).square().mean()
                    loss.backward()
                with perf.stage(CALLBACKS):
                    loss.item()
                with perf.stage(OPTIMIZER):
                    optimizer.step()
                    optimizer.zero_grad()
            mine.append(begin.elapsed_time(end))
    window = read_window(tmp_path)
    channel = window.side[FORWARD_EVENT]
    assert channel.sampled_NR.all()
    # each step had a wait of training's own in it, so that all had happened when they were asked for
    measured = channel.value_NR[:, 0].tolist()
    assert measured[1:] == pytest.approx(mine[1:], rel=0.02, abs=0.2)
    # between the recorder's first event and the test's, which it encloses, the process still loads code
    assert measured[0] > mine[0] - 0.2
    assert np.median(channel.value_NR) > DEVICE_MS
    assert median_ms(window, FORWARD) < DEVICE_MS / 4
    assert median_ms(window, CALLBACKS) > DEVICE_MS / 2
    assert "no_events" not in window.manifest.extra
    labels = {label.label for label in sfapp.diagnose(window).labels}
    assert "forward_spillover_suspected" in labels
    assert "forward_host_overhead_suspected" not in labels


def test_events_are_never_waited_for_and_pending_ones_stay_missing(
    tmp_path: Path, slow: Deep, batch: torch.Tensor
) -> None:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with recorder(tmp_path, steps=12) as perf, torch.no_grad():
        for _ in range(12):
            with perf.step(), perf.stage(FORWARD), perf.cuda_event_sample():
                slow(batch)
        trained_ms = (time.perf_counter() - begin) * 1e3
        assert is_device_busy()
    assert is_device_busy()  # closing waited for nothing either
    assert trained_ms < 12 * DEVICE_MS / 2
    torch.cuda.synchronize()
    channel = read_window(tmp_path).side[FORWARD_EVENT]
    assert channel.sampled_NR.all()
    assert np.isnan(channel.value_NR[-1]).all()


def test_events_that_happen_steps_later_are_taken_in_at_their_own_step(
    tmp_path: Path, slow: Deep, batch: torch.Tensor
) -> None:
    torch.cuda.synchronize()
    with recorder(tmp_path, steps=10) as perf, torch.no_grad():
        for step in range(10):
            with perf.step(), perf.cuda_event_sample():
                if step < 3:
                    slow(batch)
            if step == 5:
                torch.cuda.synchronize()
    values = read_window(tmp_path).side[FORWARD_EVENT].value_NR[:, 0]
    assert (values[:3] > DEVICE_MS / 2).all()
    assert (values[3:6] < DEVICE_MS / 2).all()


def test_no_more_pairs_than_the_pool_has_are_under_way_and_the_pool_fills_again(
    tmp_path: Path, slow: Deep, batch: torch.Tensor
) -> None:
    most = EventSampler.MAX_PAIRS
    torch.cuda.synchronize()
    with recorder(tmp_path, steps=most + 40) as perf, torch.no_grad():
        for _ in range(20):
            slow(batch)
        for step in range(most + 40):
            with perf.step(), perf.cuda_event_sample():
                pass
            if step == most + 19:
                assert is_device_busy()
                torch.cuda.synchronize()
    channel = read_window(tmp_path).side[FORWARD_EVENT]
    sampled = channel.sampled_NR[:, 0].tolist()
    assert sampled[: most + 20] == [True] * most + [False] * 20
    assert all(sampled[most + 20 :])  # a full pool takes in what has happened before it refuses a pair
    assert np.isfinite(channel.value_NR[:most, 0]).all()


def test_a_graph_is_captured_as_if_nothing_were_sampled(tmp_path: Path) -> None:
    weight, batch = torch.eye(256, device="cuda"), torch.ones(8, 256, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        batch @ weight
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with recorder(tmp_path, steps=4) as perf:
        for step in range(4):
            with perf.step():
                if step == 1:
                    with torch.cuda.graph(graph), perf.cuda_event_sample():
                        product = batch @ weight
                else:
                    with perf.cuda_event_sample():
                        batch @ weight
            torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(product, batch)
    window = read_window(tmp_path)
    assert window.side[FORWARD_EVENT].sampled_NR[:, 0].tolist() == [True, False, True, True]
    assert "side_faults" not in window.manifest.extra


def test_memory_matches_the_allocator(tmp_path: Path) -> None:
    model = torch.nn.Linear(1024, 1024, bias=False).cuda()
    passing = 256 << 20
    torch.cuda.reset_peak_memory_stats()
    with recorder(tmp_path, steps=2 * CUDA_EVERY) as perf:
        perf.watch_memory(model)
        expected = []
        for step in range(2 * CUDA_EVERY):
            with perf.step():
                if step == 1:
                    torch.empty(passing, dtype=torch.uint8, device="cuda")
            if step % CUDA_EVERY == 0:
                expected.append((torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()))
    side = read_window(tmp_path).side
    places = [0, CUDA_EVERY]
    assert np.flatnonzero(side[ALLOCATED].sampled_NR[:, 0]).tolist() == places
    assert side[ALLOCATED].value_NR[places, 0].tolist() == [allocated for allocated, _ in expected]
    assert side[PEAK].value_NR[places, 0].tolist() == [peak for _, peak in expected]
    assert expected[1][1] >= expected[0][0] + passing
    assert side["memory.parameter_full_bytes"].value_NR[0, 0] == 1024 * 1024 * 4
    assert RESIDENT not in side


# ---- NCCL ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of two ranks, or of one where there is only one device."""
    root = tmp_path_factory.mktemp("nccl")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks()}"]
    result = subprocess.run(
        [*command, str(Path(__file__).parent / "gpu_jobs.py"), str(root)],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return root


def ranks() -> int:
    return min(2, torch.cuda.device_count())


@pytest.mark.torchrun
def test_windows_are_gathered_over_nccl_during_training(job: Path) -> None:
    windows = [found.window for found in read_windows([job / "nccl"]).windows]
    assert len(windows) == 2
    for window in windows:
        assert window.manifest.gather_ok
        assert window.manifest.gather_error is None
        assert window.manifest.recorder.backend == "nccl"
        assert window.ranks.rank == tuple(range(ranks()))
        assert window.side[FORWARD_EVENT].sampled_NR.all()
        assert (window.side[FORWARD_EVENT].value_NR[:-1] > 0).all()
    assert [(job / f"total.{rank}").read_text() for rank in range(ranks())] == [str(ranks())] * ranks()


@pytest.mark.torchrun
def test_rows_pass_through_nccl_as_they_are(job: Path) -> None:
    row_RNC = torch.load(job / "rows.pt")
    assert row_RNC.device.type == "cpu"
    assert row_RNC.tolist() == [
        [[step, 1_000, 100 + rank, 200 + step, 700 - rank - step] for step in range(4)]
        for rank in range(ranks())
    ]
    assert [(job / f"confirmed.{rank}").read_text() for rank in range(ranks())] == ["written"] * ranks()
