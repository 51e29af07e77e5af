"""Send one HTTP request: bounded in time and in the size of the answer, however slowly the server sends.

Redirects are not followed, and proxies of the environment are not used.
"""

from __future__ import annotations

import base64
import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

_READ_BYTES = 64 << 10

HTTP_FAULTS = (OSError, ValueError, http.client.HTTPException)
"""Errors of a request that gets no complete answer."""


@dataclass(frozen=True, slots=True)
class HttpServer:
    """Address of a server.

    Attributes:
        place: the address without path and secrets, for messages.
        login: the ``Authorization`` of the address's user and password (RFC 7617); None without a user.
    """

    host: str
    port: int | None
    is_secure: bool
    place: str
    login: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, address: str) -> HttpServer:
        """Parse an address.

        Raises:
            ValueError: it is no HTTP address.
        """
        parts = urlsplit(address)
        port = parts.port
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it does not begin with http://HOST or https://HOST")
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        login = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            login = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return cls(parts.hostname, port, parts.scheme == "https", place, login)

    def exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        seconds: float,
        most: int,
    ) -> tuple[int, bytes]:
        """Return the status and the body of the answer; of a longer body one byte more than ``most``.

        Args:
            headers: one of the name ``Authorization`` takes the place of the address's login.
            seconds: time limit of the whole exchange.

        Raises:
            OSError, ValueError, HTTPException: there is no complete answer in time (``HTTP_FAULTS``).
        """
        kind = http.client.HTTPSConnection if self.is_secure else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=seconds)
        login = {} if self.login is None else {"Authorization": self.login}
        try:
            connection.connect()
            with cut_off(connection.sock, seconds):
                connection.request(method, path, body, {**login, **headers})
                with connection.getresponse() as answer:
                    return answer.status, _body(answer, most + 1)
        finally:
            connection.close()


def _body(answer: http.client.HTTPResponse, most: int) -> bytes:
    """Return the first bytes of a body. ``HTTPResponse.read`` takes a chunk of -1 bytes for all that follows,
    without any bound."""
    parts: list[bytes] = []
    left = most
    while left and (part := answer.read1(min(left, _READ_BYTES))):
        parts.append(part[:left])
        left -= len(parts[-1])
    return b"".join(parts)


@contextmanager
def cut_off(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Shut a connection down once the time is over; the time limit of a socket is that of each read only.

    Raises:
        TimeoutError: the time was over.
    """
    is_over = threading.Event()

    def shut_down() -> None:
        is_over.set()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, shut_down)
    timer.daemon = True
    timer.start()
    late = f"no complete answer within {seconds:g} s"
    try:
        yield
    except HTTP_FAULTS as error:
        if is_over.is_set():
            raise TimeoutError(late) from error
        raise
    finally:
        timer.cancel()
    if is_over.is_set():
        raise TimeoutError(late)
