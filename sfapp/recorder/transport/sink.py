"""What takes a recorder's windows: a writer of packets, or the stream to an aggregator."""

from __future__ import annotations

import importlib
import os
from collections import deque
from pathlib import Path
from typing import Any, Protocol

from sfapp.errors import MissingExtraError
from sfapp.recorder.capture.mailbox import Desk
from sfapp.recorder.transport.process_group import Team
from sfapp.recorder.window.buffers import WindowBuffer
from sfapp.recorder.window.writer import Writer

STREAM_VARIABLE = "SFAPP_STREAM"
"""Environment variable with the address that recorders stream to, where they are told of none."""


class Outlet(Protocol):
    """Never waits but in ``close`` and ``rescue``, and raises nothing."""

    @property
    def written(self) -> deque[Path]:
        """The newest packets of this rank."""

    @property
    def failures(self) -> deque[str]:
        """The newest things that went wrong, as far as they are known."""

    @property
    def pending(self) -> int:
        """Closed windows that are not safe yet."""

    @property
    def desk(self) -> Desk:
        """Where captures are asked for and answered."""

    def follow(self, team: Team, buffer: WindowBuffer) -> None:
        """A window begins; its buffer is going to be filled."""

    def submit(self, team: Team, buffer: WindowBuffer, last: bool = False) -> bool:
        """A window has ended; False if its rows are dropped."""

    def close(self, seconds: float) -> None:
        """Bring what waits to safety, within ``seconds`` and little more."""

    def rescue(self, reason: str, seconds: float) -> None:
        """The same in a hurry, alone."""


def outlet_for(stream: Any, most_waiting: int) -> Outlet:
    """Where a recorder's windows go: as it was told, or as ``SFAPP_STREAM`` says.

    The stream is found by name: it knows the recorder, and the recorder only its face.

    Raises:
        MissingExtraError: it was told to stream, and pyzmq is not installed.
        StreamError: the address or the keys cannot be used.
    """
    if stream is None and not os.environ.get(STREAM_VARIABLE):
        return Writer(most_waiting)
    try:
        shipping = importlib.import_module("sfapp.stream.stream_writer")
    except ModuleNotFoundError as missing:
        needs = f"to stream, the recorder needs {missing.name}: pip install 'sfapp[stream]'"
        raise MissingExtraError(needs) from None
    outlet: Outlet = shipping.writer_for(stream)
    return outlet
