"""The recorder: runs inside training, leaves packets, never fails or delays it.

The one place in sfapp that fails open: whatever goes wrong here is noted in the packet, not raised.
"""

from sfapp.record.recorder import Recorder
from sfapp.record.wrapper import wrapper_of

__all__ = ["Recorder", "wrapper_of"]
