"""The causes that make one rank late, each a real one: started and stopped with its windows."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.experiments.slow_files import RECORD, RECORD_SECONDS, SlowFiles
from benchmarks.experiments.why_plan import DELAY, WhyJob

QUOTA_US, PERIOD_US = 1_500, 20_000
"""Quota of the throttled rank: 7.5 % of a core."""

HEAP_LISTS = 120_000
PAGES_MB = 48

_HOG = "import os,sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"

_SERVICE = """
import random, socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
while connection.recv(1):
    time.sleep(float(sys.argv[1]) * random.uniform(0.5, 1.5))
    connection.sendall(b"r")
"""


class PlantedCauses:
    """What can delay this rank. ``stack`` ends everything that was started.

    Attributes:
        in_data, in_forward: what the current cause does in these stages.
    """

    def __init__(self, job: WhyJob, scratch: Path, random_of: random.Random) -> None:
        self.job, self.scratch, self.random = job, scratch, random_of
        self.in_data: Callable[[], None] = _nothing
        self.in_forward: Callable[[], None] = _nothing

    @contextlib.contextmanager
    def active(self, family: str | None) -> Iterator[None]:
        """Cause it while the context lasts."""
        starts: dict[str, Callable[[contextlib.ExitStack], None]] = {
            "cpu hog": self._hog,
            "cgroup throttling": self._throttle,
            "garbage collector": self._collect,
            "slow storage": self._slow_storage,
            "page faults": self._fault_pages,
            "lock": self._lock,
            "remote service": self._service,
        }
        with contextlib.ExitStack() as stack:
            if family in starts:
                starts[family](stack)
            yield
        self.in_data = self.in_forward = _nothing

    def _strength(self) -> float:
        """Return how strong the cause is in a step: real ones vary."""
        return self.random.uniform(0.5, 1.5)

    def _hog(self, stack: contextlib.ExitStack) -> None:
        """Run a process of higher priority on this rank's only core."""
        core = max(os.sched_getaffinity(0))
        hog = subprocess.Popen([sys.executable, "-c", _HOG, str(core)])
        stack.callback(hog.wait)
        stack.callback(hog.kill)
        own = os.getpriority(os.PRIO_PROCESS, 0)
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, hog.pid, max(-20, own - 15))
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})
        stack.callback(os.sched_setaffinity, 0, everywhere)

    def _throttle(self, stack: contextlib.ExitStack) -> None:
        """Give this rank's control group a quota of CPU time."""
        stack.callback(set_quota, self.job.group, None)
        set_quota(self.job.group, QUOTA_US)

    def _collect(self, stack: contextlib.ExitStack) -> None:
        """Collect garbage again and again, on a heap of many containers."""
        heap = [[number] for number in range(HEAP_LISTS)]
        stack.callback(heap.clear)
        begin = time.thread_time()
        gc.collect()
        each = time.thread_time() - begin
        most = max(1, round(DELAY / each))

        def collect() -> None:
            for _ in range(round(most * self._strength())):
                gc.collect()

        self.in_forward = collect

    def _slow_storage(self, stack: contextlib.ExitStack) -> None:
        """Read records from a file system that delays each read."""
        files = SlowFiles(self.scratch / "slow")
        stack.callback(files.close)
        shard = os.open(files.path, os.O_RDONLY)
        stack.callback(os.close, shard)
        records = round(DELAY / RECORD_SECONDS)

        def read() -> None:
            for record in range(round(records * self._strength())):
                os.pread(shard, RECORD, record * RECORD)

        self.in_data = read

    def _fault_pages(self, stack: contextlib.ExitStack) -> None:
        """Touch memory for the first time in each step, page by page, and give it back."""
        memory = mmap.mmap(-1, PAGES_MB << 20)
        stack.callback(memory.close)
        memory.madvise(mmap.MADV_NOHUGEPAGE)

        def touch(pages: int) -> None:
            for begin in range(0, pages, len(memory) // mmap.PAGESIZE):
                part = min(pages - begin, len(memory) // mmap.PAGESIZE) * mmap.PAGESIZE
                memory[: part : mmap.PAGESIZE] = bytes(part // mmap.PAGESIZE)
                memory.madvise(mmap.MADV_DONTNEED)

        begin = time.thread_time()
        touch(4096)
        pages = DELAY / (time.thread_time() - begin) * 4096
        self.in_data = lambda: touch(round(pages * self._strength()))

    def _lock(self, stack: contextlib.ExitStack) -> None:
        """Wait for a lock that a thread of this process holds."""
        lock, asked, held = threading.Lock(), threading.Event(), threading.Event()
        ended = threading.Event()

        def hold() -> None:
            while not ended.is_set():
                asked.wait()
                asked.clear()
                with lock:
                    held.set()
                    time.sleep(DELAY * self._strength())

        def wait() -> None:
            held.clear()
            asked.set()
            held.wait()
            with lock:
                pass

        threading.Thread(target=hold, daemon=True).start()
        stack.callback(asked.set)
        stack.callback(ended.set)
        self.in_forward = wait

    def _service(self, stack: contextlib.ExitStack) -> None:
        """Ask a service in another process that answers late."""
        service = subprocess.Popen(
            [sys.executable, "-c", _SERVICE, str(DELAY)], stdout=subprocess.PIPE, text=True
        )
        stack.callback(service.wait)
        stack.callback(service.kill)
        assert service.stdout is not None
        connection = socket.create_connection(("127.0.0.1", int(service.stdout.readline())))
        stack.callback(connection.close)

        def ask() -> None:
            connection.sendall(b"a")
            connection.recv(1)

        self.in_data = ask


def _nothing() -> None:
    pass


def join_group(group: Path) -> None:
    """Create a control group without a quota, and move this process there."""
    group.mkdir(exist_ok=True)
    set_quota(group, None)
    (group / "cgroup.procs").write_text(str(os.getpid()))


def leave_group(group: Path) -> None:
    """Move this process to the control group above, and remove its own."""
    (group.parent / "cgroup.procs").write_text(str(os.getpid()))
    group.rmdir()


def set_quota(group: Path, quota_us: int | None) -> None:
    """Set the quota of CPU time of a control group; None for no limit."""
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{'max' if quota_us is None else quota_us} {PERIOD_US}")
        return
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(-1 if quota_us is None else quota_us))
