"""The server's HTTP protocol: how much a client may send before it is answered, and how slowly."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from sfapp.app.http_protocol import MAX_HEAD, MAX_PIPELINED, BoundedHttpProtocol

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
UPGRADE = b"Upgrade: websocket\r\nConnection: upgrade\r\n"
WEBSOCKET = (
    GET + UPGRADE + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class HastyProtocol(BoundedHttpProtocol):
    """The protocol with deadlines that a test can wait for."""

    head_s = body_s = stall_s = 0.4


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the length of the body; for ``/large``, with more than the client's socket holds; for
    ``/waits``, not before the client has left."""
    if scope["path"] == "/waits":
        await receive()
        scope["state"]["noticed"].put_nowait("began")
        while (await receive())["type"] != "http.disconnect":
            pass
        scope["state"]["noticed"].put_nowait("left")
        return
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    content = bytes(32 << 20) if scope["path"] == "/large" else str(size).encode()
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", str(len(content)).encode())]})  # fmt: skip
    await send({"type": "http.response.body", "body": content})


@pytest.fixture
async def state() -> ServerState:
    """The connections of the server."""
    return ServerState()


@pytest.fixture
async def noticed() -> asyncio.Queue[str]:
    """What the answer to ``/waits`` has noticed."""
    return asyncio.Queue()


@pytest.fixture
async def port(state: ServerState, noticed: asyncio.Queue[str]) -> AsyncIterator[int]:
    """The port of a server with the protocol."""
    config = uvicorn.Config(echo, http=HastyProtocol, lifespan="off", log_level="critical")
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: HastyProtocol(config, state, {"noticed": noticed}), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1]
    server.close()
    for connection in list(state.connections):
        connection.transport.abort()


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual deadline of headers: on busy cores, large ones take longer than a test can wait for it."""
    monkeypatch.setattr(HastyProtocol, "head_s", BoundedHttpProtocol.head_s)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(port: int, *parts: bytes) -> bytes:
    """All that the server answers until it closes the connection, a little time between the parts."""
    async with connected(port) as (reader, writer):
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.02)
        async with asyncio.timeout(5):
            return await reader.read()


@pytest.mark.usefixtures("unhurried")
async def test_headers_up_to_the_bound_are_read(port: int) -> None:
    value = b"x" * (MAX_HEAD - 200)
    found = await answer(port, GET + b"X: " + value + b"\r\nConnection: close\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200")


def many_headers(each: int) -> bytes:
    """Headers of twice the bound together, each of this length."""
    return b"".join(b"x: " + b"y" * each + b"\r\n" for _ in range(2 * MAX_HEAD // each))


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(GET + b"X: " + b"x" * MAX_HEAD + b"\r\n\r\n", id="one header"),
        pytest.param(GET + many_headers(1000) + b"\r\n", id="many headers"),
        pytest.param(GET + many_headers(1) + b"\r\n", id="tiny headers"),
        pytest.param(GET + b"x" * 400_000, id="a name without end"),
        pytest.param(GET + b"X:" + b" " * 400_000, id="a value of spaces without end"),
        pytest.param(b"GET /" + b"x" * MAX_HEAD + b" HTTP/1.1\r\nHost: a\r\n\r\n", id="the address"),
        pytest.param(GET + UPGRADE + b"X: " + b"x" * MAX_HEAD + b"\r\n\r\n", id="of a websocket"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unhurried")
async def test_larger_headers_are_refused(port: int, head: bytes) -> None:
    found = await answer(port, *(head[at : at + 50_000] for at in range(0, len(head), 50_000)))
    assert found.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert found.endswith(f"larger than {MAX_HEAD} bytes\n".encode())


@pytest.mark.usefixtures("unhurried")
async def test_larger_headers_of_a_second_request_are_refused(port: int) -> None:
    found = await answer(port, GET + b"\r\n", GET + b"X: " + b"x" * MAX_HEAD + b"\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200")
    assert found.count(b"HTTP/1.1 431") == 1


async def test_trailers_count_as_headers(port: int) -> None:
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
    found = await answer(port, chunked + many_headers(1000) + b"\r\n")
    assert found.startswith(b"HTTP/1.1 431")


async def test_an_endless_chunk_extension_is_refused(port: int) -> None:
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n1;"
    found = await answer(port, chunked, *[b"x" * 50_000] * 4)
    assert found.startswith(b"HTTP/1.1 431")


async def test_what_is_no_http_is_refused(port: int) -> None:
    assert (await answer(port, b"\x16\x03\x01 hello")).startswith(b"HTTP/1.1 400")


async def test_a_connection_without_a_request_is_closed(port: int) -> None:
    assert await answer(port) == b""


@pytest.mark.parametrize("part", [GET, b"G", b"\r\n" * 10])
async def test_a_request_that_does_not_end_its_headers_is_refused(port: int, part: bytes) -> None:
    found = await answer(port, part)
    assert found == b"" if part.isspace() else found.startswith(b"HTTP/1.1 408")


async def test_a_trickle_of_headers_is_refused(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(GET)
        began = asyncio.get_running_loop().time()
        trickle = asyncio.create_task(_trickle(writer, lambda: b"x: y\r\n"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        assert asyncio.get_running_loop().time() - began < 2
        trickle.cancel()


async def test_a_trickle_of_a_body_is_refused(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(POST + b"Content-Length: 1000000\r\n\r\n")
        trickle = asyncio.create_task(_trickle(writer, lambda: b"x"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        trickle.cancel()


async def _trickle(writer: asyncio.StreamWriter, part: Callable[[], bytes]) -> None:
    while True:
        writer.write(part())
        await asyncio.sleep(0.05)


async def test_a_large_body_may_take_longer(port: int) -> None:
    pieces = [b"x" * 60_000] * 20
    head = POST + b"Connection: close\r\nContent-Length: 1200000\r\n\r\n"
    async with connected(port) as (reader, writer):
        writer.write(head)
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.04)
        assert (await reader.read()).endswith(b"1200000")


async def test_a_second_request_has_a_deadline_of_its_own(port: int) -> None:
    async with connected(port) as (reader, writer):
        for _ in range(4):
            writer.write(GET + b"\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.readexactly(1)
            await asyncio.sleep(0.2)
        writer.write(GET)
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")


async def test_requests_sent_before_the_answer_to_the_first_are_answered_in_order(port: int) -> None:
    lengths = range(MAX_PIPELINED)
    posts = [POST + b"Content-Length: %d\r\n\r\n" % each + b"x" * each for each in lengths]
    found = await answer(port, b"".join(posts) + GET + b"Connection: close\r\n\r\n")
    bodies = [each.partition(b"\r\n\r\n")[2] for each in found.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert bodies == [b"%d" % each for each in (*lengths, 0)]


async def test_requests_without_end_are_not_read_ahead_of_their_answers(
    port: int, state: ServerState
) -> None:
    async with connected(port) as (reader, writer):
        # When a client sends requests as fast as the server takes them, and reads the answers
        reading = asyncio.create_task(reader.read())
        most = 0
        with suppress(ConnectionError):
            async with asyncio.timeout(5):
                while state.connections or not most:
                    writer.write((GET + b"\r\n") * 200)
                    await writer.drain()
                    await asyncio.sleep(0.01)
                    for each in state.connections:
                        assert isinstance(each, BoundedHttpProtocol)
                        most = max(most, len(each.pipeline))
        # Then few of them are kept, and the client is cut off
        with suppress(ConnectionError):
            await asyncio.wait_for(reading, 5)
        assert most <= MAX_PIPELINED
        assert not state.connections


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_client_that_leaves_ends_the_answer_before_those_it_also_asked_for(
    port: int, noticed: asyncio.Queue[str], is_refused: bool
) -> None:
    async with connected(port) as (_, writer):
        writer.write(b"GET /waits HTTP/1.1\r\nHost: a\r\n\r\n" + GET + b"\r\n")
        assert await asyncio.wait_for(noticed.get(), 5) == "began"
        if is_refused:
            writer.write(b"\x16\x03\x01 hello")
            assert await asyncio.wait_for(noticed.get(), 5) == "left"
    if not is_refused:
        assert await asyncio.wait_for(noticed.get(), 5) == "left"


async def test_a_websocket_asked_for_before_an_earlier_answer_is_complete_closes_the_connection(
    port: int, noticed: asyncio.Queue[str]
) -> None:
    # The earlier answer would be written into the websocket, and not wait for a client that does not read it
    async with connected(port) as (reader, writer):
        writer.write(b"GET /waits HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await asyncio.wait_for(noticed.get(), 5) == "began"
        writer.write(WEBSOCKET)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        assert await asyncio.wait_for(noticed.get(), 5) == "left"


async def test_a_client_that_reads_nothing_is_dropped(port: int) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(2)
        received = 0
        client.settimeout(1)
        try:
            while part := client.recv(1 << 20):
                received += len(part)
        except ConnectionResetError:
            pass
    assert received < 32 << 20


@pytest.mark.quiet
async def test_a_client_that_reads_slowly_is_not_dropped(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        received = 0
        while part := await reader.read(2 << 20):
            received += len(part)
            await asyncio.sleep(0.04)
    assert received > 32 << 20
