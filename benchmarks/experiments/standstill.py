"""Real jobs that stand still, and the ranks that are named: docs/evidence/hangs.md.

Each job has eight Gloo ranks that stream to ``sfapp aggregate``. A fault begins on one or two of them, and
the store is read until it names ranks, as the live page and the list of problems do.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.experiments.standstill_job import StandstillJob
from benchmarks.machine import describe_machine
from benchmarks.namespaces import MANAGE, TRAIN, Cluster, unavailable_reason
from sfapp.service.standstills import Standstill, standstills
from sfapp.store import Store
from sfapp.views import text

WORLD = 8
LIMIT_S = 3.0
WITHIN_S = LIMIT_S + 5.0 + 1.0
"""The bar: the limit, five seconds, and a heartbeat."""

_PATIENCE_S = 90.0
_PORT = 29_765

FAMILIES = {
    "stopped": ("SIGSTOP", (3,)),
    "killed": ("kill -9", (3,)),
    "lock": ("interpreter lock held (ctypes sleep)", (3,)),
    "skipped": ("one rank skips a collective, and sleeps outside a step", (3,)),
    "mismatched": ("one rank calls broadcast instead of all_reduce", (3,)),
    "deadlock": ("two ranks call two groups in opposite order", (3, 5)),
    "cut": ("network of a node cut off (namespace)", (4, 5, 6, 7)),
}
"""The faults: what happens, and the ranks that must be named."""


@dataclass(frozen=True, slots=True)
class StandstillSeen:
    """What was found of one job.

    Attributes:
        seconds: from the fault until the expected ranks were named; None if they were not.
        found: the newest standstill.
    """

    family: str
    seconds: float | None
    found: Standstill | None
    skipped: str = ""


def standstill_page(families: Sequence[str], healthy_minutes: float, command: str) -> str:
    """Run the jobs and return the page."""
    seen = [_run(family) for family in families]
    lines = [
        "# Jobs that stand still",
        "",
        f"`{command}`; {describe_machine()}. Eight ranks over Gloo stream to `sfapp aggregate "
        f"--standstill-after {LIMIT_S:g}`. The bar is {WITHIN_S:g} s: the limit, five seconds, and a "
        "heartbeat.",
        "",
        "| fault | ranks at fault | named | after | within the bar | sentence |",
        "| --- | --- | --- | --- | --- | --- |",
        *map(_row, seen),
    ]
    if healthy_minutes:
        lines += ["", _healthy(healthy_minutes)]
    return "\n".join(lines) + "\n"


def _row(one: StandstillSeen) -> str:
    what, culprits = FAMILIES[one.family]
    expected = ", ".join(map(str, culprits))
    if one.skipped:
        return f"| {what} | {expected} | not run: {one.skipped} | – | – | – |"
    named = "none" if one.found is None else ", ".join(map(str, one.found.roll.holders)) or "none"
    after = "–" if one.seconds is None else f"{one.seconds:.1f} s"
    is_within = one.seconds is not None and one.seconds <= WITHIN_S
    sentence = "" if one.found is None else text.standstill_sentence(one.found.roll)
    return f"| {what} | {expected} | {named} | {after} | {'yes' if is_within else '**no**'} | {sentence} |"


def _run(family: str) -> StandstillSeen:
    if family == "cut":
        reason = unavailable_reason()
        if reason:
            return StandstillSeen(family, None, None, reason)
        with Cluster(2) as cluster:
            return _run_cut(cluster)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        endpoint = f"ipc://{folder}/ranks"
        _start(stack, _aggregate(folder, endpoint))
        plan = _plan(Path(folder), family, tuple(range(WORLD)), 0, endpoint, ("127.0.0.1", _free_port()))
        _start(stack, [sys.executable, "-m", "benchmarks.experiments.standstill_job", str(plan)])
        began = _wait_for_fault(Path(folder) / "fault")
        return _watch(family, Path(folder) / "packets", began)


def _run_cut(cluster: Cluster) -> StandstillSeen:
    """Run four ranks on each of two nodes, and pull the cables of the second one."""
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        listen = f"tcp://{cluster.address(0, MANAGE)}:{_PORT}"
        cluster.start(0, [*_aggregate(folder, listen), "--keys", str(keys), "--make-keys"])
        while not keys.exists():
            time.sleep(0.1)
        master = (cluster.address(0, TRAIN), 29_500)
        for node in range(2):
            ranks = tuple(range(node * 4, node * 4 + 4))
            plan = _plan(Path(folder), "cut", ranks, node, listen, master)
            job = [sys.executable, "-m", "benchmarks.experiments.standstill_job", str(plan)]
            cluster.start(node, job, environment={"SFAPP_STREAM_KEYS": str(keys)})
        with _following(Path(folder) / "packets") as store:
            deadline = time.monotonic() + _PATIENCE_S
            while _newest_step(store, "cut") < 30:
                _check(deadline, "the job has not started")
                time.sleep(0.2)
        cluster.plug(1, is_in=False)
        return _watch("cut", Path(folder) / "packets", time.time())


def _newest_step(store: Store, run_id: str) -> int:
    from sfapp.model.samples import PaceSample

    store.follow()
    return max((row["step"] for row in store.newest_samples(PaceSample, run_id)), default=0)


def _watch(family: str, packets: Path, began: float) -> StandstillSeen:
    """Read the store until the expected ranks are named."""
    expected, found = FAMILIES[family][1], None
    with _following(packets) as store:
        deadline = time.monotonic() + 4 * WITHIN_S
        while time.monotonic() < deadline:
            store.follow()
            found = next(iter(standstills(store, family)[-1:]), None)
            if found is not None and found.roll.holders == expected:
                seconds = time.time() - began
                time.sleep(2.0)  # The answer must stay.
                store.follow()
                last = standstills(store, family)[-1]
                return StandstillSeen(family, seconds if last.roll.holders == expected else None, last)
            time.sleep(0.2)
    return StandstillSeen(family, None, found)


def _healthy(minutes: float) -> str:
    """Run a healthy job with a checkpoint of 60 s, and return the number of standstills."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        endpoint = f"ipc://{folder}/ranks"
        _start(stack, _aggregate(folder, endpoint)[:-2])  # The default limit.
        ranks, master = tuple(range(WORLD)), ("127.0.0.1", _free_port())
        plan = _plan(Path(folder), "healthy", ranks, 0, endpoint, master, seconds=60.0)
        _start(stack, [sys.executable, "-m", "benchmarks.experiments.standstill_job", str(plan)])
        time.sleep(minutes * 60)
        with _following(Path(folder) / "packets") as store:
            found, steps = standstills(store, "healthy"), _newest_step(store, "healthy")
    return (
        f"In {minutes:g} minutes of a healthy job ({steps:,} steps) with checkpoints of 60 s on rank 0 in "
        f"the stage `callbacks.checkpoint` and the default limit of 30 s, {len(found)} standstills were "
        "reported."
    )


def _plan(
    folder: Path,
    family: str,
    ranks: tuple[int, ...],
    node: int,
    endpoint: str,
    master: tuple[str, int],
    seconds: float = 0.0,
) -> Path:
    culprits = FAMILIES[family][1] if family in FAMILIES and family != "cut" else ()
    job = StandstillJob(
        family=family,
        culprits=culprits,
        world=WORLD,
        ranks=ranks,
        node=node,
        folder=str(folder),
        endpoint=endpoint,
        master=master,
        seconds=seconds,
    )
    path = folder / f"node-{node}.json"
    path.write_bytes(msgspec.json.encode(job))
    return path


def _aggregate(folder: str, listen: str) -> list[str]:
    command = [sys.executable, "-c", "from sfapp.cli import main; main()", "aggregate", f"{folder}/packets"]
    return [*command, "--listen", listen, "--standstill-after", f"{LIMIT_S:g}"]


def _start(stack: ExitStack, command: list[str]) -> None:
    """Start a process in a group of its own, which is killed at the end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, start_new_session=True)

    def end() -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)

    stack.callback(end)


@contextmanager
def _following(packets: Path) -> Iterator[Store]:
    deadline = time.monotonic() + _PATIENCE_S
    while not packets.is_dir():
        _check(deadline, f"{packets} does not exist")
        time.sleep(0.1)
    with Store.open([packets], memory=True) as store:
        yield store


def _wait_for_fault(path: Path) -> float:
    deadline = time.monotonic() + _PATIENCE_S
    while not path.exists() or not path.read_text():
        _check(deadline, "the fault has not begun")
        time.sleep(0.05)
    return float(path.read_text())


def _check(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise SystemExit(f"{what} after {_PATIENCE_S:g} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
