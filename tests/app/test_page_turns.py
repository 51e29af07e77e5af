"""Pages are built a few at a time: however many are requested at once, others are answered meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from sfapp.app.in_turn import AT_ONCE, InTurn
from sfapp.app.page_turns import PageTurns
from sfapp.assistants.http_transport import CallTurns
from tests.app.served import served


class Builder:
    """An application that builds each page until ``end`` is set; what it builds, and how many at once."""

    def __init__(self) -> None:
        self.built: list[str] = []
        self.present = self.most = 0
        self.end = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.built.append(scope["path"])
        self.present += 1
        self.most = max(self.most, self.present)
        try:
            assert (await receive())["type"] == "http.request"
            await self.end.wait()
        finally:
            self.present -= 1
        await PlainTextResponse("built")(scope, receive, send)


class Visitor:
    """A client of the application."""

    def __init__(self, turns: InTurn, path: str) -> None:
        self.status: int | None = None
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        self._sent.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        scope = {"type": "http", "method": "GET", "path": path, "headers": [], "root_path": ""}
        self.answer = asyncio.ensure_future(turns(scope, self._sent.get, self._take))

    def leave(self) -> None:
        self._sent.put_nowait({"type": "http.disconnect"})

    async def _take(self, message: Message) -> None:
        self.status = message.get("status", self.status)


async def settle(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_few_pages_are_built_at_once_and_all_in_the_end() -> None:
    builder = Builder()
    turns = PageTurns(builder)
    visitors = [Visitor(turns, f"/{number}") for number in range(20)]
    await settle(lambda: builder.present == AT_ONCE)
    other = Visitor(turns, "/_nicegui/file.js")
    await settle(lambda: "/_nicegui/file.js" in builder.built)
    builder.end.set()
    await asyncio.gather(*(visitor.answer for visitor in [*visitors, other]))
    assert {visitor.status for visitor in visitors} == {200}
    assert builder.most == AT_ONCE + 1  # with the file


@pytest.mark.parametrize("kind", [PageTurns, CallTurns], ids=["pages", "calls of assistants"])
async def test_nothing_is_made_for_a_client_that_has_left(kind: Callable[[Builder], InTurn]) -> None:
    builder = Builder()
    turns = kind(builder)
    visitors = [Visitor(turns, f"/{number}") for number in range(20)]
    await settle(lambda: builder.present == AT_ONCE)
    for visitor in visitors[AT_ONCE:-1]:
        visitor.leave()
    await settle(lambda: all(visitor.answer.done() for visitor in visitors[AT_ONCE:-1]))
    builder.end.set()
    await visitors[-1].answer
    assert builder.built == [*(f"/{number}" for number in range(AT_ONCE)), "/19"]


async def test_a_client_that_waits_for_long_is_refused_and_later_ones_are_not() -> None:
    builder = Builder()
    turns = PageTurns(builder, wait_s=0.1)
    visitors = [Visitor(turns, f"/{number}") for number in range(AT_ONCE + 3)]
    await asyncio.gather(*(visitor.answer for visitor in visitors[AT_ONCE:]))
    assert [visitor.status for visitor in visitors[AT_ONCE:]] == [503] * 3
    builder.end.set()
    await asyncio.gather(*(visitor.answer for visitor in visitors))
    later = Visitor(turns, "/later")
    await later.answer
    assert later.status == 200


async def test_pages_that_wait_for_something_slow_keep_no_other_from_being_built() -> None:
    builder = Builder()
    turns = PageTurns(builder, held_s=0.1)
    visitors = [Visitor(turns, f"/{number}") for number in range(3 * AT_ONCE)]
    await settle(lambda: builder.present == len(visitors))
    builder.end.set()
    await asyncio.gather(*(visitor.answer for visitor in visitors))
    assert {visitor.status for visitor in visitors} == {200}


def test_an_address_without_a_page_has_the_page_not_found_or_an_error_document(tmp_path: Path) -> None:
    with served(tmp_path, cwd=tmp_path) as server:
        page, document = httpx.get(f"{server.url}nothing"), httpx.get(f"{server.url}nothing.json")
    assert page.status_code == document.status_code == 404
    assert "There is no page at this address" in page.text
    assert document.json() == {"error": "There is no page at this address."}


@pytest.mark.quiet
@pytest.mark.parametrize("stays", [True, False], ids=["they wait", "they leave"])
def test_the_state_is_answered_while_many_pages_are_requested(tmp_path: Path, stays: bool) -> None:
    with served(tmp_path, cwd=tmp_path) as server, ExitStack() as clients:
        httpx.get(f"{server.url}windows")
        for _ in range(200):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.sendall(f"GET /windows HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
            if not stays:
                client.close()
        began = time.monotonic()
        assert httpx.get(f"{server.url}healthz", timeout=60).status_code == 200
        assert time.monotonic() - began < 5.0
