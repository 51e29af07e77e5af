"""What happens to a spool while a recorder uses it ends neither the upload nor training."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import NoReturn
from unittest.mock import Mock

import pytest

from sfapp.packets.spool import SPOOL_VARIABLE, Spool
from tests.storage.bucket_jobs import numbers_in, record, train, until
from tests.storage.object_server import SLOW_DOWN, Bucket

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


def test_a_packet_may_have_left_the_spool_while_its_ledger_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rank that is late must not become a whole packet, which readers would show instead of the others'."""
    first = Spool.open("s3://bucket", "aggregator")
    packets = [first.folder / "run" / f"{number:08d}.parquet" for number in range(2)]
    packets[0].parent.mkdir()
    packets[0].touch()
    first.claim(first.waiting()[0]).unlink()
    first.close()
    again = Spool.open("s3://bucket", "aggregator")
    with monkeypatch.context() as patch:
        patch.setattr("sfapp.packets.spool.open_regular", Mock(side_effect=OSError(errno.EIO, "I/O error")))
        assert [again.has_claimed(packet) for packet in packets] == [True, True]
    assert [again.has_claimed(packet) for packet in packets] == [True, False]
    again.close()


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


def test_a_spool_named_from_the_first_folder_stays_there_if_training_goes_to_another(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SPOOL_VARIABLE, "spool")
    (tmp_path / "elsewhere").mkdir()
    bucket.proxy.always = SLOW_DOWN
    perf = record(bucket.url, windows=2)
    monkeypatch.chdir(tmp_path / "elsewhere")
    train(perf, windows=1)
    bucket.proxy.always = None
    perf.close()
    assert numbers_in(bucket.url) == [0, 1, 2]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_user_without_a_home_directory_gets_a_spool_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> NoReturn:
        raise KeyError(uid)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    for name in ("HOME", "XDG_STATE_HOME", SPOOL_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    spool = Spool.open("s3://bucket", "recorder")
    spool.close()
    assert spool.folder.is_relative_to(tmp_path / "temporary")
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]


def test_what_was_taken_over_is_not_replaced_by_a_packet_of_the_same_name(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs of one run wrote it, and none of them could upload it."""
    monkeypatch.setattr("sfapp.packets.spool._RESTART_SECONDS", -1.0)
    ended, other = (Spool.open("s3://bucket", "recorder") for _ in range(2))
    for each in (ended, other):
        (each.folder / "run").mkdir()
        (each.folder / "run" / "00000000.parquet").write_text(each.folder.name)
    ended.close()
    other.adopt()
    other.claim_all()  # as the next process of this folder does

    def content() -> list[str]:
        return sorted(path.read_text() for path in spool.rglob("*00000000.parquet*"))

    assert content() == ["recorder-0", "recorder-1"]
    taken, own = other.waiting()
    with pytest.raises(FileExistsError):
        other.claim(own)
    taken.path.unlink()  # It was uploaded.
    assert other.claim(own).read_text() == "recorder-1"
    other.close()


def fail(path: Path) -> NoReturn:
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
