"""A dataset of verdicts in a bucket: several machines add to it, and no window is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfapp.errors import StorageError, StoreError
from sfapp.storage import location
from sfapp.store import Store, ingest_to_dataset
from tests.commands import run_sfapp
from tests.storage.object_server import DENIED, Bucket, ProxyHandler, refused
from tests.store.jobs import later, numbers, put, put_run, window


def test_packets_and_verdicts_may_both_be_in_buckets(bucket: Bucket, tmp_path: Path) -> None:
    put_run(tmp_path, "a")
    packets, target = bucket.upload(tmp_path), f"{bucket.url}/verdicts"
    printed = run_sfapp("ingest", packets, "--to", target)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.startswith("5 packets read")
    assert f"5 windows in {target}" in printed.stdout
    assert run_sfapp("ingest", packets, "--to", target).stdout.startswith("0 packets read")
    of_verdicts, of_packets = (run_sfapp("fleet", each, "--json") for each in (target, packets))
    assert of_verdicts.stdout == of_packets.stdout != ""


def test_what_another_machine_adds_meanwhile_is_kept(bucket: Bucket, tmp_path: Path) -> None:
    """The other machine writes a window of the same run while this one is about to replace the file."""
    for number in range(4):
        put(tmp_path / f"{number % 2}", window("a", number))
    target = location(f"{bucket.url}/verdicts")
    ingest_to_dataset([tmp_path / "0" / "a" / "00000000.parquet"], target)
    others = iter([tmp_path / "1"])

    def interfere(handler: ProxyHandler) -> None:
        answer = handler.forwarded()
        if handler.command == "GET" and "list-type" not in handler.path and (path := next(others, None)):
            ingest_to_dataset([path], target)
        handler.answer(*answer)

    bucket.proxy.always = interfere
    ingest_to_dataset([tmp_path / "0"], target)
    with Store.open([target], memory=True) as store:
        store.ingest()
        assert numbers(store) == [0, 1, 2, 3]


def test_what_another_machine_adds_to_a_file_that_is_no_longer_needed_is_kept(
    bucket: Bucket, tmp_path: Path
) -> None:
    """The packet of this machine has moved to another day, and the other one writes to the old day's file."""
    target = location(f"{bucket.url}/verdicts")
    one, other, monday, tuesday = (
        tmp_path / "0",
        tmp_path / "1",
        "2026-11-23T10:00:00Z",
        "2026-11-24T10:00:00Z",
    )
    put(one, window("a", 0, started_at=monday, ended_at=monday))
    put(other, window("a", 5, started_at=monday, ended_at=monday))
    ingest_to_dataset([one], target)
    later(put(one, window("a", 0, started_at=tuesday, ended_at=tuesday)))
    others = iter([other])

    def interfere(handler: ProxyHandler) -> None:
        answer = handler.forwarded()
        if handler.command == "PUT" and (path := next(others, None)):
            ingest_to_dataset([path], target)
        handler.answer(*answer)

    bucket.proxy.always = interfere
    ingest_to_dataset([one], target)
    with Store.open([target], memory=True) as store:
        store.ingest()
        assert numbers(store) == [0, 5]


def test_a_file_is_read_once_its_access_is_granted(bucket: Bucket, tmp_path: Path) -> None:
    for run in ("a", "b"):
        put_run(tmp_path / "packets", run)
    target = location(f"{bucket.url}/verdicts")
    ingest_to_dataset([tmp_path / "packets"], target)

    def deny(handler: ProxyHandler) -> None:
        if handler.path.endswith(".verdicts.parquet") and "a/day" in handler.path:
            DENIED(handler)
        else:
            handler.answer(*handler.forwarded())

    with Store.open([target], tmp_path / "store.duckdb") as store:
        bucket.proxy.always = deny
        store.ingest()
        assert list(store.window_numbers(["a", "b"])) == ["b"]
        assert ["403 Forbidden" in file.reason for file in store.quarantine()] == [True]
        generation = store.generation
        store.ingest()
        assert store.generation == generation  # All pages would be made again with each scan.
        bucket.proxy.always = None
        store.ingest()
        assert len(numbers(store)) == 10
        assert not store.quarantine()


def test_a_bucket_that_refuses_is_named(bucket: Bucket, tmp_path: Path) -> None:
    put_run(tmp_path, "a")

    def read_only(handler: ProxyHandler) -> None:
        if handler.command == "PUT":
            refused(403, "AccessDenied", "no")(handler)
        else:
            handler.answer(*handler.forwarded())

    bucket.proxy.always = read_only
    with pytest.raises(StorageError, match="AccessDenied"):
        ingest_to_dataset([tmp_path], location(f"{bucket.url}/verdicts"))
    with pytest.raises(StoreError, match="a web server takes no files"):
        ingest_to_dataset([tmp_path], location("http://127.0.0.1:1/verdicts"))
