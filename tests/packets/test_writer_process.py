"""A separate process writes packets, and the process that started it loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from sfapp.errors import PacketError
from sfapp.packets import WindowDraft, read_window, write_packet
from sfapp.packets.writer_process import WriterProcess, WriterProcessEnded
from tests.builders import ddp_job, window_of
from tests.writer_processes import writer_processes_of

PATIENCE = 60.0  # seconds


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def writer() -> Iterator[WriterProcess]:
    started = WriterProcess()
    yield started
    started.close()
    eventually(lambda: not writer_processes_of())


def draft(window: int = 0) -> WindowDraft:
    return WindowDraft.of(window_of(ddp_job(ranks=4, steps=5), window=window))


def write_when_ready(writer: WriterProcess, what: WindowDraft, path: Path) -> None:
    def written() -> bool:
        try:
            writer.write([(what, path)], PATIENCE)
        except WriterProcessEnded:
            return False
        return True

    eventually(written)


def test_a_window_is_written_over_there_as_it_would_be_here(tmp_path: Path, writer: WriterProcess) -> None:
    write_when_ready(writer, draft(), tmp_path / "there" / "00000000.parquet")
    write_packet(draft(), tmp_path / "here" / "00000000.parquet")
    there, here = (tmp_path / place / "00000000.parquet" for place in ("there", "here"))
    assert there.read_bytes() == here.read_bytes()


def test_what_is_refused_over_there_is_refused_with_the_same_words(
    tmp_path: Path, writer: WriterProcess
) -> None:
    path = tmp_path / "00000000.parquet"
    wrong = replace(draft(), wall_NR=-draft().wall_NR)
    with pytest.raises(PacketError) as here:
        write_packet(wrong, path)
    write_when_ready(writer, draft(), path)
    there, none = writer.write([(wrong, path), (draft(), path)], PATIENCE)  # and it goes on
    assert str(there) == str(here.value)
    assert none is None
    assert read_window(path).number == 0


def test_a_killed_writer_is_reported_and_leaves_no_half_packet(tmp_path: Path, writer: WriterProcess) -> None:
    write_when_ready(writer, draft(), tmp_path / "run" / "00000000.parquet")
    for process in writer_processes_of():
        process.kill()
    with pytest.raises(WriterProcessEnded, match="ended with -9") as gone:
        writer.write([(draft(1), tmp_path / "run" / "00000001.parquet")], PATIENCE)
    assert gone.value.for_good
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["00000000.parquet"]


def test_a_writer_that_is_late_is_used_again_once_it_has_caught_up(
    tmp_path: Path, writer: WriterProcess
) -> None:
    write_when_ready(writer, draft(), tmp_path / "00000000.parquet")
    (process,) = writer_processes_of()
    process.suspend()
    with pytest.raises(WriterProcessEnded, match=r"took longer than 0\.2 s") as late:
        writer.write([(draft(1), tmp_path / "00000001.parquet")], 0.2)
    assert not late.value.for_good
    with pytest.raises(WriterProcessEnded, match="busy"):
        writer.write([(draft(2), tmp_path / "00000002.parquet")], PATIENCE)
    process.resume()
    write_when_ready(writer, draft(3), tmp_path / "00000003.parquet")
    wrong = replace(draft(4), wall_NR=-draft(4).wall_NR)
    (refusal,) = writer.write([(wrong, tmp_path / "00000004.parquet")], PATIENCE)
    assert isinstance(refusal, PacketError), "answers belong to their requests"
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"0000000{n}.parquet" for n in (0, 1, 3)]


def test_a_writer_that_reads_nothing_of_a_large_window_is_given_up(
    tmp_path: Path, writer: WriterProcess
) -> None:
    larger_than_the_buffer = WindowDraft.of(window_of(np.ones((6, 20, 2_000), dtype=np.int64), window=1))
    write_when_ready(writer, draft(), tmp_path / "00000000.parquet")
    for process in writer_processes_of():
        process.suspend()
    with pytest.raises(WriterProcessEnded, match=r"took longer than 0\.2 s") as gone:
        writer.write([(larger_than_the_buffer, tmp_path / "00000001.parquet")], 0.2)
    assert gone.value.for_good


def test_it_ignores_what_ends_the_job_until_the_job_has_ended(tmp_path: Path, writer: WriterProcess) -> None:
    write_when_ready(writer, draft(), tmp_path / "00000000.parquet")
    for process in writer_processes_of():
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
    writer.write([(draft(), tmp_path / "00000001.parquet")], PATIENCE)
    assert (tmp_path / "00000001.parquet").exists()


def test_its_priority_is_the_lowest_even_where_training_has_a_real_time_one(tmp_path: Path) -> None:
    was = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        pytest.skip("real-time policies are not permitted here")
    try:
        writer = WriterProcess()
    finally:
        os.sched_setscheduler(0, *was)
    try:
        write_when_ready(writer, draft(), tmp_path / "00000000.parquet")
        (process,) = writer_processes_of()
        assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER
        assert process.nice() == 19
    finally:
        writer.close()


def test_it_ends_with_the_process_that_started_it_even_if_a_forked_one_lives_on() -> None:
    job = """
import os, time
from sfapp.packets.writer_process import WriterProcess
writer = WriterProcess()
while not writer._connection.poll():
    time.sleep(0.02)
if os.fork() == 0:  # as a DataLoader's worker: it holds the socket, too
    os.close(1)
    time.sleep(60)
    os._exit(0)
print(os.getpid(), flush=True)
os._exit(0)
"""
    run = subprocess.run([sys.executable, "-c", job], stdout=subprocess.PIPE, text=True, timeout=PATIENCE)
    starter = int(run.stdout)
    workers = [
        process for process in psutil.process_iter(["cmdline"]) if job in (process.info["cmdline"] or ())
    ]
    try:
        assert workers  # or nothing would be shown
        eventually(lambda: not writer_processes_of(starter))
    finally:
        for worker in workers:
            worker.kill()


def test_what_a_killed_job_left_to_write_replaces_no_window_of_its_successor(tmp_path: Path) -> None:
    job = f"""
import os, sys, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from sfapp.packets.writer_process import WriterProcess, WriterProcessEnded
from tests.packets.test_writer_process import draft, write_when_ready, writer_processes_of
writer, folder = WriterProcess(), Path({str(tmp_path)!r})
write_when_ready(writer, draft(), folder / "00000000.parquet")
(process,) = writer_processes_of()
process.suspend()
try:
    writer.write([(draft(1), folder / "00000001.parquet")], 0.2)
except WriterProcessEnded:
    print(process.pid, flush=True)
    os._exit(0)
"""
    run = subprocess.run([sys.executable, "-c", job], stdout=subprocess.PIPE, text=True, timeout=PATIENCE)
    process = psutil.Process(int(run.stdout))
    successor = tmp_path / "00000001.parquet"
    successor.write_bytes(b"of the next attempt")
    process.resume()
    process.wait(PATIENCE)
    assert successor.read_bytes() == b"of the next attempt"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000000.parquet", "00000001.parquet"]
