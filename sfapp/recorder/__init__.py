"""The recorder: runs inside training and writes packets, without failing or delaying training.

It fails open: errors are recorded in the packet or the log and not raised. The path of one stage time:

1. ``with perf.stage(name)`` looks up the timer (``timing/timers.py``: ``StepState.find_stage``).
2. The timer (``timing/timers.py``: ``Stage``) adds the time to the current step's row in a page.
3. The page's rows are copied to the window (``sfapp/packets/window_rows.py``: ``WindowBuffer``).
4. ``WindowRecorder`` (``window/window_recorder.py``) closes the window and submits it to the sink.
5. The sink of ``transport/transports.py`` accepts it: ``GatherSink``, or the stream's ``StreamWriter``.
6. ``GatherSink`` queues it (``transport/window_queue.py``) for the recorder's thread.
7. A ``TransportGroup`` (``transport/``), by default ``GatherGroup``, brings the ranks' rows to rank 0.
8. ``sfapp/packets/compose.py`` makes the draft of the packet from them.
9. ``PacketWriter`` (``transport/packet_writer.py``) writes it, in this process or another one.

Names are loaded on first use: a script that ``sfapp run`` starts sets up its environment before PyTorch is
imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfapp.recorder.options import GatherOptions, JobOptions, SideChannelOptions, WindowOptions
    from sfapp.recorder.recorder import Recorder
    from sfapp.recorder.wrapper import wrapper_of

_HOMES = {
    "GatherOptions": "sfapp.recorder.options",
    "JobOptions": "sfapp.recorder.options",
    "Recorder": "sfapp.recorder.recorder",
    "SideChannelOptions": "sfapp.recorder.options",
    "WindowOptions": "sfapp.recorder.options",
    "wrapper_of": "sfapp.recorder.wrapper",
}

__all__ = ["GatherOptions", "JobOptions", "Recorder", "SideChannelOptions", "WindowOptions", "wrapper_of"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sfapp.recorder' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
