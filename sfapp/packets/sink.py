"""The protocol between a recorder and what receives its windows: ``PacketSink``.

The recorder's transports (``sfapp.recorder.transport``) and the stream (``sfapp.stream.stream_writer``)
implement it. The recorder and the stream know this protocol and not each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sfapp.packets.capture_mailbox import CaptureMailbox
from sfapp.packets.job import JobRank
from sfapp.packets.window_rows import WindowBuffer

STREAM_VARIABLE = "SFAPP_STREAM"
"""Environment variable with the address that recorders stream to when they are given none."""


class PacketSink(Protocol):
    """Receiver of a recorder's windows. Only ``close`` and ``save_parts`` block; no method raises."""

    @property
    def written(self) -> deque[Path]:
        """The newest packets that this rank has written."""

    @property
    def failures(self) -> deque[str]:
        """The newest failures, one line each."""

    @property
    def pending(self) -> int:
        """Number of closed windows that are not yet stored durably."""

    @property
    def mailbox(self) -> CaptureMailbox:
        """Where capture requests arrive and are answered."""

    def begin_window(self, rank: JobRank, buffer: WindowBuffer) -> None:
        """Announce a window whose buffer is about to be filled."""

    def end_window(self, rank: JobRank, buffer: WindowBuffer, last: bool = False) -> bool:
        """Take over a window that has ended; return False if its rows are dropped.

        Args:
            last: no further window follows.
        """

    def close(self, seconds: float) -> None:
        """Store every pending window, within ``seconds`` and little more."""

    def save_parts(self, reason: str, seconds: float) -> None:
        """Write this rank's part of every pending window without waiting for other ranks.

        Args:
            reason: why; parts state it in their manifest.
        """


LocalSinkFactory = Callable[[], PacketSink]
"""Makes a sink that writes to this rank's file system, for windows that a remote sink cannot deliver."""
