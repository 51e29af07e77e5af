"""Windows of NumPy arrays and of tensors are the same windows, and both compute the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfapp.accounting import diagnose, frontier, step_prefix, tie_set
from sfapp.accounting.carry_over import carry_over, steps_before, sync_offsets
from sfapp.accounting.closure import closures
from sfapp.accounting.frontier import running_boundaries
from sfapp.accounting.gains import baseline_of, clipped_frontier, clipped_makespan
from sfapp.accounting.kernels import middle_last
from sfapp.accounting.wait_model import slopes_since_sync, wait_slopes
from sfapp.model import DEFAULT_STAGES, SideChannel, Window
from tests.builders import BACKWARD, DATA, MS, Ints, ddp_job, window_of

CALLS: dict[str, Callable[[Any], Any]] = {
    "frontier": frontier,
    "boundaries": lambda d: _fields(running_boundaries(d), "frontier_SN", "leader_SN", "second_SN"),
    "one rank": lambda d: _fields(running_boundaries(d[:, :, :1]), "frontier_SN", "leader_SN", "second_SN"),
    "carry-over": lambda d: _fields(carry_over(d, steps_before(d.sum(0))), "advance_SN", "offset_R"),
    "sync offsets": lambda d: sync_offsets(d, steps_before(d.sum(0)), 2)[0],
    "closures": lambda d: closures(d.sum(0)[None], d.sum(0)[None] + 1),
    "middle": middle_last,
    "cohort median": lambda d: _gains(d, "cohort_median"),
    "rank median": lambda d: _gains(d, "rank_median"),
    "waits": lambda d: _fields(_waits(d), "slope", "se"),
    "waits since sync": lambda d: _fields(slopes_since_sync(d), "slope", "se"),
    "prefix": lambda d: step_prefix(d, 3),
    "ties": lambda d: tie_set(d, 3, 2, 0.05),
}


EXACT = ("frontier", "boundaries", "one rank", "carry-over", "closures", "middle", "prefix", "ties")
"""Kernels of whole numbers alone, and of medians: no sum of floats, whose order would matter."""


ON_A_GPU = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
)


def _fields(found: Any, *names: str) -> list[Any]:
    return [getattr(found, name) for name in names]


def _gains(d: Any, baseline: Any) -> list[Any]:
    level = baseline_of(d, middle_last(d)[1], DEFAULT_STAGES, baseline, None)
    return [clipped_makespan(d, d.sum(0), level, range(6)), clipped_frontier(d, level, (0, 2))]


def _waits(d: Any) -> Any:
    before = steps_before(d.sum(0))
    return wait_slopes(d, before, d.sum(0), running_boundaries(d, before).frontier_SN)


def job() -> Ints:
    return ddp_job(ranks=7, steps=24, extra={(DATA, "random"): 60 * MS}, jitter=4 * MS)


def check_same(of_array: Any, of_tensor: Any) -> None:
    if not isinstance(of_array, (list, tuple)):
        of_array, of_tensor = [of_array], [of_tensor]
    for one, other in zip(of_array, of_tensor, strict=True):
        if isinstance(one, np.ndarray):
            assert isinstance(other, torch.Tensor)
            assert str(other.dtype) == f"torch.{one.dtype}"
            np.testing.assert_allclose(other.cpu().numpy(), one, rtol=1e-9)
        else:
            assert one == other


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_kernel_computes_the_same_of_a_tensor(call: Callable[[Any], Any]) -> None:
    check_same(call(job()), call(torch.from_numpy(job())))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
@given(
    ranks=st.integers(1, 40),
    steps=st.integers(4, 12),
    largest=st.sampled_from([3, 1_000, 10**9, 10**12]),  # few values: many ties
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=25)
def test_exact_kernels_compute_the_same_on_a_device_of_any_window(
    device: str, ranks: int, steps: int, largest: int, seed: int
) -> None:
    duration_SNR = np.random.default_rng(seed).integers(0, largest, (6, steps, ranks))
    on_device = torch.from_numpy(duration_SNR).to(device)
    for name in EXACT:
        check_same(CALLS[name](duration_SNR), CALLS[name](on_device))
    window = window_of(duration_SNR)
    found, expected = diagnose(window, device=device), diagnose(window)
    assert found.advances_ns == expected.advances_ns
    assert found.labels == expected.labels


def test_a_window_takes_tensors_and_holds_arrays_on_their_memory() -> None:
    durations = torch.from_numpy(job())
    whole = window_of(job())
    events = SideChannel(torch.full((24, 7), 2.5, dtype=torch.float64), torch.ones(24, 7) > 0)
    window = Window(
        whole.manifest,
        durations,
        durations.sum(dim=0),
        torch.arange(24),
        whole.ranks,
        side={"event_ms": events},
    )
    for array in (window.duration_SNR, window.wall_NR, window.step_N, events.value_NR, events.sampled_NR):
        assert isinstance(array, np.ndarray)
    durations[0, 0, 0] += 1
    assert window.duration_SNR[0, 0, 0] == durations[0, 0, 0]
    durations[0, 0, 0] -= 1
    assert diagnose(window) == diagnose(whole)


def test_a_window_holds_its_stages_contiguous_whatever_it_is_given() -> None:
    transposed = np.asfortranarray(job())
    assert window_of(transposed).duration_SNR.flags.c_contiguous
    of_node = window_of(job(), ranks_per_node=4).of_group("node:1")
    assert of_node.duration_SNR.flags.c_contiguous
    assert np.array_equal(of_node.duration_SNR, job()[:, :, 4:])
    assert of_node.ranks.rank == (4, 5, 6)


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=ON_A_GPU)])
def test_a_window_on_a_cuda_device_comes_to_the_same_verdict(device: str) -> None:
    window = window_of(job())
    on_device = window.to(device)
    assert isinstance(on_device.duration_SNR, torch.Tensor)
    assert on_device.to("cpu").duration_SNR.tolist() == window.duration_SNR.tolist()
    found, expected = diagnose(window, device=device), diagnose(window)
    assert found.labels == expected.labels
    assert found.advances_ns == expected.advances_ns
    assert found.wait_stages == expected.wait_stages == (BACKWARD,)
    assert found.aim.stage == expected.aim.stage
