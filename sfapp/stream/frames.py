"""Receive messages whose number of frames is not trusted."""

from __future__ import annotations

from typing import Any

import zmq

MOST_FRAMES = 4
"""Number of frames of the longest message: the names of the route, and the content."""


def receive_frames(socket: zmq.Socket[Any]) -> list[zmq.Frame]:
    """Return the frames of the next message; of a longer one than ``MOST_FRAMES``, one more than these.

    Further frames are dropped one by one: a message may have millions, and each one in a list takes memory.

    Raises:
        zmq.Again: there is no message.
    """
    frames = [socket.recv(zmq.NOBLOCK, copy=False)]
    while socket.getsockopt(zmq.RCVMORE):
        frame = socket.recv(zmq.NOBLOCK, copy=False)
        if len(frames) <= MOST_FRAMES:
            frames.append(frame)
    return frames
