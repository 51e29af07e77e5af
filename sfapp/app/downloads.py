"""Downloads that are made while they are sent: a few at a time, and no longer than their client stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

AT_ONCE = 2
"""Downloads that are made at the same time; more wait for their turn. Each takes a core and up to 500 MB."""


class MadeDownload(Response):
    """A file whose parts are made on a thread, one after the other, while the client reads them.

    Once the client has left, no further part is made.

    Args:
        parts: prepares the download on a thread and returns its parts; an error of it is answered instead.
        limiter: shared by all downloads.
    """

    def __init__(
        self,
        parts: Callable[[], Iterator[bytes]],
        limiter: asyncio.Semaphore,
        *,
        media_type: str,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(media_type=media_type, headers=headers)
        self._parts = parts
        self._limiter = limiter
        self._sent_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._limiter:
            parts = await run_in_threadpool(self._parts)
            answer = StreamingResponse(parts, media_type=self.media_type, headers=self._sent_headers)
            await answer(scope, receive, send)
