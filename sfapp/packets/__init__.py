"""The packet format: read, write and check the files that the recorder leaves behind (packet.md)."""

from sfapp.packets.assemble import assemble
from sfapp.packets.layout import Limits
from sfapp.packets.load import Conflict, Grouped, Loaded, LoadedWindow, group, read_window, read_windows
from sfapp.packets.paths import find_packets, packet_path
from sfapp.packets.read import Packet, Quarantined, load_packet, read_packet, validate_packet
from sfapp.packets.write import write_packet

__all__ = [
    "Conflict",
    "Grouped",
    "Limits",
    "Loaded",
    "LoadedWindow",
    "Packet",
    "Quarantined",
    "assemble",
    "find_packets",
    "group",
    "load_packet",
    "packet_path",
    "read_packet",
    "read_window",
    "read_windows",
    "validate_packet",
    "write_packet",
]
