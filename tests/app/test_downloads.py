"""Downloads that are made while they are sent: errors come first, a client that leaves ends the work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from starlette.types import Message

from sfapp.app.downloads import AT_ONCE, MadeDownload
from sfapp.errors import TraceError


def download(parts: Callable[[], Iterator[bytes]], limiter: asyncio.Semaphore | None = None) -> MadeDownload:
    limiter = limiter or asyncio.Semaphore(AT_ONCE)
    return MadeDownload(parts, limiter, media_type="application/zip", headers={"X-Name": "a.zip"})


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

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": "GET",
        "headers": [],
    }
    await response(scope, receive, send)
    return sent


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

    limiter = asyncio.Semaphore(AT_ONCE)
    await asyncio.gather(*(answer(download(parts, limiter)) for _ in range(8)))
    assert most == AT_ONCE
