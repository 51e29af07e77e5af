"""Describe the present activity of the store."""

from __future__ import annotations

from sfapp.service.store_activity import StoreStatus
from sfapp.views import format

IDLE_S = 600.0
"""Age of the newest window from which the header no longer calls a job live."""


def status_text(status: StoreStatus) -> str:
    """Return the activity of the store and the age of the newest window, for the header of every page."""
    newest = f"newest packet {format.age(status.age_seconds)}" if status.newest else "no packets yet"
    if status.kind == "reading":
        progress = status.progress
        done = f" {format.count(progress.done)} of {format.count(progress.total)}" if progress else ""
        return f"Reading packets{done}"
    if status.message:
        return f"Not watching: {status.message}"
    if status.kind == "stopped":
        return f"Reading cancelled, {newest}"
    if not is_idle(status):
        return f"Live, {newest}"
    recorded = f"newest window {format.age(status.recorded_seconds)}" if status.newest else newest
    return f"Watching the folder, {recorded}"


def is_idle(status: StoreStatus) -> bool:
    """Return whether no job has written for a while."""
    age = status.recorded_seconds
    return status.kind == "live" and (age is None or age > IDLE_S)
