"""Serve assistants over streamable HTTP, behind the token and the checks of the app."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfapp.app.in_turn import InTurn
from sfapp.app.listening import bind, check_reach, check_token, serve_until_signal
from sfapp.app.security import MAX_BODY, WILDCARDS, SecurityMiddleware, allowed_hosts
from sfapp.assistants.mcp_server import build_server
from sfapp.errors import ServeError
from sfapp.service.workspace import Workspace
from sfapp.terminal import quoted

_LONGEST_CALL_S = 3600.0
"""Seconds after which a call no longer counts among those that are answered at once."""

_BUSY = PlainTextResponse("sfapp answers other calls; try again later\n", 503)

PATH = "/mcp"
"""Path of the one address."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Where to listen, and the token that every client must present, if there is one."""

    host: str
    port: int
    token: str | None = None

    @classmethod
    def parse(cls, text: str, token: str | None) -> HttpOptions:
        """Parse ``HOST:PORT``, such as ``127.0.0.1:8643`` or ``[::1]:8643``.

        Raises:
            ServeError: the text has another form.
        """
        try:
            parts = urlsplit(f"//{text}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if host is None or port is None or parts.netloc != text or parts.username is not None:
            raise ServeError(f"--http must be HOST:PORT, for example 127.0.0.1:8643, not {quoted(text)}")
        return cls(host, port, None if token is None else token.strip())

    def listen(self) -> socket.socket:
        """Return a listening socket, before any slow start-up work.

        Raises:
            ServeError: the address is in use, or can be reached from other machines without a token.
        """
        check_token(self.token)
        check_reach(self.host, self.port, self.token, f"--http {self.host}:{self.port}")
        return bind(self.host, self.port, "--http")


def secured_application(workspace: Workspace, options: HttpOptions) -> ASGIApp:
    """Return the application behind the token and the checks of Host and Origin of the app.

    Requests have no session, so that a client that does not end one leaves nothing behind.
    """
    application = build_server(workspace).streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_BODY,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return SecurityMiddleware(
        _CompletePosts(CallTurns(application)),
        hosts=allowed_hosts(options.host),
        any_address=options.host in WILDCARDS,
        token=options.token,
        cookie="sfapp-mcp",
    )


class CallTurns(InTurn):
    """Middleware whose calls take turns, each until it ends, so that none is made for a client that left."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, _BUSY, held_s=_LONGEST_CALL_S)

    def takes_turn(self, scope: Scope) -> bool:
        return bool(scope["type"] == "http")


class _CompletePosts:
    """Pass requests on whose body has arrived, and refuse other methods than POST.

    The protocol's server logs a traceback of each client that leaves before. Without sessions, a GET would
    only hold an empty stream open.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":
            refusal = PlainTextResponse("assistants POST their calls here\n", 405, {"Allow": "POST"})
            await refusal(scope, receive, send)
            return
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        read: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            return read.pop() if read else await receive()

        await self._app(scope, receive_again, send)


def serve_http(
    workspace: Workspace,
    options: HttpOptions,
    listener: socket.socket,
    announce: Callable[[str], None],
    abandon: Callable[[], None],
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        listener: from ``HttpOptions.listen``.
        announce: called with the address.
        abandon: called from another thread if stopping takes too long; it ends the process.
    """
    host = f"[{options.host}]" if ":" in options.host else options.host
    announce(f"http://{host}:{listener.getsockname()[1]}{PATH}")
    application = secured_application(workspace, options)
    serve_until_signal(application, listener, close=workspace.store.close, abandon=abandon)
