"""An S3 server in a process of its own, which ends with this one."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.store import S3Store

_PROGRAM = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_server(page: int = 1000) -> Iterator[int]:
    """Start moto's server and yield its port on 127.0.0.1.

    Args:
        page: objects in a page of a listing.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"PATH": "/usr/bin:/bin", "MOTO_S3_DEFAULT_MAX_KEYS": str(page)},
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the child process has no pipes")
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(20)


def make_bucket(port: int, name: str) -> S3Store:
    """Make a bucket on the server at a port and return it."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{name}", method="PUT")
    urllib.request.urlopen(request).close()
    values = s3_environment(port)
    return S3Store(
        name,
        endpoint=values["AWS_ENDPOINT_URL"],
        region=values["AWS_REGION"],
        access_key_id=values["AWS_ACCESS_KEY_ID"],
        secret_access_key=values["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )


def s3_environment(port: int) -> dict[str, str]:
    """Return the environment variables with which obstore uses the server at a port."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key-of-the-server",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-server",
    }
