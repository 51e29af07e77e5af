"""The app behind nginx as docs/security.md configures it: TLS, below a path, websockets included."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from websockets import Origin
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.app.recorded_job import RUN, SICK
from tests.app.served import served

pytestmark = pytest.mark.skipif(
    shutil.which("nginx") is None or shutil.which("openssl") is None, reason="needs nginx and openssl"
)

DOCS = Path(__file__).parents[2] / "docs" / "security.md"
ROOT = "/sfapp"
TOKEN = "s3cret-of-the-app"

CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    include /etc/nginx/mime.types;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {folder}/certificate.pem;
        ssl_certificate_key {folder}/key.pem;
        {locations}
    }}
}}
"""


@dataclass(frozen=True)
class Proxied:
    """The app behind a proxy.

    Attributes:
        url: its public address.
        port: of the app itself.
        trust: accepts the proxy's certificate.
        followed: addresses that a test has followed, which pages share.
    """

    url: str
    port: int
    trust: ssl.SSLContext
    followed: set[str] = field(default_factory=set)


def documented_location() -> str:
    found = re.search(r"```nginx\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_certificate(folder: Path) -> ssl.SSLContext:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem",
         "-out", folder / "certificate.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return ssl.create_default_context(cafile=folder / "certificate.pem")


@pytest.fixture(scope="module", params=["kept", "removed"])
def proxied(
    request: pytest.FixtureRequest, recorded: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxied]:
    """The app behind a proxy that keeps the path before the app's addresses, or removes it."""
    folder = tmp_path_factory.mktemp("proxy")
    trust = make_certificate(folder)
    tls, plain = free_port(), free_port()
    (folder / "token").write_text(TOKEN)
    slash = "" if request.param == "kept" else "/"
    locations = documented_location().replace("127.0.0.1:8642;", f"127.0.0.1:{plain}{slash};")
    written = CONFIGURATION.format(folder=folder, port=tls, locations=locations)
    (folder / "nginx.conf").write_text(written)
    public = f"https://localhost:{tls}{ROOT}"
    arguments = ("--memory", "--token-file", folder / "token", "--public-url", public, "--port", str(plain))
    with served(recorded, *arguments, cwd=folder) as server:
        assert server.url == f"{public}/?token={TOKEN}"
        nginx = subprocess.Popen(["nginx", "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.PIPE)
        try:
            wait_for(tls)
            yield Proxied(public, plain, trust)
        finally:
            nginx.terminate()
            nginx.communicate(timeout=20)


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the proxy does not listen")


@contextmanager
def signed_in(app: Proxied) -> Iterator[httpx.Client]:
    with httpx.Client(verify=app.trust, follow_redirects=True) as visitor:
        page = visitor.get(f"{app.url}/?token={TOKEN}")
        assert page.status_code == 200
        assert str(page.url) == f"{app.url}/"
        yield visitor


def test_access_requires_the_token(proxied: Proxied) -> None:
    with httpx.Client(verify=proxied.trust) as visitor:
        assert visitor.get(f"{proxied.url}/").status_code == 401
        cookie = visitor.get(f"{proxied.url}/?token={TOKEN}").headers["set-cookie"]
    assert "Secure" in cookie
    assert f"Path={ROOT}" in cookie


@pytest.mark.parametrize("path", ["/", "/windows", f"/runs/{RUN}", SICK, "/glossary", "/docs", "/nowhere"])
def test_every_address_on_a_page_leads_below_the_path(proxied: Proxied, path: str) -> None:
    with signed_in(proxied) as visitor:
        page = visitor.get(f"{proxied.url}{path}")
        links = re.findall(r"""(?:href|src|import|from)\\?["' =:]+\\?["']([^"'\\]+)\\?["']""", page.text)
        own = {link for link in links if not link.startswith(("#", "data:", "https://", "http://", "sfapp-"))}
        rooted = {link for link in own if link.startswith("/")}
        assert rooted
        assert all(link.startswith(f"{ROOT}/") for link in rooted), rooted
        for link in sorted(rooted - proxied.followed):
            reply = visitor.get(urljoin(str(page.url), link.replace("&amp;", "&")))
            assert reply.status_code in (200, 400), link  # 400: data that need a query
        proxied.followed.update(rooted)


def test_data_and_redirects_stay_below_the_path(proxied: Proxied) -> None:
    with signed_in(proxied) as visitor:
        assert visitor.get(f"{proxied.url}/windows.json").json()["total"] == 5
        assert visitor.get(f"{proxied.url}{SICK}.json").json()["run_id"] == RUN
        moved = visitor.get(f"{proxied.url}/?label=frontier_accounting", follow_redirects=False)
        assert moved.headers["location"].startswith(f"{ROOT}/windows")
        slash = visitor.get(f"{proxied.url}/windows/?label=frontier_accounting", follow_redirects=False)
        assert slash.headers["location"] == f"{proxied.url}/windows?label=frontier_accounting"
        forged = visitor.get(f"{proxied.url}/", headers={"X-Forwarded-Prefix": "/evil"})
        assert "evil" not in forged.text


def test_websockets_pass_the_proxy_and_foreign_ones_do_not(proxied: Proxied) -> None:
    address = proxied.url.replace("https", "wss") + "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    with signed_in(proxied) as visitor:
        cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    own, headers = Origin(proxied.url.removesuffix(ROOT)), {"Cookie": cookie}
    with connect(address, ssl=proxied.trust, origin=own, additional_headers=headers) as channel:
        assert str(channel.recv(timeout=10)).startswith('0{"sid"')
    for origin, sent in ((own, dict[str, str]()), (Origin("https://evil.example"), headers)):
        with pytest.raises(InvalidStatus) as caught:
            connect(address, ssl=proxied.trust, origin=origin, additional_headers=sent)
        assert caught.value.response.status_code == 403
