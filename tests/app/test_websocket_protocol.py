"""The server's websocket protocol: what a client that does not read can make it keep."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from sfapp.app.http_protocol import BoundedHttpProtocol
from sfapp.app.websocket_protocol import BoundedWebSocketProtocol

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
PING = b"\x89\xfd" + bytes(4) + b"x" * 125
PONG = b"\x8a\x7d" + b"x" * 125


class HastyWebSocketProtocol(BoundedWebSocketProtocol):
    """The protocol with a deadline that a test can wait for."""

    stall_s = 0.4


async def accept(_: Scope, receive: Receive, send: Send) -> None:
    """Accept a websocket, and ignore its messages."""
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


@pytest.fixture
async def state() -> ServerState:
    """The connections of the server."""
    return ServerState()


@pytest.fixture
async def port(state: ServerState) -> AsyncIterator[int]:
    """The port of a server with the protocol, whose connections hold little in the sockets."""
    config = uvicorn.Config(accept, ws=HastyWebSocketProtocol, lifespan="off", log_level="critical")
    config.load()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedHttpProtocol(config, state, {}), sock=listener)
    yield listener.getsockname()[1]
    server.close()
    for connection in list(state.connections):
        connection.transport.abort()


async def opened(port: int) -> socket.socket:
    """A websocket whose client has read no more than the server's acceptance."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, UPGRADE)
    assert (await loop.sock_recv(client, 4096)).startswith(b"HTTP/1.1 101")
    return client


@pytest.mark.parametrize(
    "headers",
    [
        b"Host: a\r\nSec-WebSocket-Protocol: \xff",
        b"Host: a\r\nConnection: \xff",
        b"Host: xn--\xff",
        b"Host: xn--99",
    ],
)
async def test_a_handshake_that_cannot_be_decoded_is_refused(
    port: int, state: ServerState, headers: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(UPGRADE.replace(b"Host: a", headers))
    assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()
    async with asyncio.timeout(5):
        while state.connections:
            await asyncio.sleep(0.01)


async def test_every_ping_of_a_client_that_reads_is_answered(port: int) -> None:
    with await opened(port) as client:
        for _ in range(1000):
            await asyncio.get_running_loop().sock_sendall(client, PING)
            received = b""
            while len(received) < len(PONG):
                received += await asyncio.get_running_loop().sock_recv(client, len(PONG) - len(received))
            assert received == PONG


async def test_pings_of_a_client_that_reads_nothing_take_bounded_memory_until_it_is_dropped(
    port: int, state: ServerState
) -> None:
    with await opened(port) as client:
        # When a client sends pings without reading
        (connection,) = state.connections
        largest = 0
        with suppress(ConnectionError):
            for _ in range(1000):
                await asyncio.get_running_loop().sock_sendall(client, PING * 1000)
                largest = max(largest, connection.transport.get_write_buffer_size())
                await asyncio.sleep(0.01)
        # Then little is kept for it, and its connection is closed
        assert 0 < largest < 256 << 10
        assert not state.connections


@pytest.mark.parametrize(
    "last", [pytest.param(b"\x88\x80" + bytes(4), id="closes"), pytest.param(b"\xff" * 8, id="no frame")]
)
async def test_a_client_that_closes_without_reading_is_dropped(
    port: int, state: ServerState, last: bytes
) -> None:
    with await opened(port) as client:
        # Given answers that the client does not read, fewer than have the server stop
        (connection,) = state.connections
        loop = asyncio.get_running_loop()
        while not connection.transport.get_write_buffer_size():
            await loop.sock_sendall(client, PING * 50)
            await asyncio.sleep(0.01)
        # When it ends the connection in the protocol's words, or none of them
        await loop.sock_sendall(client, last)
        # Then the server does not wait for the rest to be read
        async with asyncio.timeout(5):
            while state.connections:
                await asyncio.sleep(0.05)
