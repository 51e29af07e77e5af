"""Admit visitors that present the token once and a cookie from then on, and scripts with the token."""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import Scope

from sfapp.app.browser_opening import leading_to
from sfapp.app.token_guesses import GuessLimiter

MIN_TOKEN = 16
"""Minimum length of a token: with the pauses after wrong ones, guessing even a simple one takes centuries."""

_SIGN_IN = """<!doctype html><meta charset="utf-8"><title>sfapp: token needed</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1rem}
input,button{font:inherit;padding:.4rem .6rem}</style>
<h1>This sfapp requires a token</h1>
<p>Open the address that <code>sfapp serve</code> printed, or enter the token it was started with.</p>
<form method="get"><input name="token" type="password" aria-label="token" autofocus required>
<button>Open</button></form>
<p>Signed in before, and following a link from another site? <a href="">Continue</a>.</p>
"""


class TokenGate:
    """Gate that requires the token from every visitor.

    The cookie is random and known to this process only: it reveals nothing about the token, and a wrong
    cookie does not count as a guess.

    Args:
        token: secret that visitors present.
        cookie: name of the cookie that replaces it.
        path: path of the cookie.
        is_tls: whether browsers reach the server by https, so that the cookie never leaves it.
        limiter: slows down wrong tokens.
    """

    def __init__(
        self,
        token: str,
        *,
        cookie: str,
        path: str = "/",
        is_tls: bool = False,
        limiter: GuessLimiter | None = None,
    ) -> None:
        self._token = token
        self._cookie = cookie
        self._path = path
        self._is_tls = is_tls
        self._limiter = limiter or GuessLimiter()
        self._cookie_value = secrets.token_urlsafe(32)

    def refusal(self, scope: Scope, headers: Headers, address: str) -> Response | None:
        """Return the response to a visitor without access; None for a visitor with access.

        A token in the query is answered with the cookie and a redirect to the address without it. Browsers do
        not send the strict cookie for a link on another site, nor where such a link is redirected to: a page
        of ours leads on from one with the token, and the form offers to continue from one without, which
        repeats the request from our own page.

        Args:
            address: the visitor's, for counting wrong tokens.
        """
        is_known = self._has_cookie(headers)
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        in_query = [value for name, value in query if name == "token" and scope["type"] == "http"]
        bearer = _bearer(headers)
        if not in_query and bearer is None:
            return None if is_known else HTMLResponse(_SIGN_IN, 401, {"WWW-Authenticate": "Bearer"})
        pause = self._limiter.pause_s(address)
        if pause and not is_known:
            wait = {"Retry-After": str(pause)}
            return PlainTextResponse(f"too many wrong tokens; try again in {pause} s\n", 429, wait)
        if in_query and _equal(in_query[-1].encode(), self._token):
            self._limiter.reset(address)
            others = [(name, value) for name, value in query if name != "token"]
            return self._signed_in(scope, headers, others)
        if bearer is not None and _equal(bearer, self._token):
            self._limiter.reset(address)
            return None
        if is_known:
            return None
        self._limiter.count_wrong(address)
        return HTMLResponse(_SIGN_IN, 401, {"WWW-Authenticate": "Bearer"})

    def _has_cookie(self, headers: Headers) -> bool:
        parts = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
        return any(
            name == self._cookie and _equal(value.encode(), self._cookie_value) for name, _, value in parts
        )

    def _signed_in(self, scope: Scope, headers: Headers, query: list[tuple[str, str]]) -> Response:
        rest = urlencode(query)
        path = scope.get("raw_path", b"/").decode("latin-1").split("?")[0]
        # A browser would read a path that starts with two slashes as another host.
        address = f"/{path.lstrip('/')}{'?' if rest else ''}{rest}"
        response: Response = RedirectResponse(address, 303)
        if headers.get("sec-fetch-site") == "cross-site":
            response = HTMLResponse(leading_to(response.headers["location"]))
        response.set_cookie(
            self._cookie,
            self._cookie_value,
            httponly=True,
            samesite="strict",
            secure=self._is_tls,
            path=self._path,
        )
        return response


def _bearer(headers: Headers) -> bytes | None:
    """Return the token of an ``Authorization`` header as bytes; None if there is none."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip().encode("latin-1") if scheme.lower() == "bearer" else None


def _equal(given: bytes, expected: str) -> bool:
    return hmac.compare_digest(given, expected.encode())
