"""Listen on an address: check who can reach it, bind it, and serve an application until a signal."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from sfapp.app.http_protocol import BoundedHttpProtocol
from sfapp.app.security import is_loopback
from sfapp.app.stopping import PunctualServer
from sfapp.app.token_gate import MIN_TOKEN
from sfapp.app.websocket_protocol import BoundedWebSocketProtocol
from sfapp.errors import ServeError
from sfapp.process_limits import allow_open_files

MAX_WEBSOCKET_MESSAGE = 4 << 20
"""Size limit of a message from a page, in bytes; a selection of plotted points is the largest."""


def check_paths(paths: Iterable[Path]) -> None:
    """Check the folders and files of packets.

    Raises:
        ServeError: one does not exist.
    """
    for path in paths:
        if not path.exists():
            raise ServeError(f"no such file or folder: {path}")


def check_token(token: str | None) -> None:
    """Check a token, if there is one.

    Raises:
        ServeError: it could be guessed, or is no text that can be sent.
    """
    if token is None:
        return
    if len(token.strip()) < MIN_TOKEN:
        raise ServeError(
            f"the token has fewer than {MIN_TOKEN} characters, so that it could be guessed; make one with "
            "`openssl rand -hex 16`"
        )
    try:
        token.encode()
    except UnicodeEncodeError:  # An environment variable may hold any bytes.
        raise ServeError(
            "the token is no text in UTF-8, so that it cannot be sent; make one with `openssl rand -hex 16`"
        ) from None


def check_reach(host: str, port: int, token: str | None, option: str) -> None:
    """Check that other machines cannot reach an address without a token.

    Args:
        option: the option that sets the address, with its value, for the message.

    Raises:
        ServeError: they can.
    """
    if not is_loopback(host) and token is None:
        raise ServeError(
            f"{option} can be reached from other machines: protect it with --token-file FILE or "
            "SFAPP_TOKEN, "
            f"or keep to 127.0.0.1 and forward the port (ssh -L {port}:127.0.0.1:{port})"
        )


def bind(host: str, port: int, option: str = "--port") -> socket.socket:
    """Return a listening socket, before any slow start-up work.

    Args:
        option: sets the port, for the message.

    Raises:
        ServeError: the address is in use, or is not this machine's.
    """
    name = host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ServeError(f"cannot listen on {host}: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ServeError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another with {option}"
        ) from None
    return listener


def serve_until_signal(
    application: ASGIApp, listener: socket.socket, *, close: Callable[[], None], abandon: Callable[[], None]
) -> None:
    """Serve an application until SIGINT or SIGTERM, then stop.

    Args:
        application: behind its access control.
        close: closes what must be closed even if stopping takes too long; it may block.
        abandon: called from another thread in that case; it ends the process.
    """
    config = uvicorn.Config(
        application,
        http=BoundedHttpProtocol,
        log_config=None,  # as all other messages are written
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws=BoundedWebSocketProtocol,
        ws_max_size=MAX_WEBSOCKET_MESSAGE,
        # Every page compresses its own messages, which for plots costs more than anything else there.
        ws_per_message_deflate=False,
        lifespan="on",
        timeout_graceful_shutdown=2,
    )
    allow_open_files()  # Clients that say nothing would keep packets from being read.
    gc.freeze()  # what was loaded stays, so looking for garbage takes milliseconds instead of tenths
    server = PunctualServer(config, close=close, abandon=abandon)
    with _stopped_by_signals(server):
        server.run(sockets=[listener])


@contextmanager
def _stopped_by_signals(server: PunctualServer) -> Iterator[None]:
    """Have signals stop the server also before uvicorn has its own handlers. It raises the signal again after
    it has stopped, which ends nothing here: a requested stop is no failure."""
    before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
