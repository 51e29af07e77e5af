"""Share the snapshots of running jobs among pages, so that each is read once."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from cachetools import LRUCache

from sfapp.service.live import MANY_RANKS, LiveRunSnapshot, live_run_snapshot
from sfapp.service.live_address import LiveState
from sfapp.service.workspace import Workspace

FRESH_S = 0.5
MANY_FRESH_S = 1.0
"""Seconds for which a snapshot is shared, for few and for many ranks: half of a page's period."""

MOST_VIEWS = 256


@dataclass(slots=True, eq=False)
class _Shared:
    """The snapshots of one view of one run."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    snapshot: LiveRunSnapshot | None = None
    read_at: float = float("-inf")


class SharedSnapshots:
    """The newest snapshots of one workspace by run and view. Safe to use from several threads."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._views: LRUCache[tuple[str, LiveState], _Shared] = LRUCache(MOST_VIEWS)

    def newest(self, run_id: str, state: LiveState, before: LiveRunSnapshot) -> LiveRunSnapshot:
        """Return ``live_run_snapshot``, or the result of another page for the same view a moment ago.

        Args:
            before: the previous snapshot of the page; for a frozen time it has data that cannot be read
                again.
        """
        if state.until is not None:
            return live_run_snapshot(self._workspace, run_id, state, before=before)
        with self._lock:
            shared = self._views.setdefault((run_id, state), _Shared())
        with shared.lock:
            fresh_s = MANY_FRESH_S if has_many_ranks(before) else FRESH_S
            if shared.snapshot is None or time.monotonic() - shared.read_at > fresh_s:
                newest = before if shared.snapshot is None else shared.snapshot
                shared.snapshot = live_run_snapshot(self._workspace, run_id, state, before=newest)
                shared.read_at = time.monotonic()
            return shared.snapshot


def has_many_ranks(snapshot: LiveRunSnapshot) -> bool:
    """Return whether a job has so many ranks that its page, except the headline, is updated less often."""
    return len(snapshot.ranks) > MANY_RANKS
