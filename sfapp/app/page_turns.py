"""Build pages a few at a time, so that the event loop answers others in between.

Each page takes the event loop for about 50 ms. Of 300 that were requested at once, every part would come
before the answer to a later request, also if their clients had left meanwhile.
"""

from __future__ import annotations

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sfapp.app.in_turn import HELD_S, WAIT_S, InTurn

_BUSY = PlainTextResponse("sfapp builds other pages; try again later\n", 503)

_NOT_PAGES = "/_nicegui"
"""Beginning of the addresses of NiceGUI's files, uploads and websocket."""


class PageTurns(InTurn):
    """Middleware around NiceGUI.

    Args:
        app: the application that builds pages.
        wait_s, held_s: as ``WAIT_S`` and ``HELD_S``.
    """

    def __init__(self, app: ASGIApp, *, wait_s: float = WAIT_S, held_s: float = HELD_S) -> None:
        super().__init__(app, _BUSY, wait_s=wait_s, held_s=held_s)

    def takes_turn(self, scope: Scope) -> bool:
        """Return whether a page is requested."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return False
        path: str = scope["path"]
        return not path.removeprefix(scope.get("root_path", "")).startswith(_NOT_PAGES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["endpoint"] = self.app  # By which NiceGUI tells an address without a page.
        await super().__call__(scope, receive, send)
