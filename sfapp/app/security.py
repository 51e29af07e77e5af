"""Access control: one ASGI middleware around every request, websockets and files included.

NiceGUI by itself accepts a websocket from any origin, and answers any Host. A page the operator happens to
have open could then read their windows through 127.0.0.1. So, for every request and every websocket:

* ``Host`` must be a name the server was started under (DNS rebinding arrives under a foreign name);
* ``Origin``, where a browser sends one, must be the ``Host`` itself, and a websocket must send one;
* with a token set: a cookie got by opening ``?token=…`` once, or ``Authorization: Bearer …``;
* bodies are small, but for files sent from a page of ours, and answers carry the headers that keep the page
  to itself.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 1 << 20
"""Largest request body in bytes. Pages only ever post small events."""

MAX_UPLOAD = 16 << 20
"""Largest file that a page's file chooser may send, in bytes."""

_UPLOAD = re.compile(r"/_nicegui/client/[^/]+/upload/[0-9]+")
"""Address of NiceGUI's uploads; it exists only while a page with a file chooser is open."""

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
WILDCARDS = ("0.0.0.0", "::", "")

# NiceGUI compiles its Vue templates in the browser and starts from an inline script: both need the unsafe
# sources. Everything else is kept to this server: no request leaves, no frame, no plugin, no foreign form.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)

SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

_SIGN_IN = """<!doctype html><meta charset="utf-8"><title>sfapp: token needed</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1rem}
input,button{font:inherit;padding:.4rem .6rem}</style>
<h1>This sfapp requires a token</h1>
<p>Open the address that <code>sfapp serve</code> printed, or enter the token it was started with.</p>
<form method="get"><input name="token" type="password" aria-label="token" autofocus required>
<button>Open</button></form>
<p>Signed in before, and following a link from another site? <a href="">Continue</a>.</p>
"""


def allowed_hosts(host: str) -> frozenset[str]:
    """Return the host names that a server bound to ``host`` accepts.

    Bound to every address, it also answers to the machine's own names; addresses are then allowed as such
    (see ``SecurityMiddleware``), since only names can be rebound.
    """
    names = {*LOOPBACK_NAMES, host.strip("[]").lower()}
    if host in WILDCARDS:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names - set(WILDCARDS))


def is_loopback(host: str) -> bool:
    """Return whether a bind address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class SecurityMiddleware:
    """Rejects what the module's docstring lists; passes the rest on with security headers.

    Args:
        app: the application inside.
        hosts: names the server answers to, lower case, without port.
        any_address: also answer to any IP address (bound to all of them).
        token: required of every visitor, where given.
        cookie: name of the cookie that stands for the token.
        max_body: largest request body in bytes.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str] = LOOPBACK_NAMES,
        any_address: bool = False,
        token: str | None = None,
        cookie: str = "sfapp",
        max_body: int = MAX_BODY,
    ) -> None:
        self.app = app
        self._hosts = frozenset(hosts)
        self._any_address = any_address
        self._token = token
        self._cookie = cookie
        # The cookie holds a digest, so that a cookie seen somewhere is not the token itself.
        self._cookie_value = hashlib.sha256(f"sfapp cookie {token}".encode()).hexdigest() if token else ""
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if scope["type"] == "websocket":
            if refusal is None:
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
            return
        guarded_send = _with_security_headers(send)
        if refusal is not None:
            await refusal(scope, receive, guarded_send)
            return
        await self._with_body_limit(scope, receive, guarded_send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._answers_to(hosts[0]):
            return PlainTextResponse(
                "sfapp does not accept this host name; start it with --host NAME to allow it\n", 400
            )
        if not _same_origin(scope, headers, hosts[0]):
            return PlainTextResponse(
                "sfapp accepts requests from its own pages only, not from another site\n", 403
            )
        if self._token is not None:
            answer = self._token_answer(scope, headers)
            if answer is not None:
                return answer
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            return PlainTextResponse("Content-Length is not a number\n", 400)
        if int(length) > self._limit(scope):
            return PlainTextResponse(f"the body is larger than {self._limit(scope)} bytes\n", 413)
        return None

    def _limit(self, scope: Scope) -> int:
        """Return the largest body that is accepted; an upload has a frame around its file."""
        takes_files = scope["type"] == "http" and _UPLOAD.fullmatch(scope["path"]) is not None
        return MAX_UPLOAD + self._max_body if takes_files else self._max_body

    def _answers_to(self, host: str) -> bool:
        name = _host_name(host)
        if name is None:
            return False
        return name in self._hosts or (self._any_address and _is_address(name))

    def _knows_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode("latin-1"), (self._token or "").encode()
        ):
            return True
        cookies = [
            value
            for name, _, value in (
                part.strip().partition("=") for part in headers.get("cookie", "").split(";")
            )
            if name == self._cookie
        ]
        return any(_equal(value, self._cookie_value) for value in cookies)

    def _token_answer(self, scope: Scope, headers: Headers) -> Response | None:
        """Answer with the cookie and a clean address if the query holds the token, with a form if none does.

        The strict cookie is not sent when a link on another site is followed: the form then offers to
        go on, which asks again from our own page.
        """
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if scope["type"] == "http" and given and _equal(given[-1], self._token or ""):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = scope.get("raw_path", b"/").decode("latin-1").split("?")[0]
            # A path that starts with two slashes would be read as another host.
            response = RedirectResponse(f"/{path.lstrip('/')}{'?' if rest else ''}{rest}", 303)
            response.set_cookie(self._cookie, self._cookie_value, httponly=True, samesite="strict", path="/")
            return response
        if self._knows_token(headers):
            return None
        return HTMLResponse(_SIGN_IN, 401, {"WWW-Authenticate": "Bearer"})

    async def _with_body_limit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; a body that turns out larger than announced ends it with 413."""
        limit = self._limit(scope)
        seen = 0
        started = False

        async def counted_receive() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > limit:
                    raise _BodyTooLargeError
            return message

        async def noting_send(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, counted_receive, noting_send)
        except _BodyTooLargeError:
            if started:
                raise
            await PlainTextResponse(f"the body is larger than {limit} bytes\n", 413)(scope, receive, send)


class _BodyTooLargeError(Exception):
    """A body is larger than the limit, and than its Content-Length."""


def _with_security_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers[name] = value
        await send(message)

    return sending


def _same_origin(scope: Scope, headers: Headers, host: str) -> bool:
    """Return whether the request comes from a page of this server, or from no browser page."""
    origins = headers.getlist("origin")
    if not origins:
        # A browser always names the origin of a websocket. Of a plain request it tells by fetch metadata.
        foreign = (
            headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
        )
        return scope["type"] == "http" and not foreign
    parts = urlsplit(origins[0])
    return len(origins) == 1 and parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _host_name(host: str) -> str | None:
    """Return the lower-case name in a Host header, without port and brackets; None if it is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    if parts.netloc != host or parts.username is not None or not parts.hostname:
        return None
    return parts.hostname.lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
