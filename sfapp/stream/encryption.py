"""Encrypt and authenticate streams: CURVE keys per session, required for addresses beyond this machine.

CURVE alone admits every client that knows the server's public key, so servers also check the client's key
(ZAP). All ranks and relays of a session share one client key.
"""

from __future__ import annotations

import ipaddress
import os
import socket as sockets
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

from sfapp.errors import StreamError
from sfapp.files import open_regular
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.stream.messages import MAX_MESSAGE_BYTES

KEYS_VARIABLE = "SFAPP_STREAM_KEYS"
"""Environment variable with a session's keys as JSON, or the path of a file with them."""

HEARTBEAT_SECONDS = 5
"""Seconds without a message after which a connection is tried. It counts as lost three times as long."""

_DOMAIN = "sfapp"
_UNIX = "ipc://"
_SQUASHED = 65534  # to which file servers map root
_LIMIT_BYTES = 2 * MAX_MESSAGE_BYTES
"""libzmq closes a connection that sends a longer frame."""


class Keys(msgspec.Struct, frozen=True, omit_defaults=True):
    """Keys of one session, each 40 characters of Z85. Secrets are not part of its ``repr``.

    Attributes:
        server_public: public key of the aggregator, which clients verify.
        client_public, client_secret: key pair shared by all clients.
        server_secret: secret key of the aggregator; empty for clients.
    """

    server_public: str
    client_public: str
    client_secret: str
    server_secret: str = ""

    def __repr__(self) -> str:
        return f"Keys(server_public={self.server_public!r})"

    @classmethod
    def make(cls) -> Keys:
        """Return new keys for one session."""
        server_public, server_secret = (key.decode() for key in zmq.curve_keypair())
        client_public, client_secret = (key.decode() for key in zmq.curve_keypair())
        return cls(server_public, client_public, client_secret, server_secret)

    def for_clients(self) -> Keys:
        """Return the keys without the server's secret, for ranks and relays."""
        return msgspec.structs.replace(self, server_secret="")

    def of_relay(self) -> Keys:
        """Return the keys between a relay and its node's ranks.

        A relay has no server secret, so it listens with the client key pair.
        """
        return Keys(self.client_public, self.client_public, self.client_secret, self.client_secret)

    def text(self) -> str:
        """Return the keys as JSON, for ``SFAPP_STREAM_KEYS``."""
        return msgspec.json.encode(self).decode()

    def save(self, path: Path) -> None:
        """Write the keys to a new file that only its owner can read.

        Raises:
            StreamError: the file already exists, or cannot be written.
        """
        try:
            with open_regular(path, "xb", permissions=0o600) as file:
                file.write(self.text().encode())
        except OSError as error:
            raise StreamError(f"cannot write keys to {str(path)!r}: {error.strerror}") from error

    @classmethod
    def parse(cls, text: str | bytes) -> Keys:
        """Parse keys from JSON.

        Raises:
            StreamError: the text holds no keys; the message does not repeat the text.
        """
        try:
            keys = msgspec.json.decode(text, type=cls)
        except UNREADABLE_JSON:
            raise StreamError(
                "invalid stream keys: make new ones with `sfapp aggregate --make-keys`"
            ) from None
        needed = (keys.server_public, keys.client_public, keys.client_secret)
        if not all(map(_is_key, needed)) or (keys.server_secret and not _is_key(keys.server_secret)):
            raise StreamError("invalid stream keys: each key is 40 characters of Z85")
        return keys

    @classmethod
    def load(cls, path: Path) -> Keys:
        """Read keys from a file.

        Raises:
            StreamError: the file cannot be read, holds no keys, is another user's, or others can read it.
        """
        try:
            with open_regular(path) as file:
                status = os.fstat(file.fileno())
                text = file.read(10_000)
        except OSError as error:
            raise StreamError(f"cannot read keys from {str(path)!r}: {error.strerror}") from error
        if not _is_own(status.st_uid):  # Its owner knows the keys, and could have put it there.
            raise StreamError(f"the keys in {str(path)!r} belong to another user: make new ones")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise StreamError(
                f"other users can read the keys in {str(path)!r}: run chmod 600, and make new keys"
            )
        try:
            return cls.parse(text)
        except StreamError as error:
            raise StreamError(f"{str(path)!r} has {error}") from None

    @classmethod
    def from_environment(cls) -> Keys | None:
        """Return the keys of the environment, or None.

        Raises:
            StreamError: the keys are invalid.
        """
        text = os.environ.get(KEYS_VARIABLE, "")
        if not text:
            return None
        is_text = text.lstrip().startswith("{") or "client_secret" in text
        return cls.parse(text) if is_text else cls.load(Path(text))  # Messages name a path, and no secret.


def _is_own(owner: int) -> bool:
    """Return whether a file belongs to this process's user or to root."""
    user = os.geteuid()
    return owner in (user, 0) or (user == 0 and owner == _SQUASHED)


def _is_key(text: str) -> bool:
    try:
        return len(z85.decode(text)) == 32
    except (ValueError, KeyError, struct.error):  # not ASCII, no letter of Z85, more than 32 bits
        return False


class _AllowList:
    """ZAP credentials provider that admits one client key."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def callback(self, domain: str, key: bytes) -> bool:
        return key == self._key


def is_local(endpoint: str) -> bool:
    """Return whether only this machine can reach the endpoint."""
    scheme, _, address = endpoint.partition("://")
    if scheme in ("ipc", "inproc"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name, an interface or `*`: may be reachable from outside
        return False


def check_endpoint(endpoint: str, keys: Keys | None) -> None:
    """Check that an endpoint can be used with these keys.

    Raises:
        StreamError: the endpoint is invalid, or reachable from other machines without keys.
    """
    if endpoint.partition("://")[0] not in ("tcp", "ipc", "inproc"):
        raise StreamError(f"invalid stream address {endpoint!r}: write tcp://HOST:PORT")
    if keys is None and not is_local(endpoint):
        raise StreamError(
            f"{endpoint!r} can be reached from other machines: without keys, only 127.0.0.1 is allowed. "
            f"Make keys (`sfapp aggregate --make-keys`) and set {KEYS_VARIABLE} on every node"
        )


def bind(socket: zmq.Socket[bytes], endpoint: str, keys: Keys | None) -> str:
    """Bind a socket, and return the endpoint with its port. With keys, only clients of the session connect.

    Raises:
        StreamError: the endpoint is invalid or in use, needs keys, or the keys lack the server's secret.
    """
    check_endpoint(endpoint, keys)
    _prepare(socket)
    # Lost connections are found by the system, not by heartbeats. libzmq aborts the process at the second
    # heartbeat to a peer that left while its messages were not read, as while a disk hangs
    # (zeromq/libzmq#4364).
    socket.tcp_keepalive = 1
    socket.tcp_maxrt = 3000 * HEARTBEAT_SECONDS
    socket.tcp_keepalive_idle = socket.tcp_keepalive_intvl = HEARTBEAT_SECONDS
    socket.tcp_keepalive_cnt = 2
    if keys is not None:
        if not keys.server_secret:
            raise StreamError("these keys are for connecting only: they lack the server's secret")
        socket.curve_server = True
        socket.curve_publickey = keys.server_public.encode()
        socket.curve_secretkey = keys.server_secret.encode()
        socket.zap_domain = _DOMAIN.encode()
    if _is_answered(endpoint):
        raise StreamError(f"cannot listen on {endpoint}: another process listens there")
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise StreamError(f"cannot listen on {endpoint}: {error.strerror}") from error
    return socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")


def _is_answered(endpoint: str) -> bool:
    """Return whether a process listens at a Unix socket.

    libzmq would replace the socket's file, and the process that has it would receive nothing more.
    """
    path = endpoint.removeprefix(_UNIX)
    if path == endpoint or path[:1] in ("@", "*"):  # The system refuses the former, the latter is a new one.
        return False
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:  # so many connections wait that it takes no further one
            return True
        except (OSError, ValueError):  # There is none, or it is left by a process that was killed.
            return False
    return True


def connect(socket: zmq.Socket[bytes], endpoint: str, keys: Keys | None) -> None:
    """Connect a socket. libzmq reconnects it for as long as it exists, after 0.1 s at first and up to 30 s.

    Raises:
        StreamError: the endpoint is invalid, or needs keys.
    """
    check_endpoint(endpoint, keys)
    _prepare(socket)
    socket.heartbeat_ivl = 1000 * HEARTBEAT_SECONDS
    socket.heartbeat_timeout = 3000 * HEARTBEAT_SECONDS
    socket.reconnect_ivl = 100
    socket.reconnect_ivl_max = 30_000
    if keys is not None:
        socket.curve_serverkey = keys.server_public.encode()
        socket.curve_publickey = keys.client_public.encode()
        socket.curve_secretkey = keys.client_secret.encode()
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        raise StreamError(f"cannot connect to {endpoint}: {error.strerror}") from error


@contextmanager
def authenticating(context: zmq.Context[Any], keys: Keys | None) -> Iterator[None]:
    """Let bound sockets of the context admit only clients of the session, inside the ``with`` block."""
    if keys is None:
        yield
        return
    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    try:
        authenticator.configure_curve_callback(_DOMAIN, _AllowList(keys.client_public))
        yield
    finally:
        authenticator.stop()


def _prepare(socket: zmq.Socket[bytes]) -> None:
    socket.linger = 0
    socket.maxmsgsize = _LIMIT_BYTES
    socket.handshake_ivl = 10_000  # a connection that says nothing takes a file of the process until then
