"""Access control: one ASGI middleware around every request, websockets and files included.

NiceGUI by itself accepts a websocket from any origin, and answers any Host. Any page in the operator's
browser could then read their windows through 127.0.0.1. Therefore, for every request and every websocket:

* ``Host`` must be a name the server was started under (DNS rebinding arrives under a foreign name);
* ``Origin``, where a browser sends one, must be the ``Host`` itself, and a websocket must send one;
* with a token set: a cookie got by opening ``?token=…`` once, or ``Authorization: Bearer …``. An address that
  presents wrong tokens is answered ever more rarely, and the cookie is no function of the token;
* bodies are small, but for files sent from a page of ours, and answers carry the headers that keep the page
  to itself;
* of a reverse proxy, only what ``--public-url`` says is believed: ``X-Forwarded-Prefix`` is dropped.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfapp.app.public_address import PublicAddress
from sfapp.app.token_gate import TokenGate

MAX_BODY = 1 << 20
"""Largest request body in bytes. Pages post only small events."""

MAX_UPLOAD = 16 << 20
"""Largest file from a page's file chooser, in bytes."""

_UPLOAD = re.compile(r"/_nicegui/client/[^/]+/upload/[0-9]+")
"""Address of NiceGUI's uploads; it exists only while a page with a file chooser is open."""

_DIGITS = re.compile("[0-9]+")
_MOST_DIGITS = 18
"""Maximum number of digits of a Content-Length: Python refuses to parse thousands."""

_LONGEST_ADDRESS = 64
"""Maximum length of a forwarded address that is used: an IPv6 address with a zone is shorter."""

_FILES = "/_nicegui/"
"""Where NiceGUI serves files by their names: it answers a name that no file system takes with a traceback."""

_LONGEST_NAME = 255
"""Maximum length of the address of such a file in bytes, as of a name on a disk: all are below 100."""

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
WILDCARDS = ("0.0.0.0", "::", "")

# NiceGUI compiles its Vue templates in the browser and starts from an inline script: both need the unsafe
# sources. Everything else is limited to this server: no external request, frame, plugin or form.
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


def allowed_hosts(host: str) -> frozenset[str]:
    """Return the host names that a server bound to ``host`` accepts.

    A server bound to every address also accepts the machine's own names; any IP address is then allowed (see
    ``SecurityMiddleware``), since only names can be rebound.
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
    """Middleware with the checks of the module's docstring; it adds security headers to responses.

    Args:
        app: the application inside.
        hosts: accepted host names, lower case, without port.
        any_address: also accept any IP address (if bound to all of them).
        token: required of every visitor, if given.
        cookie: name of the cookie that replaces the token.
        max_body: largest request body in bytes.
        public: where a reverse proxy serves the application, if one does.
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
        public: PublicAddress | None = None,
    ) -> None:
        self.app = app
        self._hosts = frozenset(hosts) | (frozenset() if public is None else {public.host})
        self._any_address = any_address
        self._root = "" if public is None else public.root
        self._public = public
        self._gate = None
        if token is not None:
            is_tls = public is not None and public.is_tls
            self._gate = TokenGate(token, cookie=cookie, path=self._root or "/", is_tls=is_tls)
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        scope = _rooted(scope, self._root)
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
        public = self._public
        if public is not None and public.is_tls and _host_name(headers["host"]) == public.host:
            scope["scheme"] = "https"  # that of the proxy's own request would be in redirects
        await self._with_body_limit(scope, receive, guarded_send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._answers_to(hosts[0]):
            return PlainTextResponse(
                "sfapp does not accept this host name; start it with --host NAME to allow it, or with "
                "--public-url https://NAME behind a reverse proxy\n",
                400,
            )
        if not _same_origin(scope, headers, hosts[0]):
            return PlainTextResponse(
                "sfapp accepts requests from its own pages only, not from another site\n", 403
            )
        if self._gate is not None:
            refusal = self._gate.refusal(scope, headers, self._address(scope, headers))
            if refusal is not None:
                return refusal
        length = headers.get("content-length", "0")
        if not _DIGITS.fullmatch(length):
            return PlainTextResponse("Content-Length is not a number\n", 400)
        if len(length) > _MOST_DIGITS or int(length) > self._limit(scope):
            return PlainTextResponse(f"the body is larger than {self._limit(scope)} bytes\n", 413)
        if _names_no_file(scope["path"].removeprefix(self._root)):
            return PlainTextResponse("there is no such file\n", 404)
        if self._root and scope["path"] == self._root:
            return RedirectResponse(f"{self._root}/")
        return None

    def _address(self, scope: Scope, headers: Headers) -> str:
        """Return the visitor's address as seen by our proxy, which appends it to the header."""
        forwarded = [] if self._public is None else headers.getlist("x-forwarded-for")
        if forwarded:
            return forwarded[-1].rpartition(",")[2].strip()[:_LONGEST_ADDRESS]
        client = scope.get("client")
        return client[0] if client else ""

    def _limit(self, scope: Scope) -> int:
        """Return the size limit of the body; an upload is slightly larger than its file."""
        path = scope["path"].removeprefix(self._root)
        takes_files = scope["type"] == "http" and _UPLOAD.fullmatch(path) is not None
        return MAX_UPLOAD + self._max_body if takes_files else self._max_body

    def _answers_to(self, host: str) -> bool:
        name = _host_name(host)
        if name is None:
            return False
        return name in self._hosts or (self._any_address and _is_address(name))

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


def _names_no_file(path: str) -> bool:
    """Return whether a path asks for a file of NiceGUI by a name that none can have."""
    return path.startswith(_FILES) and ("\0" in path or len(path.encode(errors="replace")) > _LONGEST_NAME)


def _same_origin(scope: Scope, headers: Headers, host: str) -> bool:
    """Return whether the request comes from a page of this server, or from no browser page."""
    origins = headers.getlist("origin")
    if not origins:
        # A browser always sends the origin of a websocket; for a plain request it sends fetch metadata.
        foreign = (
            headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
        )
        return scope["type"] == "http" and not foreign
    try:
        parts = urlsplit(origins[0])
    except ValueError:
        return False
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


def _rooted(scope: Scope, root: str) -> Scope:
    """Return the scope below a root path, whether or not the proxy has removed it from the path.

    A path that begins with the root counts as kept, so a removed root must be no address of the app.
    ``X-Forwarded-Prefix`` is dropped: NiceGUI would write it into pages and redirects from any client.
    """
    headers = [(name, value) for name, value in scope["headers"] if name != b"x-forwarded-prefix"]
    path, raw_path = scope["path"], scope.get("raw_path") or scope["path"].encode()
    if root and path != root and not path.startswith(f"{root}/"):
        path, raw_path = root + path, root.encode() + raw_path
    return {**scope, "headers": headers, "root_path": root, "path": path, "raw_path": raw_path}
