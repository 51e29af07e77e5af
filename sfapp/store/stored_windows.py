"""Read a stored window from its packets."""

from __future__ import annotations

from collections.abc import Sequence

from sfapp.errors import StoreError
from sfapp.model import Window
from sfapp.packets import Packet, group, load_packet, load_packets
from sfapp.storage import StoragePath
from sfapp.store.queries import PacketSource
from sfapp.store.scan import is_below


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
        StoreError: its packets have disappeared or changed since they were ingested, or a dataset of verdicts
            names packets that are not below the roots.
    """
    outside = [source for source in shown if not any(is_below(str(source.path), str(root)) for root in roots)]
    if outside:
        raise StoreError(
            f"of window {number} of run {run!r} only the verdict is here; its packet is {outside[0].path}: "
            "name the folder of the packets too, to see its steps and ranks"
        )
    loaded = list(load_packets(source.path for source in shown))
    packets = [packet for packet in loaded if isinstance(packet, Packet)]
    is_whole = len(packets) == len(loaded)
    for stored in set_aside:
        packet = load_packet(stored.path)
        if isinstance(packet, Packet) and packet.sha256 == stored.sha256:
            packets.append(packet)
    for found in group(packets).windows if is_whole else ():
        if (found.window.run_id, found.window.number) == (run, number):
            return found.window
    raise StoreError(
        f"the packets of window {number} of run {run!r} were removed or changed after the last scan; "
        "the next scan updates the store"
    )
