"""Closure of the step: the time that the named stages leave out or count twice (accounting.md §2)."""

from __future__ import annotations

from dataclasses import dataclass

from sfapp.accounting.kernels import as_float, max_last
from sfapp.model.arrays import Array


@dataclass(frozen=True, slots=True)
class Closure:
    """Residual and overlap of one window.

    Attributes:
        residual_share: Σ residual / Σ w over all steps and ranks.
        overlap_share: maximum over ranks of Σ_t overlap / Σ_t w.
    """

    residual_share: float
    overlap_share: float


def closures(explicit_WNR: Array, wall_WNR: Array) -> list[Closure]:
    """Close the steps of many windows: e = w − Σ explicit; residual max(0, e), overlap max(0, −e).

    Args:
        explicit_WNR: int64 ns, the sum of all stages but the residual.
        wall_WNR: int64 ns, each rank's own step time w.
    """
    overlap_WR = (explicit_WNR - wall_WNR).clip(min=0).sum(axis=1)
    wall_WR = wall_WNR.sum(axis=1)
    wall_W = wall_WR.sum(axis=1)
    # Σ max(0, e) = Σ e + Σ max(0, −e) saves one pass over the matrix.
    residual_W = wall_W - explicit_WNR.sum(axis=(1, 2)) + overlap_WR.sum(axis=1)
    residual_share_W = as_float(residual_W) / wall_W.clip(min=1)
    overlap_share_WR = as_float(overlap_WR) / wall_WR.clip(min=1)
    return [
        Closure(float(residual), float(overlap))
        for residual, overlap in zip(
            residual_share_W.tolist(), max_last(overlap_share_WR).tolist(), strict=True
        )
    ]
