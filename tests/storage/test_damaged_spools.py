"""What happens to a spool while a recorder uses it ends neither the upload nor training."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from tests.storage.bucket_jobs import numbers_in, record, train, until
from tests.storage.object_server import Bucket

pytestmark = pytest.mark.usefixtures("spool")


@pytest.mark.parametrize("removed", ["recorder-0", "."])
def test_a_spool_that_is_removed_ends_neither_the_upload_nor_training(
    bucket: Bucket, spool: Path, removed: str
) -> None:
    perf = record(bucket.url)
    (target,) = spool.iterdir()
    until(lambda: numbers_in(bucket.url) == [0])
    shutil.rmtree(target / removed)
    train(perf, windows=1)
    until(lambda: numbers_in(bucket.url) == [0, 1])
    shutil.rmtree(target / removed)
    perf.close()
    assert perf.failures == ()


def test_a_spool_that_cannot_be_listed_at_the_end_is_named(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    perf = record(bucket.url)
    monkeypatch.setattr("sfapp.packets.spool._folders_in", fail)
    perf.close()
    assert "files may wait, which cannot be listed (OSError: " in perf.failures[-1]


@pytest.mark.parametrize("name", [b"\xff", b"line\nbreak", b"\x01"])
def test_names_that_no_object_can_have_keep_no_packet_waiting(
    bucket: Bucket, spool: Path, name: bytes
) -> None:
    perf = record(bucket.url)
    until(lambda: numbers_in(bucket.url) == [0])
    (folder,) = spool.glob("*/recorder-0")
    for run, stem in ((b"run", name), (name, b"00000000")):
        foreign = os.path.join(os.fsencode(folder), run, stem + b".parquet")
        os.makedirs(os.path.dirname(foreign), exist_ok=True)
        with open(foreign, "wb"):
            os.utime(foreign, (0, 0))  # so that it comes first
    train(perf, windows=1)
    until(lambda: numbers_in(bucket.url) == [0, 1])
    perf.close()
    assert perf.failures == ()


def fail(path: Path) -> NoReturn:
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
