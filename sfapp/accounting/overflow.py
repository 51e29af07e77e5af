"""Refuse windows whose durations would overflow int64 when they are added up."""

from __future__ import annotations

from collections.abc import Sequence

from sfapp.accounting.kernels import as_float, max_last
from sfapp.errors import WindowError
from sfapp.model import Window
from sfapp.model.arrays import Array

_LARGEST_TOTAL = 2**61
"""Largest window total (73 years in ns) whose differences cannot overflow int64."""


def check_totals(window: Window) -> None:
    """Refuse a window whose durations could overflow when they are added up.

    The sum of the maxima bounds every rank's running total and therefore every prefix.

    Raises:
        WindowError: with the sum that is too large.
    """
    largest_SN = max_last(window.duration_SNR) if window.reduced is None else window.reduced.largest_SN
    refuse_overflow([window], largest_SN[:, None])


def refuse_overflow(windows: Sequence[Window], largest_SWN: Array) -> None:
    """Refuse windows by the largest durations over ranks [S, W, N]; see ``check_totals``."""
    bounds = as_float(largest_SWN).sum(axis=(0, 2)).tolist()
    for window, bound in zip(windows, bounds, strict=True):
        if bound > _LARGEST_TOTAL:
            raise WindowError(
                f"window {window.number} of run {window.run_id!r}: durations add up to {bound:.2e} ns, "
                f"more than the accounting can hold ({_LARGEST_TOTAL:.2e})"
            )
