"""Answers of a server that claim what cannot be: they end one request, or refuse one file, with a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sfapp.errors import StorageError
from sfapp.packets import Packet, load_packet
from sfapp.storage import location, object_storage
from sfapp.store import Store
from tests.storage.object_server import Bucket, Fault, ProxyHandler
from tests.store.jobs import numbers, put_run

ONCE = {"max_retries": 0}


def claiming(field: str, value: str) -> Fault:
    """Answer with listings that say this of the second packet."""
    entry = re.compile(rf"(00000001\.parquet</Key>.*?<{field}>)[^<]*", re.DOTALL)

    def answer(handler: ProxyHandler) -> None:
        status, body, headers = handler.forwarded()
        if "list-type=2" in handler.path:
            body = entry.sub(rf"\g<1>{value}", body.decode()).encode()
            headers = {name: each for name, each in headers.items() if name.lower() != "content-length"}
        elif handler.command == "GET" and field == "LastModified" and "00000001" in handler.path:
            headers = {name: each for name, each in headers.items() if name.lower() != "last-modified"}
            headers["Last-Modified"] = "Fri, 31 Dec 9999 23:59:59 GMT"
        handler.answer(status, body, headers)

    return answer


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("LastModified", "9999-12-31T23:59:59.000Z"),
        ("LastModified", "0001-01-01T00:00:00.000Z"),
        ("Size", str(2**64 - 1)),
        ("Size", "0"),
    ],
)
def test_a_time_or_size_that_fits_no_column_stops_no_other_packet(
    bucket: Bucket, tmp_path: Path, field: str, value: str
) -> None:
    put_run(tmp_path, count=3)
    url = bucket.upload(tmp_path)
    bucket.proxy.always = claiming(field, value)
    with Store.open([location(url)]) as store:
        store.ingest()
        assert numbers(store) == [0, 1, 2]
        assert not store.ingest().changed


def longer_than_announced(handler: ProxyHandler) -> None:
    """Send more than the header says, in pieces that end only with the connection."""
    handler.send_response(206)
    for name, value in {
        "Content-Length": "100",
        "Content-Range": "bytes 0-99/100",
        "Transfer-Encoding": "chunked",
        "Last-Modified": "Wed, 25 Nov 2026 10:00:00 GMT",
    }.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.close_connection = True
    try:
        while True:
            handler.wfile.write(b"100000\r\n" + bytes(2**20) + b"\r\n")
    except OSError:  # The client has left.
        pass


def announced_beyond_memory(handler: ProxyHandler) -> None:
    """Announce more bytes than any machine has, and send a few."""
    headers = {
        "Content-Length": str(2**53),
        "Content-Range": "bytes 0-99/100",
        "Last-Modified": "Wed, 25 Nov 2026 10:00:00 GMT",
    }
    handler.answer(206, b"few", headers)
    handler.close_connection = True


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(longer_than_announced, "longer than the 100 bytes"), (announced_beyond_memory, "body")],
)
def test_a_body_takes_no_more_memory_than_was_announced_and_arrived(
    bucket: Bucket, tmp_path: Path, fault: Fault, reason: str
) -> None:
    put_run(tmp_path, count=1)
    path = f"{bucket.upload(tmp_path)}/run/00000000.parquet"
    bucket.proxy.faults[:] = [fault]
    with pytest.raises(StorageError, match=reason):
        load_packet(location(path, ONCE))
    assert isinstance(load_packet(location(path)), Packet)


@pytest.mark.parametrize("key", ["run//0.parquet", "run/../0.parquet", "run/a&#10;b.parquet"])
def test_a_name_that_no_listing_can_hold_is_named(bucket: Bucket, tmp_path: Path, key: str) -> None:
    put_run(tmp_path, count=2)
    url = bucket.upload(tmp_path)

    def answer(handler: ProxyHandler) -> None:
        status, body, headers = handler.forwarded()
        headers = {name: each for name, each in headers.items() if name.lower() != "content-length"}
        handler.answer(status, body.replace(b"run/00000001.parquet", key.encode()), headers)

    bucket.proxy.always = answer
    shown = re.escape(f"packets/{key}".replace("&#10;", r"\n"))
    with pytest.raises(StorageError, match=f"before '{shown}' is renamed or deleted"):
        Store.open([location(url)]).ingest()


def test_a_listing_that_repeats_itself_ends(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_storage, "PAGE", 4)
    put_run(tmp_path, count=2)
    url = bucket.upload(tmp_path)
    more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"
    answers: list[bytes] = []

    def answer(handler: ProxyHandler) -> None:
        if not answers:
            answers.append(handler.forwarded()[1].replace(b"<IsTruncated>false</IsTruncated>", more))
        handler.answer(200, answers[0], {"Content-Type": "application/xml"})

    bucket.proxy.always = answer
    with pytest.raises(StorageError, match="lists the same objects again"):
        Store.open([location(url)]).ingest()


def test_more_objects_than_memory_holds_are_not_listed(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_storage, "MOST_OBJECTS", 2)
    put_run(tmp_path, count=3)
    with pytest.raises(StorageError, match="more than 2 objects: name a prefix of fewer"):
        Store.open([location(bucket.upload(tmp_path))]).ingest()
