"""Read a stored window from its packets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sfapp.errors import PacketsMissingError
from sfapp.model import Window
from sfapp.packets import Packet, group, load_packet, load_packets
from sfapp.packets.paths import thinned_path
from sfapp.storage import StoragePath, storage_of
from sfapp.store.queries import PacketSource
from sfapp.store.scan import is_below


def thinned_file(shown: Sequence[PacketSource]) -> Path | None:
    """Return what `sfapp compact` has left of a window's packet; None if the packet is there, or its folder
    cannot be entered."""
    path = shown[0].path
    if len(shown) > 1 or not isinstance(path, Path) or os.path.exists(path):
        return None
    thinned = thinned_path(path)
    return thinned if os.path.exists(thinned) else None


def thinned_at(shown: Sequence[PacketSource]) -> datetime | None:
    """Return when the rows of a window were thinned; None if all are there."""
    thinned = thinned_file(shown)
    found = None if thinned is None else storage_of(thinned).found(thinned)
    return None if found is None else datetime.fromtimestamp(found.stamp.mtime_ns / 1e9, UTC)


def read_stored_window(
    run: str,
    number: int,
    shown: Sequence[PacketSource],
    set_aside: Sequence[PacketSource],
    roots: Sequence[StoragePath],
) -> Window:
    """Return a window with its matrix. Unchanged packets that were set aside are read too, so that the window
    shows that a rank reported other stages or steps, although its rows are left out.

    Raises:
        PacketsMissingError: its packets have disappeared or changed since they were ingested, or a dataset of
            verdicts names packets that are not below the roots.
    """
    outside = [source for source in shown if not any(is_below(str(source.path), str(root)) for root in roots)]
    if outside:
        raise PacketsMissingError(
            f"of window {number} of run {run!r} only the verdict is here; its packet is {outside[0].path}: "
            "name the folder of the packets too, to see its steps and ranks"
        )
    thinned = thinned_file(shown)
    loaded = list(load_packets([thinned] if thinned else [source.path for source in shown]))
    packets = [packet for packet in loaded if isinstance(packet, Packet)]
    is_whole = len(packets) == len(loaded)
    for stored in set_aside:
        packet = load_packet(stored.path)
        if isinstance(packet, Packet) and packet.sha256 == stored.sha256:
            packets.append(packet)
    for found in group(packets).windows if is_whole else ():
        if (found.window.run_id, found.window.number) == (run, number):
            return found.window
    raise PacketsMissingError(
        f"the packets of window {number} of run {run!r} were removed or changed after the last scan; "
        "the next scan updates the store"
    )
