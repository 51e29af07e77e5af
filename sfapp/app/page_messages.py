"""Refuse messages from pages that would be kept for attachments to come.

A message of Socket.IO may announce ten billion attachments of up to 1 MB each, and those that came are kept
until the last one has. Pages send none.
"""

from __future__ import annotations

from nicegui import core
from socketio.packet import BINARY_ACK, BINARY_EVENT, Packet


class PageMessage(Packet):  # type: ignore[misc]  # Socket.IO has no types.
    """A message to or from a page; one from a page that announces attachments is not decoded."""

    def decode(self, encoded_packet: str | bytes) -> int:
        """Decode a message that was received.

        Raises:
            ValueError: it announces attachments.
        """
        count: int = super().decode(encoded_packet)
        if self.packet_type in (BINARY_EVENT, BINARY_ACK):
            raise ValueError("a message with attachments is refused: pages send none")
        return count


def refuse_attachments() -> None:
    """Have NiceGUI's server decode messages as ``PageMessage``."""
    core.sio.packet_class = PageMessage
