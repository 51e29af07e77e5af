"""An S3 server in its own process, and a proxy before it that counts requests and injects faults."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from benchmarks.s3_server import s3_environment

PAGE = 10
"""Objects in a page of a listing, instead of 1,000."""

SECRET = "secret-of-these-tests"


@dataclass(frozen=True)
class ReceivedRequest:
    """Request that the proxy received."""

    method: str
    target: str
    headers: dict[str, str]

    @property
    def is_listing(self) -> bool:
        return "list-type=2" in self.target


Fault = Callable[["ProxyHandler"], None]
"""Function that answers a request instead of the server."""


@dataclass
class FaultyProxy:
    """Proxy before the server.

    Attributes:
        faults: asked in turn for the next requests; None passes one on.
        requests: every request so far.
        always: answers every request, if set.
    """

    port: int
    faults: list[Fault | None] = field(default_factory=list)
    requests: list[ReceivedRequest] = field(default_factory=list)
    always: Fault | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which obstore uses it."""
        return s3_environment(self.port) | {"AWS_SECRET_ACCESS_KEY": SECRET}

    def listings(self) -> int:
        """Return the number of requests for a page of a listing, and start to count anew."""
        found = sum(request.is_listing for request in self.requests)
        self.requests.clear()
        return found


class ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultyProxy
    upstream: int

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Answer with this body, whose length is its own if no header gives another."""
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def forwarded(self) -> tuple[int, bytes, dict[str, str]]:
        """Return the server's answer to the present request."""
        length = int(self.headers.get("Content-Length") or 0)
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=30)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            connection.request(self.command, self.path, self.rfile.read(length), headers)
            found = connection.getresponse()
            hop = {"connection", "transfer-encoding", "date", "server"}
            kept = {name: value for name, value in found.getheaders() if name.lower() not in hop}
            return found.status, found.read(), kept
        finally:
            connection.close()

    def handle_one(self) -> None:
        proxy = self.proxy
        proxy.requests.append(
            ReceivedRequest(
                self.command, self.path, {name.lower(): value for name, value in self.headers.items()}
            )
        )
        fault = proxy.always or (proxy.faults.pop(0) if proxy.faults else None)
        if fault is not None:
            fault(self)
        else:
            self.answer(*self.forwarded())

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = handle_one


def refused(status: int, code: str, message: str) -> Fault:
    """Answer with an error of S3."""
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message>'
        f"<AWSAccessKeyId>{SECRET}</AWSAccessKeyId><RequestId>1</RequestId></Error>"
    )
    return lambda handler: handler.answer(status, body.encode(), {"Content-Type": "application/xml"})


SLOW_DOWN = refused(503, "SlowDown", "Please reduce your request rate.")
EXPIRED = refused(400, "ExpiredToken", "The provided token has expired.")
DENIED = refused(403, "AccessDenied", "Access Denied")


def cut_off(handler: ProxyHandler) -> None:
    """Send half of the body, and close the connection."""
    status, body, headers = handler.forwarded()
    headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
    handler.answer(status, body[: len(body) // 2], headers | {"Content-Length": str(len(body))})
    handler.close_connection = True


def files_of(root: Path) -> Fault:
    """Answer as a web server of a folder, which knows neither S3 nor ranges."""

    def serve(handler: ProxyHandler) -> None:
        path = root / handler.path.partition("?")[0].lstrip("/")
        if path.is_file():
            modified = {"Last-Modified": "Wed, 25 Nov 2026 10:00:00 GMT"}
            handler.answer(200, path.read_bytes(), modified)
        else:
            handler.answer(404, b"")

    return serve


def silent(seconds: float) -> Fault:
    """Answer after some time."""

    def wait(handler: ProxyHandler) -> None:
        threading.Event().wait(seconds)
        handler.answer(*handler.forwarded())

    return wait


@contextmanager
def faulty_proxy(upstream: int) -> Iterator[FaultyProxy]:
    """Start a proxy before the server at a port."""
    handler: Any = type("BoundHandler", (ProxyHandler,), {"upstream": upstream})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    handler.proxy = proxy = FaultyProxy(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Bucket:
    """Bucket of one test."""

    name: str
    store: S3Store
    proxy: FaultyProxy

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def upload(self, root: Path, prefix: str = "packets") -> str:
        """Put all files below a folder under a prefix, and return the prefix's address."""
        for path in sorted(each for each in root.rglob("*") if each.is_file()):
            self.put(f"{prefix}/{path.relative_to(root).as_posix()}", path.read_bytes())
        self.proxy.requests.clear()
        return f"{self.url}/{prefix}"

    def put(self, key: str, content: bytes) -> None:
        obstore.put(self.store, key, content)

    def delete(self, key: str) -> None:
        obstore.delete(self.store, key)
