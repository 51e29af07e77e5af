"""A server on this machine that keeps what webhooks deliver."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


@dataclass
class DeliveredMessage:
    """One request: its headers in lower case, and its body."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def changes(self) -> list[tuple[str, str]]:
        """Kind and title of each change."""
        return [(each["change"], each["title"]) for each in self.content["changes"]]


@dataclass
class WebhookServer:
    """What was delivered; each request is answered with the next status, the last one again and again. A
    redirection is to the server itself."""

    address: str = ""
    statuses: list[int] = field(default_factory=lambda: [204])
    delivered: list[DeliveredMessage] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)

    def take(self) -> list[DeliveredMessage]:
        """Return what was delivered since the last call."""
        found, self.delivered = self.delivered, []
        self.arrived.clear()
        return found


@contextmanager
def webhook_server(statuses: Sequence[int] = (204,)) -> Iterator[WebhookServer]:
    """Serve on a free port within the block."""
    kept = WebhookServer(statuses=list(statuses))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            kept.delivered.append(DeliveredMessage(self.path, headers, body))
            self.send_response(kept.statuses.pop(0) if len(kept.statuses) > 1 else kept.statuses[0])
            self.send_header("Location", f"{kept.address}/elsewhere")
            self.end_headers()
            kept.arrived.set()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()
