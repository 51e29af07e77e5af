"""Choose where a recorder's windows go: packets of its own, or the stream to an aggregator."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from sfapp.errors import MissingExtraError
from sfapp.packets.sink import STREAM_VARIABLE, PacketSink
from sfapp.recorder.window.writer import Writer
from sfapp.sink_registry import STREAM, sink_factory


def open_sink(stream: Any, max_pending: int) -> PacketSink:
    """Return the sink that the ``stream`` argument, or else ``SFAPP_STREAM``, asks for.

    Raises:
        MissingExtraError: a stream is asked for, and pyzmq is not installed.
        StreamError: the address or the keys cannot be used.
    """
    if stream is None and not os.environ.get(STREAM_VARIABLE):
        return Writer(max_pending)
    try:
        return sink_factory(STREAM)(stream, partial(Writer, 1))
    except ModuleNotFoundError as missing:
        raise MissingExtraError(
            f"to stream, the recorder needs {missing.name}: pip install 'sfapp[stream]'"
        ) from None
