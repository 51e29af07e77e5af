"""The stacks of another process, through a signal that needs no interpreter lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sfapp.errors import CaptureError
from sfapp.packets import stack_signal
from sfapp.packets.captures import ask_for_capture, new_stacks_request, state_of
from sfapp.packets.stack_files import read_stacks
from sfapp.packets.stack_requests import answer_from_outside, find_run
from sfapp.packets.stack_signal import claim, free_signal, parse_dump, stack_processes, stacks_by_signal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs real-time signals and /proc")

CHILD = """
import ctypes, os, sys, threading, time
from pathlib import Path
from sfapp.model.manifest import Parallelism, RecorderInfo
from sfapp.model.rank_table import RankIdentity
from sfapp.packets.job import JobInfo, JobRank
from sfapp.packets.stack_signal import publish

info = JobInfo(root=Path(sys.argv[1]), run_id="held", world_size=2, wrapper="other",
               parallelism=Parallelism(), prefetch="unknown", model_fit=False, recorder=RecorderInfo())
rank = JobRank(RankIdentity(rank=1, local_rank=1, node_rank=0, hostname="here", role=None), info)
ready = threading.Event()

def other():
    assert publish(rank, threading.main_thread().ident)
    ready.set()
    time.sleep(600)

threading.Thread(target=other, daemon=True).start()
ready.wait()

def hold_the_lock():
    begin = time.monotonic()
    os.write(1, b"held")
    ctypes.PyDLL(None).sleep(30)
    os.write(1, b"interrupted")

hold_the_lock()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@contextmanager
def holding_the_lock(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", CHILD, str(root)], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.read(4) == b"held"
            yield child
        finally:
            child.kill()


def test_a_process_that_holds_its_lock_shows_where_and_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "packets"
    with holding_the_lock(root) as child:
        place = find_run(root)
        assert (place.run_id, place.world_size, place.root) == ("held", 2, root)
        request = new_stacks_request(place.run_id, place.asked_ranks)
        ask_for_capture(root, request)
        answer_from_outside(root, request)
        (found,) = read_stacks(root, request)
        assert (found.rank, found.source, found.process) == (1, "signal", child.pid)
        training = found.threads[0]
        assert training.is_training
        assert [frame.function for frame in training.frames] == ["hold_the_lock", "<module>"]
        assert [each.status for each in state_of(root, request).ranks] == ["done"]

        (process,) = stack_processes("held", root)
        assert stacks_by_signal(process).threads[0] == training, "still in the same call, and again readable"
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        with pytest.raises(CaptureError, match="stopped"):
            stacks_by_signal(process)
        child.kill()
        child.wait()
        with pytest.raises(CaptureError, match="has ended"):
            stacks_by_signal(process)
        assert child.stdout is not None
        assert child.stdout.read() == b"", "the call of the training thread was not interrupted"
        assert stack_processes("held", root) == []


def test_no_signal_is_sent_to_a_process_that_would_end_by_it(tmp_path: Path) -> None:
    with holding_the_lock(tmp_path) as child, subprocess.Popen(["sleep", "30"]) as other:
        (process,) = stack_processes("held", tmp_path)
        started = stack_signal._state(other.pid)[1]
        stranger = type(process)(
            **{field: getattr(process, field) for field in process.__struct_fields__}
            | {"process": other.pid, "thread": other.pid, "started": started}
        )
        with pytest.raises(CaptureError, match="does not answer the signal"):
            stacks_by_signal(stranger)
        assert other.poll() is None
        other.kill()
        # Containers that share a temporary folder have processes of the same number.
        published = stack_signal._published_path(stack_signal.stack_folder(), child.pid)
        elsewhere = published.rename(published.with_name(f"1-{child.pid}.json"))
        assert stack_processes("held", tmp_path) == []
        assert elsewhere.exists(), "files of another PID namespace are left alone"
        child.kill()


def test_a_used_signal_is_left_alone_and_an_open_folder_is_refused(tmp_path: Path) -> None:
    first = free_signal()
    before = signal.signal(first, lambda *_: None)
    try:
        assert free_signal() == first - 1
    finally:
        signal.signal(first, before)
    assert claim("one", 3)
    assert not claim("one", 3)
    assert claim("one", 4)
    stack_signal.stack_folder().chmod(0o777)
    assert claim("one", 3), "the folder is not used"
    assert stack_processes("held", tmp_path) == []


def test_only_complete_and_bounded_text_is_taken_from_a_dump() -> None:
    begin = time.perf_counter()
    text = (
        'Thread 0x00000000000000ff [a name] (most recent call first):\n  File "a", b.py", line ??? in f\n'
        "  <no Python frame>\n  ...\n\nThread 0x00000000000000aa (most recent call first):\n"
        + '  File "x.py", line 3 in g\n' * 500
        + '\nCurrent thread 0x0000000000000001 (most recent call first):\n  File "own.py", line 1 in wait\n'
        + "Thread 0xzz (most recent call first):\n"
        + "  File" * 10_000
    )
    threads = parse_dump(text, training=0xAA)
    assert [(each.name, len(each.frames), each.is_training) for each in threads] == [
        ("thread 0xaa", 100, True),
        ("a name", 1, False),
    ]
    assert threads[1].frames[0].file == 'a", b.py'
    assert threads[1].frames[0].line == 0
    assert time.perf_counter() - begin < 5
    assert parse_dump("garbage", training=1) == ()
