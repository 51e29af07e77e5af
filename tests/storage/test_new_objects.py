"""New packets in a bucket are found without listing it all again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sfapp.storage import ObjectPath, location
from sfapp.storage import prefix_follower as following
from sfapp.storage.prefix_follower import PrefixFollower
from sfapp.store import Store
from sfapp.store import scan as scanning
from sfapp.store import watch as watching
from tests.storage.object_server import PAGE, Bucket
from tests.store.jobs import numbers, put, window
from tests.store.test_watch import wait_until, watched

OBJECTS = 8 * PAGE


class ManualClock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of the test's server."""
    monkeypatch.setattr(following, "PAGE", PAGE)


@contextmanager
def listings(bucket: Bucket, most: int) -> Iterator[None]:
    """Check the number of requests for pages within the block."""
    bucket.proxy.requests.clear()
    yield
    assert bucket.proxy.listings() <= most


def test_new_objects_are_found_by_the_order_of_their_names(bucket: Bucket, small_pages: None) -> None:
    for number in range(OBJECTS):
        bucket.put(f"jobs/old/{number:08d}.parquet", b"1")
    clock = ManualClock()
    path = location(f"{bucket.url}/jobs")
    assert isinstance(path, ObjectPath)
    follower = PrefixFollower(path.storage, path.key, ".parquet", clock)

    def found(*, everything: bool = False) -> tuple[set[str], bool]:
        listing = follower.look(everything=everything)
        return {
            str(file.path).removeprefix(f"{bucket.url}/jobs/") for file in listing.files
        }, listing.is_complete

    # All objects are listed once, by page
    with listings(bucket, 1 + OBJECTS // PAGE):
        names, is_complete = found()
    assert (len(names), is_complete) == (OBJECTS, True)

    # Then: a later window, a late part of another rank, and a new run
    last = OBJECTS - 1
    bucket.put(f"jobs/old/{last + 1:08d}.parquet", b"1")
    bucket.put(f"jobs/old/{last - 3:08d}.rank7.parquet", b"1")
    bucket.put("jobs/new/00000000.parquet", b"1")
    bucket.put("jobs/new/captures/1.json", b"1")
    bucket.put("jobs/.hidden/00000000.parquet", b"1")
    with listings(bucket, 4):
        names, is_complete = found()
    wanted = {f"old/{last + 1:08d}.parquet", f"old/{last - 3:08d}.rank7.parquet", "new/00000000.parquet"}
    assert (wanted <= names, is_complete) == (True, False)
    assert len(names) < 2 * following.LATE_WINDOWS + 3
    assert not any(name.startswith(".hidden") for name in names)

    # A run of which only captures have arrived so far, and its first packet
    bucket.put("jobs/later/captures/1.json", b"1")
    found()
    bucket.put("jobs/later/00000000.parquet", b"1")
    assert "later/00000000.parquet" in found()[0]

    # What is not guaranteed before the next complete listing: an old window, a removed one
    bucket.put("jobs/old/00000003.rank1.parquet", b"1")
    bucket.delete("jobs/old/00000004.parquet")
    assert "old/00000003.rank1.parquet" not in found()[0]
    # A run that has had no new packet for an hour costs no request
    clock.now += following.ACTIVE_S + 1
    follower._next_complete = clock.now + 1
    with listings(bucket, 1):
        assert found() == (set(), False)
    clock.now += 1
    names, is_complete = found()
    assert is_complete
    assert "old/00000003.rank1.parquet" in names
    assert "old/00000004.parquet" not in names


def test_a_small_bucket_is_listed_completely_each_time(bucket: Bucket) -> None:
    bucket.put("jobs/run/00000000.parquet", b"1")
    path = location(f"{bucket.url}/jobs")
    assert isinstance(path, ObjectPath)
    follower = PrefixFollower(path.storage, path.key, ".parquet")
    for _ in range(2):
        with listings(bucket, 1):
            assert follower.look(everything=False).is_complete
    bucket.delete("jobs/run/00000000.parquet")
    assert follower.look(everything=False).files == ()


def test_many_new_prefixes_are_listed_together(
    bucket: Bucket, small_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MOST_NEW", 4)
    for number in range(OBJECTS):
        bucket.put(f"jobs/run/{number:08d}.parquet", b"1")
    path = location(f"{bucket.url}/jobs")
    assert isinstance(path, ObjectPath)
    follower = PrefixFollower(path.storage, path.key, ".parquet")
    follower.look(everything=True)
    new = 3 * OBJECTS // PAGE
    for number in range(new):
        bucket.put(f"jobs/new{number}/00000000.parquet", b"1")
    pages = (OBJECTS + new) // PAGE + 1
    with listings(bucket, pages + new // PAGE + 3):  # and a look at the run and at the prefixes of the jobs
        listing = follower.look(everything=False)
    assert listing.is_complete
    assert len(listing.files) == OBJECTS + new


def test_prefixes_of_keys_with_hundreds_of_levels_are_not_followed(bucket: Bucket, small_pages: None) -> None:
    # Given a run, and packets with hundreds of prefixes each
    for number in range(OBJECTS):
        bucket.put(f"jobs/run/{number:08d}.parquet", b"1")
    for number in range(2):
        bucket.put(f"jobs/deep{number}/{'a/' * 400}0.parquet", b"1")
    path = location(f"{bucket.url}/jobs")
    assert isinstance(path, ObjectPath)
    follower = PrefixFollower(path.storage, path.key, ".parquet")
    # When they are listed, then they are found, and nothing is kept of their prefixes
    assert len(follower.look(everything=True).files) == OBJECTS + 2
    assert set(follower._prefixes) == {"jobs", "jobs/run"}
    # When looks at what is new follow, then no more than some levels are looked at
    for _ in range(following.MOST_LEVELS + 4):
        follower._pages, follower._next_complete = OBJECTS, follower._clock() + 1e6
        assert not follower.look(everything=False).is_complete
    deepest = max(follower._prefixes, key=len)
    assert deepest.count("/") == following.MOST_LEVELS
    assert len(follower._prefixes) == 2 + 2 * following.MOST_LEVELS


def test_a_watched_bucket_shows_new_packets(
    bucket: Bucket, tmp_path: Path, small_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "REMOTE_LOOK_S", 0.1)
    monkeypatch.setattr(watching, "_LOOK_S", 0.05)
    monkeypatch.setattr(watching, "_SCAN_EVERY_S", 0.05)
    first = put(tmp_path, window("run", 0)).read_bytes()
    bucket.put("packets/run/00000000.parquet", first)
    with Store.open([location(f"{bucket.url}/packets")]) as store, watched(store) as reports:
        wait_until(lambda: numbers(store) == [0])
        bucket.put("packets/run/00000001.parquet", put(tmp_path, window("run", 1)).read_bytes())
        wait_until(lambda: numbers(store) == [0, 1])
        bucket.delete("packets/run/00000000.parquet")
        wait_until(lambda: numbers(store) == [1])
    assert sum(report.added for report in reports) == 2
