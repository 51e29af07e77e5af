"""Keep a socket connected, also where libzmq gives up.

libzmq connects a socket again after a lost connection, but never again after a peer that broke its protocol
or refused the keys: an aggregator that was started with other keys, or a program of another kind that had
its port for a moment. Where it does try again it does so ten times a second, and nowhere says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from sfapp.stream.encryption import KEYS_VARIABLE, Keys, connect
from sfapp.terminal import quoted

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 5.0
"""Pause after a failed handshake, doubled each time. A thousand ranks then begin 200 handshakes a second."""

_RETRY_S = 1.0
"""Seconds after a lost connection in which libzmq announces that it connects again, if it does."""

_UNREACHED_S = 10.0
"""Seconds without a connection that are a failure: an aggregator may start after its ranks, or again."""

_NOTED_AFTER = 2
"""Failed handshakes in a row that are a failure: a single one happens if the peer ends at that moment."""

_HANDSHAKE_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_CONNECTING = zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_CONNECT_DELAYED | zmq.EVENT_CONNECTED
_EVENTS = (
    _CONNECTING
    | _HANDSHAKE_FAILED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
)


class Connection:
    """Connection of a socket to one address. Used on the socket's thread.

    Args:
        socket: not connected yet; ``close`` does not close it.
        endpoint, keys: as of ``connect``.
        note: called with the reason once no connection comes about, until one does.
        clock: monotonic seconds.

    Raises:
        StreamError: the endpoint is invalid, or needs keys.
    """

    def __init__(
        self,
        socket: zmq.Socket[Any],
        endpoint: str,
        keys: Keys | None,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._socket = socket
        self._endpoint = endpoint
        self._has_keys = keys is not None
        self._note = note
        self._clock = clock
        self._down_since: float | None = clock()  # None while connected
        self._failed = 0  # handshakes since the last one that succeeded
        self._is_noted = False
        self._lost_at: float | None = None  # while libzmq has not announced that it connects again
        self._connect_at: float | None = None  # while disconnected here
        self._monitor = socket.get_monitor_socket(_EVENTS)
        try:
            connect(socket, endpoint, keys)
        except BaseException:
            self.close()
            raise

    def tend(self) -> None:
        """Take what has happened to the connection, and connect again if that is due. It never waits."""
        while int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._take(recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"])
        now = self._clock()
        if self._lost_at is not None and now - self._lost_at > _RETRY_S:
            self._fail("what listens there is no aggregator or relay of sfapp", now)
        if self._down_since is not None and now - self._down_since > _UNREACHED_S:
            self._note_once(f"nothing has answered there for {_UNREACHED_S:.0f} s; it is tried again")
        if self._connect_at is not None and now >= self._connect_at:
            self._connect_at = None
            self._socket.connect(self._endpoint)

    def close(self) -> None:
        """Stop watching the socket."""
        if not self._socket.closed:
            self._socket.disable_monitor()
        self._monitor.close(linger=0)

    def _take(self, event: int) -> None:
        if self._connect_at is not None:  # of the connection that was given up
            return
        if event & zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._failed, self._is_noted = 0, False
            self._down_since = self._lost_at = None
        elif event & zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self._failed += _NOTED_AFTER
            self._fail(f"the keys of {KEYS_VARIABLE} are refused there: they are of another session")
        elif event & _HANDSHAKE_FAILED:
            with_keys = "other keys, or none" if self._has_keys else f"keys, and {KEYS_VARIABLE} is not set"
            self._fail(f"the handshake fails: what listens there may have {with_keys}")
        elif event & zmq.EVENT_DISCONNECTED:
            self._lost_at = self._clock()
            if self._down_since is None:
                self._down_since = self._lost_at
        elif event & _CONNECTING:
            self._lost_at = None

    def _fail(self, reason: str, now: float | None = None) -> None:
        """Disconnect for a pause, and note the reason if it is not the first failure."""
        pause = min(_FIRST_PAUSE_S * 2 ** min(self._failed, 10), _LONGEST_PAUSE_S)
        self._failed += 1
        self._lost_at, self._connect_at = None, (self._clock() if now is None else now) + pause
        with suppress(zmq.ZMQError):  # libzmq may have given it up
            self._socket.disconnect(self._endpoint)
        if self._failed >= _NOTED_AFTER:
            self._note_once(reason)

    def _note_once(self, reason: str) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._note(f"no connection to {quoted(self._endpoint)}: {reason}")
