"""The recorder: runs inside training, leaves packets, never fails or delays it.

The one place in sfapp that fails open: whatever goes wrong here is noted in the packet, not raised.
"""

from sfapp.record.recorder import Recorder

__all__ = ["Recorder"]
