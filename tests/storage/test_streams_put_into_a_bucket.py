"""An aggregator puts the packets of a streamed job into a bucket, late ranks included."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import obstore
import pytest

from sfapp.packets import read_windows
from sfapp.packets import uploader as uploading
from sfapp.packets.output import open_output
from sfapp.packets.spool import SPOOL_VARIABLE
from sfapp.storage import location
from sfapp.stream import Aggregator
from sfapp.stream.messages import Ack
from tests.storage.bucket_jobs import numbers_in, waiting_in
from tests.storage.object_server import SLOW_DOWN, Bucket, ProxyHandler
from tests.stream.streams import LOOPBACK, ManualRank, free_port, recorder, running, train, until

pytestmark = pytest.mark.usefixtures("spool")


def aggregator_of(url: str, most_bytes: int = 2**30, **options: float) -> Aggregator:
    output = open_output(url, None, "aggregator", most_bytes, discards=False)
    return Aggregator(output, LOOPBACK, **options)


def names_in(bucket: Bucket) -> list[str]:
    return sorted(meta["path"].rpartition("/")[2] for page in obstore.list(bucket.store) for meta in page)


def window_of(rank: ManualRank) -> None:
    rank.send(rank.hello(world_size=2), rank.opened(0), rank.steps(1, [0, 1]), rank.closed(3, 2))


def test_an_aggregator_puts_packets_into_the_bucket(bucket: Bucket, spool: Path, tmp_path: Path) -> None:
    with running(aggregator_of(bucket.url)) as aggregator:
        with recorder(tmp_path, aggregator.endpoint) as perf:
            train(perf, 25)
        assert aggregator.failures == ()
    assert numbers_in(bucket.url) == [0, 1, 2]
    assert waiting_in(spool) == []


def test_runs_that_begin_while_the_bucket_does_not_answer_keep_no_other_waiting(bucket: Bucket) -> None:
    is_over = threading.Event()

    def hang(handler: ProxyHandler) -> None:
        is_over.wait(60)
        handler.answer(*handler.forwarded())

    with running(aggregator_of(bucket.url)) as aggregator, ExitStack() as stack:
        first, other = (
            stack.enter_context(ManualRank(aggregator.endpoint, 0, name)) for name in ("first", "other")
        )
        first.send(first.hello(run_id="first"), first.opened(0), first.steps(1, [0, 1]))
        until(lambda: aggregator.snapshot().ranks)
        bucket.proxy.always = hang
        other.send(other.hello(run_id="other"))
        first.send(first.closed(3, 2))
        assert first.receive_type(Ack, seconds=5.0).up_to_sequence == 4
        is_over.set()
        bucket.proxy.always = None

        def is_known() -> bool:
            other.send(other.hello(run_id="other"))  # as often as the aggregator asks for it
            return len(aggregator.snapshot().ranks) == 2

        until(is_known)
        other.send(other.opened(0), other.steps(1, [0, 1]), other.closed(3, 2))
        while other.receive_type(Ack).up_to_sequence < 4:
            pass
    assert len(read_windows([location(bucket.url)]).windows) == 2


def test_a_rank_that_arrives_after_the_upload_is_added_on_reading(bucket: Bucket) -> None:
    with running(aggregator_of(bucket.url, close_after=0.1)) as aggregator, ExitStack() as stack:
        early, late = (
            stack.enter_context(ManualRank(aggregator.endpoint, rank, f"p{rank}")) for rank in range(2)
        )
        window_of(early)
        until(lambda: names_in(bucket) == ["00000000.parquet"])
        window_of(late)
        assert late.receive_type(Ack).up_to_sequence == 4
        until(lambda: names_in(bucket) == ["00000000.parquet", "00000000.rank1.parquet"])
    loaded = read_windows([location(bucket.url)])
    assert not loaded.conflicts
    (found,) = loaded.windows
    assert found.window.ranks.rank == (0, 1)
    assert found.window.manifest.missing_ranks == ()


def test_a_rank_that_arrives_during_an_outage_is_merged(
    bucket: Bucket, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "_FIRST_PAUSE_S", 600.0)
    bucket.proxy.always = SLOW_DOWN
    with running(aggregator_of(bucket.url, close_after=0.1)) as aggregator, ExitStack() as stack:
        (folder,) = spool.glob("*/aggregator-0")
        (folder / "earlier").mkdir()
        (folder / "earlier" / "00000000.parquet").write_bytes(b"")
        until(lambda: any("packets wait in" in failure for failure in aggregator.failures))
        early, late = (
            stack.enter_context(ManualRank(aggregator.endpoint, rank, f"p{rank}")) for rank in range(2)
        )
        for rank in (early, late):
            window_of(rank)
            assert rank.receive_type(Ack).up_to_sequence == 4
        bucket.proxy.always = None
    assert names_in(bucket) == ["00000000.parquet"] * 2
    assert read_windows([location(f"{bucket.url}/run")]).windows[0].window.ranks.rank == (0, 1)


def test_ranks_keep_their_rows_while_the_spool_is_full(bucket: Bucket, tmp_path: Path, spool: Path) -> None:
    bucket.proxy.always = SLOW_DOWN
    with running(aggregator_of(bucket.url, most_bytes=1)) as aggregator:
        with recorder(tmp_path, aggregator.endpoint) as perf:
            train(perf, 10)
            until(lambda: not perf.pending)
            until(lambda: any("packets wait in" in failure for failure in aggregator.failures))
            train(perf, 20)
            until(lambda: any("the spool is full" in failure for failure in aggregator.failures))
            assert perf.pending == 2
            bucket.proxy.always = None
            until(lambda: not perf.pending)
        assert perf.failures == ()
    assert numbers_in(bucket.url) == [0, 1, 2]


def test_attempts_of_a_restarted_job_follow_the_windows_in_the_bucket(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attempt in range(2):
        # Each attempt runs on other machines: nothing but the bucket knows of the windows before
        monkeypatch.setenv(SPOOL_VARIABLE, str(tmp_path / f"spool of attempt {attempt}"))
        with running(aggregator_of(bucket.url)) as aggregator:
            with recorder(tmp_path / str(attempt), aggregator.endpoint) as perf:
                train(perf, 20)
            assert perf.failures == ()
    assert numbers_in(bucket.url) == [0, 1, 2, 3]


def test_windows_without_an_aggregator_are_put_into_the_bucket_as_parts(bucket: Bucket, spool: Path) -> None:
    perf = recorder(Path(), f"tcp://127.0.0.1:{free_port()}", output=bucket.url)
    train(perf, 25)
    assert names_in(bucket) == []
    perf.close()
    assert len(names_in(bucket)) == 3
    assert all(name.endswith(".rank0.parquet") for name in names_in(bucket))
    assert numbers_in(bucket.url) == [0, 1, 2]
    assert waiting_in(spool) == []
