"""Share the snapshots of running jobs among the pages that show them: they are read once for all."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from sfapp.service.live import MANY_RANKS, LiveRunSnapshot, live_run_snapshot
from sfapp.service.live_address import LiveState
from sfapp.service.workspace import Workspace

FRESH_S = 0.5
MANY_FRESH_S = 1.0
"""A snapshot serves other pages for so long, the second is that of many ranks: half of a page's period."""

MOST_VIEWS = 256

_Key = tuple[str, LiveState]


@dataclass(slots=True, eq=False)
class _Shared:
    """The snapshots of one view of one run."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    snapshot: LiveRunSnapshot | None = None
    read_at: float = float("-inf")


class _SharedViews:
    """The snapshots of one workspace by view, the most recently asked for last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: OrderedDict[_Key, _Shared] = OrderedDict()

    def of(self, key: _Key) -> _Shared:
        with self._lock:
            shared = self._views.setdefault(key, _Shared())
            self._views.move_to_end(key)
            while len(self._views) > MOST_VIEWS:
                self._views.popitem(last=False)
            return shared


_VIEWS: WeakKeyDictionary[Workspace, _SharedViews] = WeakKeyDictionary()
_VIEWS_LOCK = threading.Lock()


def has_many_ranks(snapshot: LiveRunSnapshot) -> bool:
    """Return whether a job has so many ranks that its page is updated less often, but for the headline."""
    return len(snapshot.ranks) > MANY_RANKS


def shared_snapshot(
    workspace: Workspace, run_id: str, state: LiveState, before: LiveRunSnapshot
) -> LiveRunSnapshot:
    """Return ``live_run_snapshot``, or what another page read of the same view a moment ago.

    Args:
        before: the previous snapshot of the page; of a frozen time it holds what cannot be read again.
    """
    if state.until is not None:
        return live_run_snapshot(workspace, run_id, state, before=before)
    with _VIEWS_LOCK:
        views = _VIEWS.get(workspace)
        if views is None:
            views = _VIEWS[workspace] = _SharedViews()
    shared = views.of((run_id, state))
    with shared.lock:
        fresh_s = MANY_FRESH_S if has_many_ranks(before) else FRESH_S
        if shared.snapshot is None or time.monotonic() - shared.read_at > fresh_s:
            newest = before if shared.snapshot is None else shared.snapshot
            shared.snapshot = live_run_snapshot(workspace, run_id, state, before=newest)
            shared.read_at = time.monotonic()
        return shared.snapshot
