"""A bucket for each test on one S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from obstore.store import S3Store

from benchmarks.s3_server import s3_server
from sfapp.packets import uploader as uploading
from sfapp.packets.spool import SPOOL_VARIABLE
from tests.storage.object_server import PAGE, Bucket, FaultyProxy, faulty_proxy

_NUMBERS = count()


@pytest.fixture(scope="session")
def server() -> Iterator[int]:
    """Port of the S3 server."""
    with s3_server(PAGE) as port:
        yield port


@pytest.fixture(scope="session")
def proxy(server: int) -> Iterator[FaultyProxy]:
    with faulty_proxy(server) as found:
        yield found


@pytest.fixture
def bucket(proxy: FaultyProxy, server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket, which the environment's variables open through the proxy."""
    for name, value in proxy.environment.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{next(_NUMBERS)}"
    _create(server, name)
    found = Bucket(name, S3Store(name), proxy)
    proxy.requests.clear()
    yield found
    proxy.faults.clear()
    proxy.always = None


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the spools of a test, which looks at the bucket in short intervals."""
    monkeypatch.setenv(SPOOL_VARIABLE, str(tmp_path / "spool"))
    monkeypatch.setattr(uploading, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(uploading, "_FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(uploading, "_LONGEST_PAUSE_S", 0.1)
    return tmp_path / "spool"


def _create(server: int, name: str) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server, timeout=10)
    connection.request("PUT", f"/{name}")
    assert connection.getresponse().status == 200
    connection.close()
