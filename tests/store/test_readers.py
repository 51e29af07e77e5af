"""Large ingests are helped by processes, and come to the same without them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from sfapp.accounting import kernels
from sfapp.storage import FileStamp, FoundFile
from sfapp.store import IngestProgress, Store, parallel_reader
from sfapp.store.scan import BATCH_FILES, LEAST_BATCH_FILES, FollowedRoot, batches, scan
from sfapp.store.verdict_builder import read_batch
from tests.store.jobs import SLOW, contents, put, put_part, put_run, window

WINDOWS = 25
FILES = 3 * WINDOWS
FILES_A_HELPER = 30
"""Of this few files, two helpers take a part each."""


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packets")
    for number in range(WINDOWS):
        for run in ("a", "b", "c"):
            put(root, window(run, number, extra=SLOW if number % 7 == 3 else None))
    (root / "bad.parquet").write_text("bad")
    return root


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two helpers, on any machine and for this few files."""
    monkeypatch.setattr(parallel_reader, "FILES_A_HELPER", FILES_A_HELPER)
    monkeypatch.setattr(parallel_reader, "_cores", lambda: 3)


def filled(packets: Path, db: Path) -> dict[str, list[str]]:
    with Store.open([packets], db=db) as store:
        assert store.ingest().added == FILES
    return contents(db)


@pytest.fixture(scope="module")
def alone(packets: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Contents of a store that one process filled in one batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel_reader, "_cores", lambda: 1)
        return filled(packets, tmp_path_factory.mktemp("alone") / "alone.duckdb")


def test_helpers_change_nothing_but_the_time(
    packets: Path, tmp_path: Path, helped: None, alone: dict[str, list[str]]
) -> None:
    threads = kernels.threads()
    assert filled(packets, tmp_path / "together.duckdb") == alone
    assert kernels.threads() == threads


def test_an_ingest_of_a_server_keeps_no_garbage_of_pages_that_are_open(packets: Path, helped: None) -> None:
    gc.freeze()  # As a server does once it has loaded everything.
    exempt = gc.get_freeze_count()
    with Store.open([packets], memory=True) as store:
        assert store.ingest().added == FILES
    assert gc.get_freeze_count() <= exempt


def test_a_helper_that_cannot_start_is_done_without(
    packets: Path, tmp_path: Path, helped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for executable in ("/bin/false", str(tmp_path / "nowhere")):
        monkeypatch.setattr(sys, "executable", executable)
        with Store.open([packets], memory=True) as store:
            assert store.ingest().added == FILES


def test_a_helper_that_dies_is_done_without(packets: Path, helped: None) -> None:
    killed: list[int] = []

    def kill_helpers(progress: IngestProgress) -> None:
        for child in children():
            killed.append(child)
            os.kill(child, signal.SIGKILL)

    with Store.open([packets], memory=True) as store:
        assert store.ingest(kill_helpers).added == FILES
    assert len(killed) >= 2


def test_a_cancelled_ingest_leaves_no_helper(packets: Path, helped: None) -> None:
    cancel = threading.Event()
    with Store.open([packets], memory=True) as store:
        assert store.ingest(lambda progress: cancel.set(), cancel).cancelled
    assert children() == []


def test_helpers_end_with_the_process_that_started_them(packets: Path, tmp_path: Path) -> None:
    code = (
        "import os, sys, signal, pathlib\n"
        "from sfapp.store import Store, parallel_reader as readers\n"
        f"readers.FILES_A_HELPER, readers._cores = {FILES_A_HELPER}, lambda: 3\n"
        "def tell(progress):\n"
        "    tasks = pathlib.Path('/proc/self/task').glob('*/children')\n"
        "    print(*(task.read_text() for task in tasks), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "Store.open([sys.argv[1]], db=sys.argv[2]).ingest(tell)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, packets, tmp_path / "store.duckdb"], capture_output=True, text=True
    )
    assert killed.returncode == -signal.SIGKILL
    orphans = [int(pid) for pid in killed.stdout.split()]
    assert len(orphans) == 2
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}/status").exists() and "zombie" not in status(pid) for pid in orphans):
        assert time.monotonic() < end
        time.sleep(0.05)


def status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "zombie"


def children() -> list[int]:
    """Helpers that this process has started and that still run; other tests' children do not count."""
    tasks = Path("/proc/self/task").glob("*/children")
    started = [int(pid) for task in tasks for pid in task.read_text().split()]
    return [pid for pid in started if "sfapp.store" in command_line(pid)]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_the_last_batches_of_several_readers_are_smaller() -> None:
    files = [
        FoundFile(Path(f"run/{number:08}.parquet"), f"run/{number:08}.parquet", FileStamp(1, 0))
        for number in range(600)
    ]
    sizes = [len(batch) for batch in batches(files, tapered=True)]
    assert sum(sizes) == 600
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1] <= LEAST_BATCH_FILES) == (BATCH_FILES, True)
    assert [len(batch) for batch in batches(files)] == [128, 128, 128, 128, 88]


def test_packets_that_fill_the_memory_are_read_in_several_batches(tmp_path: Path) -> None:
    for number in range(4):
        put(tmp_path, window("a", number))
        for rank in range(3):  # the parts of a window stay together
            put_part(tmp_path, window("b", number), rank)
    files = scan([FollowedRoot(tmp_path).look()], {}, {}).fresh
    left, sizes = files, []
    while left:
        batch = read_batch(left, most_bytes=window("a", 0).duration_SNR.nbytes)
        assert batch.found == tuple(left[: len(batch.found)])
        sizes.append(len(batch.found))
        left = left[len(batch.found) :]
    assert sum(sizes) == 16
    assert max(sizes) < 8
    assert all(size % 3 == 0 for size in sizes[-2:])


@pytest.mark.parametrize("cores", [1, 3])
def test_an_ingest_in_many_batches_comes_to_the_same(
    packets: Path,
    tmp_path: Path,
    helped: None,
    alone: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
) -> None:
    monkeypatch.setattr(parallel_reader, "_cores", lambda: cores)
    monkeypatch.setattr(parallel_reader, "read_batch", partial(read_batch, most_bytes=20_000))
    assert filled(packets, tmp_path / "many.duckdb") == alone


def test_after_a_large_ingest_few_rows_wait_in_memory_for_a_checkpoint(tmp_path: Path) -> None:
    with Store.open([tmp_path]) as store:
        assert store.path is not None
        log = store.path.with_name("store.duckdb.wal")
        sizes = []
        # given more packets than a batch has, whose verdicts wait in the log for a checkpoint
        put_run(tmp_path, count=2 * BATCH_FILES)
        store.ingest(lambda progress: sizes.append(log.stat().st_size))
        assert max(sizes) > 2 << 20
        # when the next change is committed
        put(tmp_path, window("another"))
        store.ingest()
        # then they are in the file
        assert not log.exists() or log.stat().st_size < 1 << 20
