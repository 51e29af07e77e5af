"""The wait fit between syncs: a rank that is late since the last sync makes the others wait (§11)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sfapp.accounting import diagnose, wait_model
from sfapp.accounting.wait_model import WaitSlopes, slopes_since_sync
from sfapp.model import DEFAULT_STAGES
from tests.builders import (
    BACKWARD,
    CALLBACKS,
    DATA,
    FORWARD,
    MS,
    OPTIMIZER,
    OTHER,
    ddp_job,
    lasting_fault,
    reduced,
    window_of,
)

Floats = np.typing.NDArray[np.float64]

BACKWARD_AT = DEFAULT_STAGES.index(BACKWARD)


def certain(slopes: WaitSlopes) -> list[int]:
    """Positions of the stages that count as waits under the default gate."""
    return np.flatnonzero(slopes.slope - 2 * slopes.se >= 0.5).tolist()


def residuals(values: list[np.ndarray], groups: np.ndarray) -> list[np.ndarray]:
    """What is left of each of the values [M] beside a constant for each column of groups [M, K]."""
    return [value - groups @ np.linalg.lstsq(groups, value, rcond=None)[0] for value in values]


@pytest.mark.parametrize("ranks", [2, 8])
def test_it_is_the_lesser_slope_of_two_regressions_on_the_others_lateness(ranks: int) -> None:
    steps = 24
    duration_SNR = ddp_job(ranks=ranks, steps=steps, extra={(DATA, "random"): 60 * MS}, jitter=4 * MS)
    slopes = slopes_since_sync(duration_SNR)
    d = duration_SNR.astype(float)
    step, rank = (place.ravel() for place in np.indices((steps - 1, ranks)))
    of_rank, of_step = np.eye(ranks)[rank], np.eye(steps - 1)[step]
    late_stages = []
    for stage in range(6):
        own = d[:stage, 1:].sum(axis=0) + d[stage + 1 :, :-1].sum(axis=0)
        ordered = np.sort(own, axis=-1)
        others = np.where(own == ordered[:, -1:], ordered[:, -2:-1], ordered[:, -1:])
        late, before, spent = (others - own).clip(min=0).ravel(), d[stage, :-1].ravel(), d[stage, 1:].ravel()
        if np.isnan(slopes.slope[stage]):
            continue
        late_stages.append(DEFAULT_STAGES[stage])
        by_own = regressed([late, own.ravel(), before], spent, of_rank)
        by_step = regressed([late, before], spent, np.hstack([of_rank, of_step]))
        slope, error = min(by_own, by_step, key=lambda found: found[0] - 2 * found[1])
        assert float(slopes.slope[stage]) == pytest.approx(slope, rel=1e-6, abs=1e-9)
        assert float(slopes.se[stage]) == pytest.approx(error, rel=1e-6)
    assert late_stages == [DATA, FORWARD, BACKWARD, OTHER]  # soon after a sync no rank is late


def regressed(regressors: list[np.ndarray], response: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """The first slope and its standard error, constants for the groups taken out."""
    *columns, time = residuals([*regressors, response], groups)
    design = np.stack(columns, axis=1)
    coefficients = np.linalg.lstsq(design, time, rcond=None)[0]
    freedom = len(time) - np.linalg.matrix_rank(groups) - len(columns)
    noise = ((time - design @ coefficients) ** 2).sum() / freedom
    return coefficients[0], np.sqrt(noise * np.linalg.inv(design.T @ design)[0, 0])


def test_it_does_not_depend_on_how_many_ranks_are_worked_on_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    duration_SNR = ddp_job(ranks=50, extra={(DATA, "random"): 60 * MS}, jitter=4 * MS)
    at_once = slopes_since_sync(duration_SNR)
    monkeypatch.setattr(wait_model, "_BLOCK_CELLS", 6 * 40 * 7)
    in_blocks = slopes_since_sync(duration_SNR)
    np.testing.assert_allclose(in_blocks.slope, at_once.slope, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(in_blocks.se, at_once.se, rtol=1e-7, atol=1e-7)


def test_a_rank_that_is_late_all_along_hides_the_wait_from_the_whole_window_but_not_from_its_syncs() -> None:
    window = lasting_fault(OPTIMIZER, ranks=2)[4]
    diagnosis = diagnose(window)
    assert (diagnosis.wait_stages, diagnosis.own_boundary) == ((), None)
    assert diagnosis.met_boundary == BACKWARD
    assert diagnosis.met_fit is not None
    assert abs(diagnosis.met_fit.slope - 1) < 2 * diagnosis.met_fit.se < 0.4


def test_it_is_not_asked_where_the_windows_own_fit_finds_a_wait() -> None:
    diagnosis = diagnose(window_of(ddp_job(extra={(DATA, "random"): 60 * MS})))
    assert (diagnosis.wait_stages, diagnosis.met_boundary) == ((BACKWARD,), None)


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
@pytest.mark.parametrize("seed", range(16))
def test_ranks_that_never_sync_wait_nowhere(ranks: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    independent = torch.randint(1 * MS, 50 * MS, (3, 100, ranks), generator=generator).numpy()
    assert diagnose(window_of(independent, stages=(DATA, FORWARD, BACKWARD))).met_boundary is None


def wandering(correlation: float, shape: tuple[int, ...], generator: torch.Generator) -> Floats:
    """Unit noise that remembers: float64 [steps, ...]."""
    noise: Floats = torch.randn(shape, generator=generator, dtype=torch.float64).numpy()
    for step in range(1, shape[0]):
        noise[step] = correlation * noise[step - 1] + (1 - correlation**2) ** 0.5 * noise[step]
    return noise


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("correlation", [0.0, 0.8, 0.98])
@pytest.mark.parametrize("seed", range(4))
def test_a_delay_on_all_ranks_makes_no_rank_wait(ranks: int, correlation: float, seed: int) -> None:
    # longer and shorter sequences, say, on ranks that never meet
    generator = torch.Generator().manual_seed(seed)
    length_N = 1 + 0.1 * wandering(correlation, (100,), generator)
    work = np.array([2.0, 20, 40, 1, 3, 0.1]).reshape(-1, 1, 1) * MS
    noise = 1 + 0.02 * torch.randn(6, 100, ranks, generator=generator, dtype=torch.float64).numpy()
    duration_SNR = (work * length_N[:, None] * noise).astype(np.int64).clip(min=0)
    assert certain(slopes_since_sync(duration_SNR)) == []


@pytest.mark.parametrize("stage", [CALLBACKS, OPTIMIZER])
@pytest.mark.parametrize("seed", range(8))
def test_a_slow_stage_that_remembers_its_last_step_is_no_wait(stage: str, seed: int) -> None:
    # right after the meeting, late by an amount that wanders
    generator = torch.Generator().manual_seed(seed)
    late_N = 60 * MS + 0.3 * MS * wandering(0.8, (80,), generator)
    duration_SNR = ddp_job(ranks=2, steps=80, seed=seed, by_step={(stage, 1): late_N.astype(np.int64)})[
        :, 40:
    ]
    assert set(certain(slopes_since_sync(duration_SNR))) <= {BACKWARD_AT}


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
@pytest.mark.parametrize("seed", range(16))
def test_a_rank_that_waits_for_its_own_loader_alone_waits_for_no_other(ranks: int, seed: int) -> None:
    # each rank's loader has a batch ready every 100 ms: the more a rank computes, the less it waits for it
    generator = torch.Generator().manual_seed(seed)
    duration_SNR = torch.randint(10 * MS, 40 * MS, (3, 100, ranks), generator=generator).numpy()
    duration_SNR[0, 1:] = 100 * MS - duration_SNR[1:, :-1].sum(axis=0)
    assert certain(slopes_since_sync(duration_SNR)) == []


@pytest.mark.parametrize("steps", [10, 11])
def test_it_needs_ten_syncs(steps: int) -> None:
    slopes = slopes_since_sync(ddp_job(extra={(DATA, "random"): 60 * MS}, steps=steps))
    assert bool(np.isnan(slopes.slope).all()) == (steps < 11)


def test_without_syncs_there_is_no_result() -> None:
    still = np.full((6, 40, 4), 10 * MS)
    assert np.isnan(slopes_since_sync(still).slope).all()
    assert np.isnan(slopes_since_sync(still[:, :, :1]).slope).all()
    late = lasting_fault(OPTIMIZER, ranks=2)[4]
    assert diagnose(reduced(late)).met_boundary is None
    with_a_gap = window_of(late.duration_SNR, steps=[*range(20), *range(21, 41)])
    assert diagnose(with_a_gap).met_boundary is None
