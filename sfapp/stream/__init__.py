"""From every rank to one screen while the job runs: sender, node relay, aggregator (docs/stream.md).

Names are loaded on first use: a part of this that needs no sockets loads none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfapp.stream.aggregator import Aggregator
    from sfapp.stream.live_state import Now, RankNow
    from sfapp.stream.relay import Relay
    from sfapp.stream.security import Keys
    from sfapp.stream.sender import StreamOptions

_HOMES = {
    "Aggregator": "aggregator",
    "Keys": "security",
    "Now": "live_state",
    "RankNow": "live_state",
    "Relay": "relay",
    "StreamOptions": "sender",
}

__all__ = ["Aggregator", "Keys", "Now", "RankNow", "Relay", "StreamOptions"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sfapp.stream' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sfapp.stream.{_HOMES[name]}"), name)
