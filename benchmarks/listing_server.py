"""Server that answers listings of one large bucket, as S3 does, from a sorted list of keys.

moto sorts all its keys for each page, which takes longer than a whole look at a bucket.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000
_AFTER_ALL = "\U0010ffff"


@dataclass
class ListedBucket:
    """Bucket whose objects have no content.

    Attributes:
        keys: in order.
        requests: number of requests so far.
    """

    port: int
    keys: list[str]
    requests: int = 0

    def add(self, key: str) -> None:
        """Add an object."""
        insort(self.keys, key)

    def page(self, prefix: str, after: str, delimiter: str) -> tuple[list[str], list[str], str]:
        """Return keys and common prefixes of one page, and where the next one begins; empty if it is last."""
        at = max(bisect_left(self.keys, prefix), bisect_right(self.keys, after))
        found: list[str] = []
        common: list[str] = []
        while at < len(self.keys) and self.keys[at].startswith(prefix):
            if len(found) + len(common) == PAGE:
                return found, common, common[-1] + _AFTER_ALL if common else found[-1]
            cut = self.keys[at].find(delimiter, len(prefix)) if delimiter else -1
            if cut < 0:
                found.append(self.keys[at])
                at += 1
            else:
                common.append(self.keys[at][: cut + 1])
                at = bisect_left(self.keys, common[-1] + _AFTER_ALL)
        return found, common, ""


class _ListingHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: ListedBucket

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.bucket.requests += 1
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        after = query.get("continuation-token") or query.get("start-after", "")
        keys, common, more = self.bucket.page(query.get("prefix", ""), after, query.get("delimiter", ""))
        stamp = (
            "<LastModified>2026-11-25T10:00:00.000Z</LastModified><Size>1</Size><ETag>&quot;1&quot;</ETag>"
        )
        body = "".join(
            (
                '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>',
                *(f"<Contents><Key>{escape(key)}</Key>{stamp}</Contents>" for key in keys),
                *(f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in common),
                f"<NextContinuationToken>{escape(more)}</NextContinuationToken>" if more else "",
                f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated></ListBucketResult>",
            )
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def listed_bucket(keys: list[str]) -> Iterator[ListedBucket]:
    """Serve a bucket with these keys."""
    handler: Any = type("BoundListingHandler", (_ListingHandler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    handler.bucket = bucket = ListedBucket(server.server_port, sorted(keys))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
