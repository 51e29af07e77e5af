"""Show a fleet on one machine: an S3 server, many generated jobs in a bucket, Ray, and the app.

``make fleet-demo`` puts 200 jobs into the bucket, ingests them on Ray and serves them. A rank on one host is
late in many jobs: ``/fleet`` names that host.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import obstore
from obstore.store import S3Store

from benchmarks.generated_jobs import noisy_durations, window_on_hosts
from benchmarks.s3_server import make_bucket, s3_environment, s3_server
from sfapp.model import Window
from sfapp.packets import packet_path, write_packet

RANKS, STEPS, WINDOWS = 16, 20, 4
LATE_HOST, LATE_RANK = "gpu-042", 11
HOSTS = 60
BUCKET = "fleet"

_SFAPP = (sys.executable, "-c", "from sfapp.cli import main; main()")


@dataclass(frozen=True)
class FleetDemo:
    """Bucket with jobs and with the verdicts on them, and the environment in which it can be read."""

    packets: str
    verdicts: str
    environment: dict[str, str]

    def run(self, *arguments: str) -> str:
        """Run ``sfapp`` with these arguments and return what it printed."""
        done = subprocess.run(
            [*_SFAPP, *arguments], env=self.environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout


def demo_window(run: int, number: int) -> Window:
    """Return a window of a job on two hosts; every other job runs on the late host, and is late from its
    second window on."""
    is_late = run % 2 == 0
    durations = noisy_durations(RANKS, STEPS, run * WINDOWS + number)
    if is_late and number >= WINDOWS // 2:
        durations[0, :, LATE_RANK] += 40_000_000
    # As in DDP, ranks synchronise at the end of backward in every window.
    ready_NR = durations[:3].sum(axis=0)
    durations[2] += ready_NR.max(axis=-1, keepdims=True) - ready_NR
    hosts = (
        f"gpu-{100 + run % HOSTS:03d}",
        LATE_HOST if is_late else f"gpu-{100 + (run * 7 + 1) % HOSTS:03d}",
    )
    at = datetime.now(UTC) - timedelta(hours=run, minutes=10 * (WINDOWS - number))
    times = {
        "started_at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "ended_at": f"{at + timedelta(minutes=5):%Y-%m-%dT%H:%M:%SZ}",
    }
    return window_on_hosts(f"job-{run:04d}", number, durations, hosts, **times)


def put_jobs(store: S3Store, jobs: int) -> None:
    """Put the packets of so many jobs into a bucket."""
    with tempfile.TemporaryDirectory() as folder:
        for run in range(jobs):
            for number in range(WINDOWS):
                made = demo_window(run, number)
                path = packet_path(Path(folder), made.run_id, number)
                write_packet(made, path)
                obstore.put(store, f"packets/{path.relative_to(folder).as_posix()}", path)


@contextmanager
def fleet_demo(jobs: int, engine: str) -> Iterator[FleetDemo]:
    """Start an S3 server, put jobs there, and ingest them on a cluster of this machine."""
    with s3_server() as port:
        environment = {**os.environ, **s3_environment(port)}
        put_jobs(make_bucket(port, BUCKET), jobs)
        demo = FleetDemo(f"s3://{BUCKET}/packets", f"s3://{BUCKET}/verdicts", environment)
        demo.run("ingest", demo.packets, "--to", demo.verdicts, "--engine", engine)
        yield demo


def main(arguments: Sequence[str]) -> int:
    """Serve the demonstration until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--engine", default="ray", choices=("ray", "dask", "local"))
    parser.add_argument("--port", type=int, default=8642)
    chosen = parser.parse_args(arguments)
    print(f"putting {chosen.jobs} jobs into a bucket, and ingesting them on {chosen.engine}", flush=True)
    with fleet_demo(chosen.jobs, chosen.engine) as demo, tempfile.TemporaryDirectory() as folder:
        command = [
            *(*_SFAPP, "serve", demo.verdicts, demo.packets),
            *("--db", f"{folder}/store.duckdb", "--port", str(chosen.port), "--no-browser"),
        ]
        server = subprocess.Popen(command, env=demo.environment)
        print("open /fleet", flush=True)
        try:
            return server.wait()
        except KeyboardInterrupt:
            return server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
