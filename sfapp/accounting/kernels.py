"""The few array kernels that everything else is made of, each exact and fast on CPU and CUDA.

Shapes: the last axis is always ranks (R), contiguous. Measured at 16,384 ranks × 100 steps × 6 stages on
two cores: numpy's partition finds exact medians 5 to 8 times faster than torch's median or sort, and
numpy's argmax is the one that both vectorises and promises the first of equal maxima.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = Any
"""A numpy array or a tensor: what ``native`` returns. The two spell alike all that is done with them here."""

_BLOCK_CELLS = 1 << 17
"""Cells of int64 worked on at a time: 1 MB, so that a running prefix stays in a core's cache."""

_PARALLEL_CELLS = 1 << 20
"""Below this many cells a second thread costs more than it saves."""


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=max(1, torch.get_num_threads()), thread_name_prefix="sfapp-median")


def row_blocks(rows: int, width: int) -> Iterator[slice]:
    """Slices over ``rows`` rows of ``width`` cells, each about one cache block."""
    height = max(1, _BLOCK_CELLS // max(1, width))
    for begin in range(0, rows, height):
        yield slice(begin, min(rows, begin + height))


def native(x: torch.Tensor) -> Array:
    """The same memory as numpy sees it, on the CPU; elsewhere the tensor.

    In cache-sized blocks numpy on one core is as fast as torch on two: torch wakes its threads for each
    small operation, which at times costs more than they save.
    """
    return x.numpy() if x.device.type == "cpu" else x


def add(a_NR: Array, b_NR: Array | int, out_NR: Array) -> Array:
    """``a + b`` into ``out``, which may be one of them."""
    total: Array = (np.add if isinstance(out_NR, np.ndarray) else torch.add)(a_NR, b_NR, out=out_NR)
    return total


def max_last(x_NR: Array) -> Array:
    """The largest value of each row."""
    top_N: Array = x_NR.max(axis=-1) if isinstance(x_NR, np.ndarray) else x_NR.amax(dim=-1)
    return top_N


def first_argmax(x_NR: Array) -> Array:
    """Index of the largest value of each row; of equal values the lowest index."""
    if isinstance(x_NR, np.ndarray):
        first_N: Array = x_NR.argmax(axis=-1)
        return first_N
    index_R = torch.arange(x_NR.shape[-1], device=x_NR.device)
    return torch.where(x_NR == x_NR.amax(dim=-1, keepdim=True), index_R, x_NR.shape[-1]).amin(dim=-1)


def _middle_rows(x_MR: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    ranks = x_MR.shape[-1]
    middle = ranks // 2
    # One pivot only: numpy's vectorised selection does not serve two. Below the pivot lie the smaller
    # half, whose maximum is the other middle value of an even count.
    partitioned = np.partition(x_MR, middle, axis=-1)
    upper = partitioned[..., middle].astype(np.float64)
    lower = upper if ranks % 2 else partitioned[..., :middle].max(axis=-1).astype(np.float64)
    return np.stack((lower, (lower + upper) / 2))


def middle_last(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower middle value and the median over the last axis, float64: the same for an odd count.

    Args:
        x: [..., R], int64 or float64.
    """
    if x.device.type != "cpu":
        ordered = x.sort(dim=-1).values
        ranks = x.shape[-1]
        lower = ordered[..., (ranks - 1) // 2].double()
        return lower, (lower + ordered[..., ranks // 2].double()) / 2
    flat_MR = x.reshape(-1, x.shape[-1]).numpy()
    if flat_MR.size < _PARALLEL_CELLS:
        middle = _middle_rows(flat_MR)
    else:
        blocks = [flat_MR[rows] for rows in row_blocks(*flat_MR.shape)]
        middle = np.concatenate(list(_pool().map(_middle_rows, blocks)), axis=1)
    lower, median = torch.from_numpy(middle).reshape(2, *x.shape[:-1])
    return lower, median


def median_last(x: torch.Tensor) -> torch.Tensor:
    """Median over the last axis, float64, the mean of the two middle values for an even count.

    Args:
        x: [..., R], int64 or float64.
    """
    return middle_last(x)[1]


def previous_boundary(frontier_SN: torch.Tensor) -> torch.Tensor:
    """The frontier at the boundary before each (s, t), restarting at 0 in every step: [S, N]."""
    before = torch.zeros_like(frontier_SN)
    before[1:] = frontier_SN[:-1]
    return before
