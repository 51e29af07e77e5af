"""What a connection of a page keeps for its browser, by long polling and over a websocket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from engineio import AsyncServer, packet

from sfapp.app import page_sockets
from sfapp.app.page_sockets import PageSocket, UnreadPackets
from tests.app.served import Served, served

POLLING = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> PageSocket:
    """A connection of which 10,000 bytes may wait."""
    monkeypatch.setattr(page_sockets, "MAX_UNREAD", 10_000)
    engine = AsyncServer(async_mode="asgi")
    engine.create_queue = UnreadPackets
    return PageSocket(engine, "sid")


async def test_packets_wait_for_a_browser_that_reads_them(own: PageSocket) -> None:
    for _ in range(20):
        await own.send(packet.Packet(packet.MESSAGE, "x" * 4000))
        assert [sent.data for sent in await own.poll()] == ["x" * 4000]
    assert own.queue.size == 0
    assert not own.closed


@pytest.mark.parametrize("data", ["x" * 4000, ""])
async def test_a_connection_is_closed_once_its_browser_reads_nothing(own: PageSocket, data: str) -> None:
    most = 22
    while not own.closed:
        await own.send(packet.Packet(packet.MESSAGE, data))
        most -= 1
    assert most >= 0
    assert own.queue.size < 1000
    assert await own.poll() == []


async def test_a_message_of_any_size_is_sent(own: PageSocket) -> None:
    await own.send(packet.Packet(packet.MESSAGE, "x" * 100_000))
    assert not own.closed


@pytest.fixture
def server(recorded: Path, tmp_path: Path) -> Iterator[Served]:
    with served(recorded, "--memory", cwd=tmp_path) as server:
        yield server


def polled(server: Served) -> str:
    """Begin a connection by long polling; return its address."""
    opened = httpx.get(f"http://127.0.0.1:{server.port}{POLLING}").text
    return f"http://127.0.0.1:{server.port}{POLLING}&sid={json.loads(opened[1:])['sid']}"


def test_a_page_can_poll(server: Served) -> None:
    address = polled(server)
    assert httpx.post(address, content="40").text == "OK"
    assert httpx.get(address).text.startswith('40{"sid"')
    _, written = server.stop()
    assert written == ""


def test_a_request_that_no_page_sends_is_one_line_of_the_log(server: Served) -> None:
    address = polled(server)
    bodies = ("x", "\x1e", "d=", "d=x", "b!", b"\xff", "\x1e".join("3" * 17), "9")
    for body in bodies:
        assert httpx.post(address, content=body).text == "OK"
    _, written = server.stop()
    assert len(written.splitlines()) == len(bodies)
    assert written.count("a message that no page sends was dropped") == len(bodies)


def test_a_request_that_is_too_long_ends_its_connection_at_once(server: Served) -> None:
    address = polled(server)
    assert httpx.post(address, content="4" * 1_040_000, timeout=5).status_code == 400
    assert httpx.get(address).status_code == 400


def test_a_client_that_leaves_within_its_request_is_no_error(server: Served) -> None:
    head = f"POST {POLLING} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 9\r\n\r\n"
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(head.encode())
    httpx.get(f"http://127.0.0.1:{server.port}/windows.json")
    _, written = server.stop()
    assert written == ""
