"""Predict the effect of fixing a part of a judged window, with a cache."""

from __future__ import annotations

from collections.abc import Hashable

from sfapp.accounting import WhatIf, suspect_fix, what_if_of
from sfapp.model import Diagnosis, Fix
from sfapp.service.judging import JudgedWindow
from sfapp.service.memory_cache import MemoryCache

MOST_KEPT = 4096
"""Maximum number of cached predictions; each is a few numbers."""


def fix_of(diagnosis: Diagnosis, chosen: Fix | None) -> Fix:
    """Return the chosen fix, else that of the likely cause, or of everything if there is no suspect."""
    return chosen or suspect_fix(diagnosis) or Fix()


def what_if_key(judged: JudgedWindow, fix: Fix) -> Hashable:
    """Return the key of a prediction: the measures and their alignment, not the other gates."""
    diagnosis, reference = judged.diagnosis, judged.reference
    against = None if reference is None else (reference.run_id, reference.windows)
    aligned = diagnosis.sync_boundary, diagnosis.static_gain is None
    return judged.source, diagnosis.group, diagnosis.baseline, against, aligned, fix


class StepPredictor:
    """Predictor that replays judged windows and caches the results. Safe to use from several threads."""

    def __init__(self) -> None:
        self._known: MemoryCache[WhatIf] = MemoryCache(MOST_KEPT, lambda _: 1)

    def known(self, judged: JudgedWindow, fix: Fix) -> WhatIf | None:
        """Return a prediction if it is cached, else None."""
        return self._known.get(what_if_key(judged, fix))

    def predict(self, judged: JudgedWindow, fix: Fix) -> WhatIf:
        """Return a prediction; replays the window if necessary. Blocking.

        Raises:
            WindowNotFoundError: the judged group has no such stage, rank or node.
        """
        key = what_if_key(judged, fix)
        return self._known.get(key) or self._known.put(
            key, what_if_of(judged.measures, judged.diagnosis, fix)
        )
