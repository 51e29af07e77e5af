"""Known periods of a job, as names to check for a delay that returns every K steps (accounting.md §21)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfapp.model.host_evidence import EVIDENCE_KEY
from sfapp.model.manifest import Manifest

PERIODS_KEY = "periods"
"""Key of ``Manifest.extra`` with periods that the job declares, in steps by name."""

FROM_EXTRA = {
    "num_workers": "the loader's number of workers",
    "prefetch_factor": "the loader's prefetch factor",
    "log_every": "the logging interval",
    "logging_steps": "the logging interval",
    "checkpoint_every": "the checkpoint interval",
    "save_steps": "the checkpoint interval",
    "eval_steps": "the evaluation interval",
}
"""Keys of ``Manifest.extra`` that hold a number of steps, with what they are."""

MOST_PERIODS, LONGEST_NAME = 32, 256


def known_periods(manifest: Manifest) -> dict[str, int]:
    """Return what a packet says to happen every so many steps: steps by name. One step is no period."""
    extra = manifest.extra
    declared = extra.get(PERIODS_KEY)
    found: dict[str, int] = {}
    for key, name in FROM_EXTRA.items():
        _add(found, name, extra.get(key))
    evidence = extra.get(EVIDENCE_KEY)
    workers = evidence.get("num_workers") if isinstance(evidence, Mapping) else None
    _add(found, FROM_EXTRA["num_workers"], workers)
    for name, steps in declared.items() if isinstance(declared, Mapping) else ():
        _add(found, str(name)[:LONGEST_NAME], steps)
    return dict(list(found.items())[:MOST_PERIODS])


def _add(found: dict[str, int], name: str, steps: Any) -> None:
    if isinstance(steps, int) and not isinstance(steps, bool) and steps > 1:
        found.setdefault(name, steps)


def fitting_periods(periods: Mapping[str, int], spacing: int) -> dict[str, int]:
    """Return the periods that a delay every ``spacing`` steps fits: each occurrence, or every k-th one, falls
    on it. Exact matches come first."""
    fitting = {name: steps for name, steps in periods.items() if spacing % steps == 0}
    return dict(sorted(fitting.items(), key=lambda one: spacing - one[1]))
