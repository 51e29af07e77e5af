"""Who may talk to whom: CURVE keys made per session, and no open door beyond this machine.

CURVE alone admits whoever knows the server's public key, so servers also keep a list of the clients' keys
that they admit (ZAP). All ranks and relays of a session share one client key.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator

from sfapp.errors import StreamError
from sfapp.stream.messages import MAX_MESSAGE_BYTES

KEYS_VARIABLE = "SFAPP_STREAM_KEYS"
"""Environment variable with a session's keys as JSON, or the path of a file that holds them."""

_DOMAIN = "sfapp"
_LIMIT_BYTES = 2 * MAX_MESSAGE_BYTES
"""Beyond this libzmq itself ends the connection, unread."""


class Keys(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys of one session, each 40 characters of Z85. Never shown: it prints as its public part.

    Attributes:
        server_public: the aggregator's; whoever connects checks it.
        client_public, client_secret: of everyone who may connect.
        server_secret: the aggregator's own; empty where only clients run.
    """

    server_public: str
    client_public: str
    client_secret: str
    server_secret: str = ""

    def __repr__(self) -> str:
        return f"Keys(server_public={self.server_public!r})"

    @classmethod
    def make(cls) -> Keys:
        """New keys, for one session."""
        server_public, server_secret = (key.decode() for key in zmq.curve_keypair())
        client_public, client_secret = (key.decode() for key in zmq.curve_keypair())
        return cls(server_public, client_public, client_secret, server_secret)

    def for_clients(self) -> Keys:
        """What ranks and relays need, and no more."""
        return msgspec.structs.replace(self, server_secret="")

    def of_relay(self) -> Keys:
        """The keys between a relay and its node's ranks: it has no server's secret, so it listens with the
        clients' own pair."""
        return Keys(self.client_public, self.client_public, self.client_secret, self.client_secret)

    def text(self) -> str:
        """As JSON, for ``SFAPP_STREAM_KEYS``."""
        return msgspec.json.encode(self).decode()

    def save(self, path: Path) -> None:
        """Write them to a new file that only its owner reads.

        Raises:
            StreamError: the file exists already, or cannot be written.
        """
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(self.text())
        except OSError as error:
            raise StreamError(f"the keys cannot be written to {str(path)!r}: {error.strerror}") from error

    @classmethod
    def parse(cls, text: str | bytes) -> Keys:
        """Keys from JSON.

        Raises:
            StreamError: it holds no keys; the message does not repeat what it holds.
        """
        try:
            keys = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeError):
            raise StreamError("the stream's keys are not as `sfapp` writes them") from None
        needed = (keys.server_public, keys.client_public, keys.client_secret)
        if any(len(key) != 40 for key in needed) or len(keys.server_secret) not in (0, 40):
            raise StreamError("the stream's keys are not as `sfapp` writes them: each has 40 characters")
        return keys

    @classmethod
    def load(cls, path: Path) -> Keys:
        """Keys from a file.

        Raises:
            StreamError: it cannot be read, holds no keys, or others than its owner may read it.
        """
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(10_000)
        except OSError as error:
            raise StreamError(f"no keys in {str(path)!r}: {error.strerror}") from error
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise StreamError(f"others may read the keys in {str(path)!r}: chmod 600 it, and make new ones")
        return cls.parse(text)

    @classmethod
    def from_environment(cls) -> Keys | None:
        """The session's keys, None where the environment names none.

        Raises:
            StreamError: they cannot be used.
        """
        text = os.environ.get(KEYS_VARIABLE, "")
        if not text:
            return None
        return cls.parse(text) if text.lstrip().startswith("{") else cls.load(Path(text))


class _AllowList:
    """Admits one key, for ZAP."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def callback(self, domain: str, key: bytes) -> bool:
        return key == self._key


def is_local(endpoint: str) -> bool:
    """Whether nothing but this machine can reach the endpoint."""
    scheme, _, address = endpoint.partition("://")
    if scheme in ("ipc", "inproc"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, an interface or `*`: reaches further for all we know
        return False


def check_endpoint(endpoint: str, keys: Keys | None) -> None:
    """Whether an endpoint may be used as it is.

    Raises:
        StreamError: it is none, or leaves this machine without keys.
    """
    if endpoint.partition("://")[0] not in ("tcp", "ipc", "inproc"):
        raise StreamError(f"{endpoint!r} is no address of a stream: write tcp://HOST:PORT")
    if keys is None and not is_local(endpoint):
        raise StreamError(
            f"{endpoint!r} can be reached from other machines: without keys only 127.0.0.1 may be used. "
            f"Make keys (`sfapp aggregate --make-keys`), and set {KEYS_VARIABLE} on every node"
        )


def bind(socket: zmq.Socket[bytes], endpoint: str, keys: Keys | None) -> str:
    """Bind a socket; with keys, only for who has the client's. Returns the endpoint with the port it got.

    Raises:
        StreamError: the endpoint leaves this machine without keys, or is taken, or the keys are a client's.
    """
    check_endpoint(endpoint, keys)
    _prepare(socket)
    if keys is not None:
        if not keys.server_secret:
            raise StreamError("these keys are for connecting only: the server's secret is not among them")
        socket.curve_server = True
        socket.curve_publickey = keys.server_public.encode()
        socket.curve_secretkey = keys.server_secret.encode()
        socket.zap_domain = _DOMAIN.encode()
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise StreamError(f"{endpoint} cannot be listened on: {error.strerror}") from error
    return socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")


def connect(socket: zmq.Socket[bytes], endpoint: str, keys: Keys | None) -> None:
    """Connect a socket, to be connected again for as long as it lives: after 0.1 s, then up to 30 s.

    Raises:
        StreamError: the endpoint is none, or leaves this machine without keys.
    """
    check_endpoint(endpoint, keys)
    _prepare(socket)
    socket.reconnect_ivl = 100
    socket.reconnect_ivl_max = 30_000
    if keys is not None:
        socket.curve_serverkey = keys.server_public.encode()
        socket.curve_publickey = keys.client_public.encode()
        socket.curve_secretkey = keys.client_secret.encode()
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        raise StreamError(f"{endpoint} cannot be connected to: {error.strerror}") from error


@contextmanager
def authenticating(context: zmq.Context[Any], keys: Keys | None) -> Iterator[None]:
    """While this lasts, bound sockets of the context admit the session's clients and nobody else."""
    if keys is None:
        yield
        return
    gate = ThreadAuthenticator(context)
    gate.start()
    try:
        gate.configure_curve_callback(_DOMAIN, _AllowList(keys.client_public))
        yield
    finally:
        gate.stop()


def _prepare(socket: zmq.Socket[bytes]) -> None:
    socket.linger = 0
    socket.maxmsgsize = _LIMIT_BYTES
    socket.heartbeat_ivl = 5_000  # a peer that was cut off without a word is noticed
    socket.heartbeat_timeout = 15_000
