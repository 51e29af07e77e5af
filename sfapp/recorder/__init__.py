"""The recorder: runs inside training, leaves packets, never fails or delays it.

The one place in sfapp that fails open: whatever goes wrong here is noted in the packet, not raised. Names are
loaded on first use: a script that ``sfapp run`` starts sets up its environment before PyTorch is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfapp.recorder.recorder import Recorder
    from sfapp.recorder.wrapper import wrapper_of

_HOMES = {"Recorder": "sfapp.recorder.recorder", "wrapper_of": "sfapp.recorder.wrapper"}

__all__ = ["Recorder", "wrapper_of"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sfapp.recorder' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
