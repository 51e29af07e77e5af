"""The packet format: read, write and check the files that the recorder leaves behind (packet.md)."""

from sfapp.packets.layout import Limits
from sfapp.packets.paths import find_packets, packet_path
from sfapp.packets.read import Packet, Quarantined, load_packet, read_packet, validate_packet
from sfapp.packets.write import write_packet

__all__ = [
    "Limits",
    "Packet",
    "Quarantined",
    "find_packets",
    "load_packet",
    "packet_path",
    "read_packet",
    "validate_packet",
    "write_packet",
]
