"""Series of steps with memory and heavy tails."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def autocorrelated(
    random: np.random.Generator, count: int, memory: float, tails: bool
) -> npt.NDArray[np.float64]:
    """Noise of standard deviation 1; with tails, of Student's t with 3 degrees of freedom."""
    value_N = random.standard_t(3, count) / np.sqrt(3) if tails else random.standard_normal(count)
    for step in range(1, count):
        value_N[step] = memory * value_N[step - 1] + np.sqrt(1.0 - memory**2) * value_N[step]
    return np.asarray(value_N)
