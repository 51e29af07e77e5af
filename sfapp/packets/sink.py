"""``PacketSink``, the protocol between a recorder and the receiver of its windows.

The recorder's transports (``sfapp.recorder.transport``) and the stream (``sfapp.stream.stream_writer``)
implement it. The recorder and the stream depend on this protocol and not on each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sfapp.model.standstill import PlaceSource
from sfapp.packets.capture_mailbox import CaptureMailbox
from sfapp.packets.job import JobRank
from sfapp.packets.window_rows import WindowBuffer

STREAM_VARIABLE = "SFAPP_STREAM"
"""Environment variable with the default address to which recorders stream."""


class PacketSink(Protocol):
    """Receiver of a recorder's windows. Only ``close`` and ``save_parts`` block; no method raises."""

    @property
    def written(self) -> deque[Path]:
        """Paths of the newest packets written by this rank."""

    @property
    def failures(self) -> deque[str]:
        """The newest failures, one line each."""

    @property
    def pending(self) -> int:
        """Number of closed windows that are not yet stored durably."""

    @property
    def mailbox(self) -> CaptureMailbox:
        """Where capture requests arrive and are answered."""

    def follow(self, places: PlaceSource) -> None:
        """Report from now on where the training thread is, if the sink reports it anywhere."""

    def begin_window(self, rank: JobRank, buffer: WindowBuffer) -> None:
        """Announce a window whose buffer is about to be filled."""

    def end_window(self, rank: JobRank, buffer: WindowBuffer, last: bool = False) -> bool:
        """Accept a window that has ended; return False if its rows are dropped.

        Args:
            buffer: its rows; the last window may have none.
            last: no further window follows.
        """

    def close(self, seconds: float) -> None:
        """Store every pending window, within about ``seconds``."""

    def save_parts(self, reason: str, seconds: float) -> None:
        """Write this rank's part of every pending window without waiting for other ranks.

        Args:
            reason: stated in the manifests of the parts.
        """


LocalSinkFactory = Callable[[], PacketSink]
"""Function that makes a sink on this rank's file system, for windows that a remote sink cannot deliver."""
