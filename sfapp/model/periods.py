"""Known periods of a job, as names to check for a delay that returns every K steps (accounting.md §21)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfapp.errors import RecorderError
from sfapp.model.manifest import Manifest

PERIODS_KEY = "periods"
"""Key of ``Manifest.extra`` with periods that the job declares, in steps by name."""

WORKERS_KEY = "num_workers"
"""Key of ``Manifest.extra`` with the number of the loader's workers, each of which loads every so many
batches."""

WORKERS = "the loader's number of workers"

MOST_PERIODS, LONGEST_NAME, MOST_STEPS = 32, 256, 2**62


def declared_periods(periods: Mapping[str, int]) -> dict[str, int]:
    """Return declared periods as a packet holds them.

    Raises:
        RecorderError: they are not numbers of steps from 1 to 2^62, by name.
    """
    if not isinstance(periods, Mapping) or not all(_is_number(steps) for steps in periods.values()):
        raise RecorderError("periods must be numbers of steps by name, such as {'checkpoint': 500}")
    return {str(name)[:LONGEST_NAME]: steps for name, steps in list(periods.items())[:MOST_PERIODS]}


def known_periods(manifest: Manifest) -> dict[str, int]:
    """Return what a packet says to happen every so many steps: steps by name. One step is no period."""
    found: dict[str, Any] = {WORKERS: manifest.extra.get(WORKERS_KEY)}
    declared = manifest.extra.get(PERIODS_KEY)
    if isinstance(declared, Mapping):
        found |= {str(name)[:LONGEST_NAME]: steps for name, steps in list(declared.items())[:MOST_PERIODS]}
    return {name: steps for name, steps in found.items() if _is_number(steps) and steps > 1}


def _is_number(steps: Any) -> bool:
    return isinstance(steps, int) and not isinstance(steps, bool) and 1 <= steps <= MOST_STEPS


def fitting_periods(periods: Mapping[str, int], spacing: int) -> dict[str, int]:
    """Return the periods that a delay every ``spacing`` steps fits: each occurrence, or every k-th one, falls
    on it. Exact matches come first."""
    fitting = {name: steps for name, steps in periods.items() if spacing % steps == 0}
    return dict(sorted(fitting.items(), key=lambda one: spacing - one[1]))
