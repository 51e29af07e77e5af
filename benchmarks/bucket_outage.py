"""Measure a job that records into a bucket which is unreachable for ten minutes: its steps, and what arrives.

``python -m benchmarks.bucket_outage --minutes 10`` runs for the outage and two minutes on either side. In the
first half of the outage connections are refused, in the second half they are accepted and never answered. A
second job beside it records into a folder: its steps show what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import obstore

from benchmarks.s3_server import make_bucket, s3_environment, s3_server
from sfapp.packets.paths import packet_path

BUCKET, RUN = "packets", "outage"
STEP_S, WINDOW_STEPS = 0.02, 50
AROUND_S = 120.0
"""Duration before the outage, and after it."""

WARM_UP_S = 5.0
"""Duration at the beginning that does not count."""

MOST_LONGER = 0.01
"""Largest difference of the mean step in the outage from that before it, beyond that of the job beside it."""

_JOB = f"""
import json, sys, time
import numpy as np
from sfapp.recorder import Recorder

address, seconds, out = sys.argv[1], float(sys.argv[2]), sys.argv[3]
values = np.random.default_rng(0).random((320, 320))
rows = []
with Recorder(address, run_id="outage", window_steps={WINDOW_STEPS}, timeout=60.0) as perf:
    print(flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        with perf.step():
            with perf.stage("data.next_wait"):
                time.sleep({STEP_S / 2})
            with perf.stage("model.fwd_loss_cpu_wall"):
                for _ in range(4):
                    values @ values
        rows.append((time.time(), time.perf_counter() - began))
with open(out, "w") as file:
    json.dump({{"rows": rows, "failures": perf.failures}}, file)
"""


class Gate:
    """Port through which a server is reached, refused or not answered, inside the ``with`` block."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._is_silent = False
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._server: asyncio.Server | None = None
        self.port = 0

    def __enter__(self) -> Gate:
        self._thread.start()
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self) -> None:
        """Pass requests on."""
        self._is_silent = False
        self._run(self._listen())

    def refuse(self) -> None:
        """Refuse connections, and end those that are open."""
        self._run(self._close())

    def ignore(self) -> None:
        """Accept connections and answer nothing."""
        self._is_silent = True
        self._run(self._listen())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _listen(self) -> None:
        await self._close()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self._is_silent:
                while await reader.read(65536):
                    pass
                return
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            try:
                await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
            finally:
                there_writer.close()
        except (OSError, asyncio.CancelledError):
            return
        finally:
            self._tasks.discard(task)
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(65536):
        writer.write(part)
        await writer.drain()
    writer.close()


@dataclass(frozen=True, slots=True)
class Outage:
    """What an outage cost.

    Attributes:
        windows: paths of the windows that the job recorded, below the bucket. objects: those in the bucket.
        waiting: packets in the spool after half of the outage. left: those at the end.
        failures: as the recorder names them.
        steps: of the job with the bucket and of that with the folder.
    """

    windows: frozenset[str]
    objects: frozenset[str]
    waiting: int
    left: int
    failures: tuple[str, ...]
    steps: tuple[StepsAroundOutage, StepsAroundOutage]

    @property
    def is_delivered(self) -> bool:
        """Whether every window is in the bucket, and nothing else."""
        return self.objects == self.windows and not self.left

    @property
    def longer(self) -> float:
        """How much longer steps got in the outage than those of the job beside it."""
        bucket, folder = (each.mean_in_s / each.mean_before_s for each in self.steps)
        return bucket / folder - 1

    def lines(self) -> list[str]:
        """Return it as text."""
        return [
            f"{len(self.windows)} windows recorded, {len(self.objects)} objects, {self.left} left in the "
            f"spool; {self.waiting} waited after half of the outage.",
            *(f"Failure named: {failure}" for failure in self.failures),
            *(f"{name}: {each}" for name, each in zip(("Bucket", "Folder"), self.steps, strict=True)),
            f"Steps got longer by {self.longer:+.2%} beside the job with a folder (bar: {MOST_LONGER:.0%}).",
            "holds" if self.is_delivered and self.longer <= MOST_LONGER else "MISSED",
        ]


@dataclass(frozen=True, slots=True)
class StepsAroundOutage:
    """Steps of a job before an outage and in it: mean and 99th percentile, s."""

    mean_before_s: float
    mean_in_s: float
    p99_before_s: float
    p99_in_s: float

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]], began: float, ended: float) -> StepsAroundOutage:
        """Return them from rows of time and duration, without the first seconds.

        Args:
            began, ended: of the outage, s since 1970.
        """
        at, step = np.array(rows).T
        before = step[(at > at[0] + WARM_UP_S) & (at < began)]
        during = step[(at > began) & (at < ended)]
        means = float(before.mean()), float(during.mean())
        return cls(*means, float(np.quantile(before, 0.99)), float(np.quantile(during, 0.99)))

    def __str__(self) -> str:
        return (
            f"mean step {self.mean_before_s * 1e3:.3f} ms before, {self.mean_in_s * 1e3:.3f} ms in the "
            f"outage, 99th percentile {self.p99_before_s * 1e3:.2f} and {self.p99_in_s * 1e3:.2f} ms"
        )


def outage(minutes: float, around_s: float = AROUND_S) -> Outage:
    """Record while a bucket cannot be reached.

    Args:
        minutes: duration of the outage.
        around_s: seconds before it, and after it.
    """
    with tempfile.TemporaryDirectory(prefix="outage-") as name, s3_server() as port, Gate(port) as gate:
        folder = Path(name)
        bucket = make_bucket(port, BUCKET)
        environment = s3_environment(gate.port) | {
            "SFAPP_SPOOL": str(folder / "spool"),
            "PATH": "/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
        }
        seconds = str(2 * around_s + 60 * minutes)
        jobs = [
            subprocess.Popen(
                [sys.executable, "-c", _JOB, address, seconds, str(folder / f"{number}.json")],
                env=environment,
                stdout=subprocess.PIPE,
            )
            for number, address in enumerate([f"s3://{BUCKET}", str(folder / "packets")])
        ]
        for job in jobs:
            assert job.stdout is not None
            job.stdout.readline()  # it has begun
        time.sleep(around_s)
        began = time.time()
        gate.refuse()
        time.sleep(30 * minutes)
        waiting = _packets(folder / "spool")
        gate.ignore()
        time.sleep(30 * minutes)
        ended = time.time()
        gate.open()
        for job in jobs:
            job.communicate(timeout=around_s + 120)
            if job.returncode:
                raise RuntimeError(f"a job ended with {job.returncode}")
        in_bucket, in_folder = (json.loads((folder / f"{number}.json").read_text()) for number in range(2))
        windows = math.ceil(len(in_bucket["rows"]) / WINDOW_STEPS)
        return Outage(
            frozenset(str(packet_path(Path(), RUN, number)) for number in range(windows)),
            frozenset(meta["path"] for page in obstore.list(bucket) for meta in page),
            waiting,
            _packets(folder / "spool"),
            tuple(in_bucket["failures"]),
            (
                StepsAroundOutage.of(in_bucket["rows"], began, ended),
                StepsAroundOutage.of(in_folder["rows"], began, ended),
            ),
        )


def _packets(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.parquet"))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="duration of the outage")
    parser.add_argument("--around", type=float, default=AROUND_S, help="seconds before it, and after it")
    chosen = parser.parse_args(arguments)
    lines = outage(chosen.minutes, chosen.around).lines()
    print(*lines, sep="\n")
    sys.exit(lines[-1] != "holds")


if __name__ == "__main__":
    main(sys.argv[1:])
