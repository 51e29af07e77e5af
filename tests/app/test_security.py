"""The middleware in front of everything: who gets through, over HTTP and over websockets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from sfapp.app.public_address import PublicAddress
from sfapp.app.security import MAX_BODY, MAX_UPLOAD, SecurityMiddleware, allowed_hosts, is_loopback
from sfapp.app.token_guesses import FREE_GUESSES


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that reads the whole body and answers with its length."""
    size = 0
    more = True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-powered-by", b"inner")]})
    await send({"type": "http.response.body", "body": str(size).encode()})


async def ask(app: SecurityMiddleware, path: str = "/", **options: object) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as client:
        return await client.request(options.pop("method", "GET"), path, **options)


async def websocket_reply(app: SecurityMiddleware, headers: dict[str, str]) -> list[Message]:
    """What is sent to a websocket that asks to be opened with these headers."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "websocket",
        "path": "/_nicegui_ws/socket.io/",
        "raw_path": b"/_nicegui_ws/socket.io/",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    await app(scope, receive, send)
    return sent


async def accepting(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost", "LOCALHOST:1", "[::1]:8642"])
async def test_the_machine_itself_is_answered(host: str) -> None:
    assert (await ask(SecurityMiddleware(inner), headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "localhost:x", "[::1", "", "a b"],
)
async def test_another_host_name_is_refused(host: str) -> None:
    response = await ask(SecurityMiddleware(inner), headers={"Host": host})
    assert response.status_code == 400
    assert "host name" in response.text


async def test_two_host_headers_are_refused() -> None:
    headers = [("Host", "127.0.0.1"), ("Host", "evil.example")]
    assert (await ask(SecurityMiddleware(inner), headers=headers)).status_code == 400


def test_a_server_bound_to_everything_answers_to_its_own_name_and_to_addresses() -> None:
    import socket

    hosts = allowed_hosts("0.0.0.0")
    assert socket.gethostname().lower() in hosts
    assert "0.0.0.0" not in hosts
    assert allowed_hosts("Train-7.Lab") >= {"train-7.lab", "localhost"}


async def test_addresses_are_answered_only_when_bound_to_all_of_them() -> None:
    headers = {"Host": "10.1.2.3:8642"}
    assert (await ask(SecurityMiddleware(inner), headers=headers)).status_code == 400
    assert (await ask(SecurityMiddleware(inner, any_address=True), headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("train-7", False),
        ("", False),
    ],
)
def test_only_loopback_addresses_need_no_token(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "file://", "http://localhost:8642"]
)
async def test_a_websocket_from_a_foreign_origin_is_refused(origin: str) -> None:
    sent = await websocket_reply(SecurityMiddleware(accepting), {"Host": "127.0.0.1:8642", "Origin": origin})
    assert [message["type"] for message in sent] == ["websocket.close"]
    assert sent[0]["code"] == 1008


async def test_a_websocket_must_name_its_origin() -> None:
    sent = await websocket_reply(SecurityMiddleware(accepting), {"Host": "127.0.0.1:8642"})
    assert sent[0]["type"] == "websocket.close"


async def test_a_websocket_of_our_own_page_is_accepted() -> None:
    headers = {"Host": "127.0.0.1:8642", "Origin": "http://127.0.0.1:8642"}
    assert await websocket_reply(SecurityMiddleware(accepting), headers) == [{"type": "websocket.accept"}]


async def test_long_polling_from_a_foreign_origin_is_refused() -> None:
    headers = {"Origin": "http://evil.example"}
    response = await ask(
        SecurityMiddleware(inner), "/_nicegui_ws/socket.io/?transport=polling", headers=headers
    )
    assert response.status_code == 403


async def test_a_foreign_page_cannot_embed_anything_but_may_link_here() -> None:
    app = SecurityMiddleware(inner)
    embedding = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    linking = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert (await ask(app, headers=embedding)).status_code == 403
    assert (await ask(app, headers=linking)).status_code == 200


@pytest.fixture
def guarded() -> SecurityMiddleware:
    return SecurityMiddleware(inner, token="s3cret ünï", cookie="sfapp-8642")


@pytest.mark.parametrize(
    "path", ["/", "/index.json", "/assets/style.css", "/_nicegui/x/static/nicegui.js", "/healthz"]
)
async def test_nothing_is_served_without_the_token(guarded: SecurityMiddleware, path: str) -> None:
    response = await ask(guarded, path)
    assert response.status_code == 401
    assert "token" in response.text
    assert response.headers["x-frame-options"] == "DENY"


async def test_the_token_in_the_link_becomes_a_strict_cookie_and_leaves_the_address(
    guarded: SecurityMiddleware,
) -> None:
    # Given a link with the token and a view
    first = await ask(guarded, "/w/a%2Fb/3?token=s3cret+%C3%BCn%C3%AF&gamma_a=0.5")
    # Then the address loses the token only, and the cookie is out of reach of scripts and other sites
    assert first.status_code == 303
    assert first.headers["location"] == "/w/a%2Fb/3?gamma_a=0.5"
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "s3cret" not in cookie
    # And the cookie opens every door
    value = first.headers["set-cookie"].split(";")[0]
    assert (await ask(guarded, "/", headers={"Cookie": f"other=1; {value}"})).status_code == 200


async def test_a_link_with_the_token_on_another_site_signs_in(guarded: SecurityMiddleware) -> None:
    # When a browser follows the link from elsewhere, whose redirections get no strict cookie
    linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    address = "/w/a%2Fb/3?token=s3cret+%C3%BCn%C3%AF&gamma_a=0.5&note=%22%3E%3Cscript%3E"
    page = await ask(guarded, address, headers=linked)
    # Then a page of ours leads on, without the token
    assert page.status_code == 200
    assert "samesite=strict" in page.headers["set-cookie"].lower()
    assert 'content="0; url=/w/a%2Fb/3?gamma_a=0.5&amp;note=%22%3E%3Cscript%3E"' in page.text
    assert "s3cret" not in page.text


async def test_a_signed_in_users_address_loses_its_token_too(guarded: SecurityMiddleware) -> None:
    first = await ask(guarded, "/?token=s3cret+%C3%BCn%C3%AF")
    cookie = {"Cookie": first.headers["set-cookie"].split(";")[0]}
    again = await ask(guarded, "/?token=s3cret+%C3%BCn%C3%AF", headers=cookie)
    assert again.status_code == 303


async def test_the_redirect_never_leads_to_another_host(guarded: SecurityMiddleware) -> None:
    response = await ask(guarded, "http://127.0.0.1:8642//evil.example/?token=s3cret+%C3%BCn%C3%AF")
    assert response.status_code == 303
    assert response.headers["location"].startswith("/evil.example")


@pytest.mark.parametrize(
    "headers",
    [{"Cookie": "sfapp-8642=wrong"}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}],
)
async def test_a_wrong_token_is_refused(guarded: SecurityMiddleware, headers: dict[str, str]) -> None:
    assert (await ask(guarded, headers=headers)).status_code == 401
    assert (await ask(guarded, "/?token=wrong", headers=headers)).status_code == 401


async def test_a_bearer_token_serves_scripts(guarded: SecurityMiddleware) -> None:
    assert (await ask(guarded, headers=[(b"Authorization", "bearer s3cret ünï".encode())])).status_code == 200


async def test_a_websocket_without_the_token_is_refused() -> None:
    app = SecurityMiddleware(accepting, token="t")
    headers = {"Host": "127.0.0.1", "Origin": "http://127.0.0.1"}
    assert (await websocket_reply(app, headers))[0]["type"] == "websocket.close"
    assert await websocket_reply(app, headers | {"Authorization": "Bearer t"}) == [
        {"type": "websocket.accept"}
    ]


async def test_a_large_body_is_refused_by_its_announced_length() -> None:
    app = SecurityMiddleware(inner, max_body=10)
    assert (await ask(app, method="POST", content=b"x" * 10)).text == "10"
    assert (await ask(app, method="POST", content=b"x" * 11)).status_code == 413
    assert (await ask(app, headers={"Content-Length": "-1"})).status_code == 400


async def test_a_large_body_is_refused_without_an_announced_length() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"xxxx"

    assert (
        await ask(SecurityMiddleware(inner, max_body=10), method="POST", content=chunks())
    ).status_code == 413


async def test_every_answer_keeps_the_page_to_itself() -> None:
    response = await ask(SecurityMiddleware(inner))
    policy = response.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "http:" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["x-powered-by"] == "inner"


async def test_a_file_may_be_larger_where_a_page_takes_one_and_nowhere_else() -> None:
    app = SecurityMiddleware(inner)
    content = b"x" * (MAX_BODY + 1)
    taken = "/_nicegui/client/5f0c/upload/12"
    assert (await ask(app, taken, method="POST", content=content)).text == str(len(content))
    for path in ("/", "/_nicegui/client/5f0c/upload/12/more", "/x/_nicegui/client/5f0c/upload/12"):
        assert (await ask(app, path, method="POST", content=content)).status_code == 413
    announced = {"Content-Length": str(MAX_UPLOAD + MAX_BODY + 1)}
    assert (await ask(app, taken, method="POST", headers=announced)).status_code == 413
    # And the guard stays where it was
    foreign = {"Origin": "http://evil.example"}
    assert (await ask(app, taken, method="POST", headers=foreign)).status_code == 403


async def test_wrong_tokens_are_answered_ever_more_rarely(guarded: SecurityMiddleware) -> None:
    # Given an address that has guessed a few times, in the ways that there are
    for guess in range(FREE_GUESSES):
        bearer = {"Authorization": "Bearer wrong"}
        reply = await (ask(guarded, "/?token=wrong") if guess % 2 else ask(guarded, headers=bearer))
        assert reply.status_code == 401
    # Then the next guess is not looked at, even if it is right, and the answer says when one will be
    for headers in (
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer s3cret ünï".encode("latin-1")},
    ):
        refused = await ask(guarded, headers=headers)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
    # And who guesses nothing, or is signed in, is answered as before
    assert (await ask(guarded)).status_code == 401


async def test_a_signed_in_visitor_does_not_wait_for_guesses_of_others(
    guarded: SecurityMiddleware,
) -> None:
    first = await ask(guarded, "/?token=s3cret+%C3%BCn%C3%AF")
    cookie = {"Cookie": first.headers["set-cookie"].split(";")[0]}
    for _ in range(FREE_GUESSES + 1):
        await ask(guarded, "/?token=wrong")
    assert (await ask(guarded, headers=cookie)).status_code == 200


async def test_the_cookie_reveals_nothing_about_the_token() -> None:
    values = []
    for _ in range(2):
        app = SecurityMiddleware(inner, token="the same secret")
        response = await ask(app, "/?token=the+same+secret")
        values.append(response.headers["set-cookie"].split(";")[0])
    assert values[0] != values[1]


@pytest.mark.parametrize("origin", ["http://[::1", "http://[", "//", "http://127.0.0.1:8642@evil.example"])
async def test_a_malformed_origin_is_refused(origin: str) -> None:
    assert (await ask(SecurityMiddleware(inner), headers={"Origin": origin})).status_code == 403


async def test_a_content_length_of_thousands_of_digits_is_refused() -> None:
    response = await ask(SecurityMiddleware(inner), headers={"Content-Length": "9" * 5000})
    assert response.status_code == 413


async def showing(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with the address that the application receives."""
    headers = Headers(scope=scope)
    received = (
        scope["root_path"],
        scope["path"],
        scope["raw_path"].decode(),
        headers.get("x-forwarded-prefix"),
    )
    await PlainTextResponse(repr(received))(scope, receive, send)


async def test_the_prefix_of_a_proxy_is_ignored() -> None:
    response = await ask(SecurityMiddleware(showing), "/a%2Fb", headers={"X-Forwarded-Prefix": "/evil"})
    assert response.text == repr(("", "/a/b", "/a%2Fb", None))


@pytest.fixture
def behind_proxy() -> SecurityMiddleware:
    public = PublicAddress.parse("https://sfapp.example.org/tools/sfapp/")
    return SecurityMiddleware(showing, token="s3cret", public=public)


@pytest.mark.parametrize("path", ["/a%2Fb", "/tools/sfapp/a%2Fb"])
async def test_behind_a_proxy_the_root_is_the_configured_one(
    behind_proxy: SecurityMiddleware, path: str
) -> None:
    headers = {"Host": "sfapp.example.org", "X-Forwarded-Prefix": "/evil", "Authorization": "Bearer s3cret"}
    response = await ask(behind_proxy, path, headers=headers)
    assert response.text == repr(("/tools/sfapp", "/tools/sfapp/a/b", "/tools/sfapp/a%2Fb", None))


async def test_behind_a_proxy_the_cookie_stays_within_tls_and_the_path(
    behind_proxy: SecurityMiddleware,
) -> None:
    response = await ask(behind_proxy, "/?token=s3cret", headers={"Host": "sfapp.example.org"})
    assert response.headers["location"] == "/tools/sfapp/"
    cookie = response.headers["set-cookie"]
    assert "Secure" in cookie
    assert "Path=/tools/sfapp" in cookie


@pytest.mark.parametrize(("host", "scheme"), [("SFAPP.example.org:8443", "https"), ("localhost", "http")])
async def test_behind_a_proxy_addresses_have_the_scheme_that_visitors_use(host: str, scheme: str) -> None:
    async def naming_scheme(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(scope["scheme"])(scope, receive, send)

    app = SecurityMiddleware(naming_scheme, public=PublicAddress.parse("https://sfapp.example.org"))
    assert (await ask(app, headers={"Host": host})).text == scheme


async def test_behind_a_proxy_guesses_are_counted_by_the_address_that_it_saw(
    behind_proxy: SecurityMiddleware,
) -> None:
    def guess(number: int, address: str) -> dict[str, str]:
        forged = f"192.0.2.{number}, {address}"  # what a visitor sends comes first
        return {"Host": "sfapp.example.org", "X-Forwarded-For": forged, "Authorization": "Bearer wrong"}

    for number in range(FREE_GUESSES):
        assert (await ask(behind_proxy, headers=guess(number, "10.0.0.1"))).status_code == 401
    assert (await ask(behind_proxy, headers=guess(9, "10.0.0.1"))).status_code == 429
    assert (await ask(behind_proxy, headers=guess(9, "10.0.0.2"))).status_code == 401


async def test_without_a_proxy_the_forwarded_address_is_ignored(guarded: SecurityMiddleware) -> None:
    for number in range(FREE_GUESSES + 1):
        headers = {"X-Forwarded-For": f"10.0.0.{number}", "Authorization": "Bearer wrong"}
        status = (await ask(guarded, headers=headers)).status_code
    assert status == 429


@pytest.mark.parametrize("name", ["%00", "a%00b.js", "a" * 250, "a/" * 2_000, "%C3%A4" * 120])
async def test_a_name_that_no_file_can_have_is_no_file_of_a_page(name: str) -> None:
    for app in (
        SecurityMiddleware(inner),
        SecurityMiddleware(inner, public=PublicAddress.parse("https://a.example/tools")),
    ):
        assert (await ask(app, f"/_nicegui/3.0/esm/key/{name}")).status_code == 404
        assert (await ask(app, f"/runs/{name}")).status_code == 200  # a run of any name may exist
    assert (await ask(SecurityMiddleware(inner), "/_nicegui/3.0/esm/key/index.js")).status_code == 200
