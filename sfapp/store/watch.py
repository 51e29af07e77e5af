"""Detect new packets through the operating system's notifications, and through scans for those that they
miss."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import watchfiles

from sfapp.metrics import SUFFIX as SAMPLES_SUFFIX
from sfapp.packets.paths import SUFFIX as PACKET_SUFFIX
from sfapp.storage import StoragePath, local_paths
from sfapp.store.ingest import IngestReport

_LOOK_S = 1.0
"""Longest sleep of the watcher before it considers a scan, in seconds."""

_SCAN_EVERY_S = 2.0
_SCAN_COST = 20
"""Multiple of the scan time between two scans, at least two seconds, so that scans take at most a twentieth
of the time."""

_REMOTE_SCAN_COST = 1
"""The same where all roots are in object stores, whose scans wait for answers and do not compute."""


def watch(
    roots: Sequence[StoragePath],
    stop: threading.Event,
    ingest: Callable[[], IngestReport],
    follow: Callable[[], object],
    on_change: Callable[[IngestReport], None],
) -> None:
    """Ingest whenever packets may have changed, until stopped; report every ingest that changed something.

    Notifications arrive at once, except for files written by other machines (NFS, Lustre), which scans find.
    A bucket reports nothing, so that scans find all its packets. Sample files, which are few, are followed
    every second.
    """
    local = local_paths(roots)
    cost = _SCAN_COST if local else _REMOTE_SCAN_COST
    next_scan = 0.0
    pause = _SCAN_EVERY_S
    for noticed in _looks(local, stop):
        if not noticed:
            follow()
            if time.monotonic() < next_scan:
                continue
        report = ingest()
        if report.changed:
            on_change(report)
        else:
            pause = max(_SCAN_EVERY_S, cost * report.seconds)
        next_scan = time.monotonic() + pause
        if noticed:  # The verdict comes first, because samples of a thousand ranks take a while.
            follow()


def _looks(roots: Sequence[Path], stop: threading.Event) -> Iterator[bool]:
    """Yield True after a change of a packet, and False for samples and once a second, until stopped."""
    if stop.is_set():
        return
    yield False
    try:
        for found in watchfiles.watch(
            *(root for root in roots if root.exists()),
            watch_filter=_is_ours,
            stop_event=stop,
            rust_timeout=int(_LOOK_S * 1000),
            yield_on_timeout=True,
        ):
            yield any(path.endswith(PACKET_SUFFIX) for _, path in found)
    except (OSError, RuntimeError):
        pass  # No inotify watches are left or the file system has none: scans do all the work.
    while not stop.wait(_LOOK_S):
        yield False


def _is_ours(change: watchfiles.Change, path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith((PACKET_SUFFIX, SAMPLES_SUFFIX)) and not name.startswith(".")
