"""Create downloads while they are sent, a few at a time, and stop when their client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

AT_ONCE = 2
"""Maximum number of simultaneous downloads; others wait. Each takes a core and up to 500 MB."""


class MadeDownload(Response):
    """Response with a file whose parts are created on a thread while the client reads them.

    Once the client has disconnected, no further part is created.

    Args:
        parts: prepares the download on a thread and returns its parts; its error becomes the response.
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
