"""Read, write and check packets, the files that recorders write (packet.md)."""

from sfapp.packets.assemble import assemble
from sfapp.packets.load import (
    Conflict,
    Grouped,
    Loaded,
    LoadedWindow,
    group,
    read_files,
    read_window,
    read_windows,
)
from sfapp.packets.operators import read_operators, read_packet_operators, write_operators
from sfapp.packets.packet_layout import Limits
from sfapp.packets.paths import find_packets, operators_path, packet_path
from sfapp.packets.read import (
    Packet,
    Quarantined,
    load_packet,
    load_packets,
    read_packet,
    validate_packet,
)
from sfapp.packets.window_draft import WindowDraft
from sfapp.packets.write import create_packet, write_packet

__all__ = [
    "Conflict",
    "Grouped",
    "Limits",
    "Loaded",
    "LoadedWindow",
    "Packet",
    "Quarantined",
    "WindowDraft",
    "assemble",
    "create_packet",
    "find_packets",
    "group",
    "load_packet",
    "load_packets",
    "operators_path",
    "packet_path",
    "read_files",
    "read_operators",
    "read_packet",
    "read_packet_operators",
    "read_window",
    "read_windows",
    "validate_packet",
    "write_operators",
    "write_packet",
]
