"""Stream the rows of all ranks to one aggregator while the job runs (docs/stream.md).

Names are imported on first use, so that parts that need no sockets load no pyzmq.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfapp.stream.aggregator import Aggregator
    from sfapp.stream.encryption import Keys
    from sfapp.stream.live_state import LiveSnapshot, RankSnapshot
    from sfapp.stream.relay import Relay
    from sfapp.stream.sender import StreamOptions

_MODULES = {
    "Aggregator": "aggregator",
    "Keys": "encryption",
    "LiveSnapshot": "live_state",
    "RankSnapshot": "live_state",
    "Relay": "relay",
    "StreamOptions": "sender",
}
_DEPRECATED = {"Now": "LiveSnapshot", "RankNow": "RankSnapshot"}

__all__ = ["Aggregator", "Keys", "LiveSnapshot", "RankSnapshot", "Relay", "StreamOptions"]


def __getattr__(name: str) -> Any:
    if name in _DEPRECATED:
        current = _DEPRECATED[name]
        warnings.warn(f"sfapp.stream.{name} is now {current}", DeprecationWarning, stacklevel=2)
        name = current
    if name not in _MODULES:
        raise AttributeError(f"module 'sfapp.stream' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sfapp.stream.{_MODULES[name]}"), name)
