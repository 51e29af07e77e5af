"""Registry of remote packet sinks, so that the recorder can stream without importing the stream.

``sfapp/__init__.py`` registers the stream's factory; the recorder looks it up if it is configured to stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfapp.packets.sink import LocalSinkFactory, PacketSink

    SinkFactory = Callable[[Any, LocalSinkFactory], PacketSink]
    """Function that makes a sink from the recorder's ``stream`` argument and a factory of local sinks."""

STREAM = "stream"

_FACTORIES: dict[str, SinkFactory] = {}


def register_sink(name: str, factory: SinkFactory) -> None:
    """Register ``factory`` under ``name``, replacing an earlier one."""
    _FACTORIES[name] = factory


def sink_factory(name: str) -> SinkFactory:
    """Return the factory registered under ``name``.

    Raises:
        KeyError: nothing is registered under it.
    """
    return _FACTORIES[name]
