"""Answer HEAD as GET on the data routes, and methods that a route does not have with 405."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send


class MethodsMiddleware:
    """Middleware that checks methods before routing, which would pass a wrong one on to the pages and return
    404.

    Args:
        app: the application inside.
        routes: the data routes.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self.app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # the server sends no body for what it received as HEAD
        elif scope["type"] == "http" and scope["method"] != "GET":
            allowed = self._allowed(scope)
            if allowed and scope["method"] not in allowed:
                shown = ", ".join(sorted(allowed))
                answer = PlainTextResponse(f"this address has {shown} only\n", 405, {"Allow": shown})
                await answer(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _allowed(self, scope: Scope) -> set[str]:
        """Return the methods of the data routes at an address; empty if no data route has it."""
        found: set[str] = set()
        for route in self._routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                found |= set(route.methods or ())
        return found | {"HEAD"} if "GET" in found else found
