"""Downloads that are made while they are sent: errors come first, a client that leaves ends the work, and
clients that read slowly keep no other from theirs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import Message

from sfapp.app.downloads import AT_ONCE, SLOW_S, MadeDownload, download_turns
from sfapp.app.turns import Turns
from sfapp.errors import TraceError

SCOPE = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "method": "GET", "headers": []}


def download(
    parts: Callable[[], Iterator[bytes]], turns: Turns | None = None, slow_s: float = SLOW_S
) -> MadeDownload:
    headers = {"X-Name": "a.zip"}
    return MadeDownload(
        parts, turns or download_turns(), media_type="application/zip", headers=headers, slow_s=slow_s
    )


async def answer(response: MadeDownload, leaves_after: int | None = None) -> list[Message]:
    """What is sent to a client, which leaves after so many messages."""
    sent: list[Message] = []
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent) == leaves_after:
            left.set()
            await asyncio.sleep(0.05)

    await response(SCOPE, receive, send)
    return sent


async def receive_nothing() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


@asynccontextmanager
async def clients_that_read_nothing(
    turns: Turns, count: int, slow_s: float = SLOW_S
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """So many downloads of clients that stay and take nothing of the first part."""
    reached = asyncio.Semaphore(0)

    async def send(message: Message) -> None:
        if message.get("body"):
            reached.release()
            await asyncio.Event().wait()

    clients = [
        asyncio.ensure_future(download(lambda: iter([b"part"]), turns, slow_s)(SCOPE, receive_nothing, send))
        for _ in range(count)
    ]
    for _ in clients:
        await reached.acquire()
    try:
        yield clients
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def test_the_parts_are_sent_in_order_with_the_headers_first() -> None:
    sent = await answer(download(lambda: iter([b"one", b"two"])))
    assert sent[0]["status"] == 200
    assert (b"x-name", b"a.zip") in sent[0]["headers"]
    assert b"".join(message.get("body", b"") for message in sent[1:]) == b"onetwo"


async def test_an_error_of_the_preparation_is_raised_before_anything_is_sent() -> None:
    def refuse() -> Iterator[bytes]:
        raise TraceError("too large")

    with pytest.raises(TraceError, match="too large"):
        await answer(download(refuse))


async def test_no_further_part_is_made_for_a_client_that_left() -> None:
    made = []

    def parts() -> Iterator[bytes]:
        for number in range(1000):
            made.append(number)
            yield b"part"

    await answer(download(parts), leaves_after=3)
    assert len(made) < 10


async def test_so_many_are_made_at_once_and_the_others_wait() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def parts() -> Iterator[bytes]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        for _ in range(20):
            yield b"part"
        with lock:
            running -= 1

    turns = download_turns()
    await asyncio.gather(*(answer(download(parts, turns)) for _ in range(8)))
    assert most == AT_ONCE


async def test_clients_that_read_nothing_lose_their_turn_to_one_that_waits() -> None:
    turns = download_turns()
    async with clients_that_read_nothing(turns, AT_ONCE, slow_s=0.1) as slow, asyncio.timeout(10):
        await asyncio.sleep(0.5)
        assert not any(client.done() for client in slow)  # No other client waits.
        sent = await answer(download(lambda: iter([b"whole"]), turns))
        assert sent[0]["status"] == 200
        assert any(client.done() for client in slow)


async def test_a_client_is_refused_if_no_download_ends_in_time() -> None:
    turns = download_turns(wait_s=0.1)
    async with clients_that_read_nothing(turns, AT_ONCE), asyncio.timeout(10):
        sent = await answer(download(lambda: iter([b"whole"]), turns))
    assert sent[0]["status"] == 503
    assert b"try again" in sent[1]["body"]


async def test_nothing_is_prepared_for_a_client_that_left_while_it_waited() -> None:
    turns, prepared = download_turns(), False

    def parts() -> Iterator[bytes]:
        nonlocal prepared
        prepared = True
        return iter([b"part"])

    async def left() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        pass

    async with clients_that_read_nothing(turns, AT_ONCE), asyncio.timeout(10):
        await download(parts, turns)(SCOPE, left, send)
    assert not prepared
    assert (await answer(download(parts, turns)))[0]["status"] == 200  # no turn was lost
