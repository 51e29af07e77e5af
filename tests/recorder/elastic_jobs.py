"""Training jobs that lose ranks, gain ranks and go on; started by test_elastic.py, not collected by pytest.

elastic_jobs.py FOLDER restarted    rank 2 of 3 dies in its second window; torchrun starts all ranks again
elastic_jobs.py FOLDER resized      one of two nodes dies; torchrun goes on with the other
elastic_jobs.py FOLDER in_process   processes that torchrun does not watch: one dies, the others form a new
                                    world by themselves, which another process then joins
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import sfapp
from sfapp.model import RankIdentity

WINDOW, TIMEOUT = 5, 4.0
DATA, BACKWARD = "data.next_wait", "model.backward_cpu_wall"

root = Path(sys.argv[1]).resolve()
name = os.environ.get("NAME", os.environ.get("RANK", ""))
"""Of a process; ranks change as worlds do."""


def recorder(run_id: str, **options: Any) -> sfapp.Recorder:
    settings = {"window_steps": WINDOW, "wrapper": "ddp", "timeout": TIMEOUT, **options}
    return sfapp.Recorder(root / "packets", run_id=run_id, **settings)


def model_of() -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(torch.nn.Linear(8, 8))


def train(perf: sfapp.Recorder, model: torch.nn.Module, steps: int) -> float:
    """The seconds that the longest step took, what the recorder does after it included."""
    longest = 0.0
    for _ in range(steps):
        begin = time.monotonic()
        with perf.step():
            with perf.stage(DATA):
                time.sleep(0.002)
            with perf.stage(BACKWARD):
                model(torch.ones(2, 8)).sum().backward()
        longest = max(longest, time.monotonic() - begin)
    return longest


def digests() -> dict[str, str]:
    """What is on disk, file by file."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*.parquet"))
    }


def report(what: str, **facts: Any) -> None:
    (root / f"{what}.{name}.json").write_text(json.dumps(facts))


def close(perf: sfapp.Recorder) -> float:
    begin = time.monotonic()
    perf.close()
    return time.monotonic() - begin


# ---- ranks that torchrun starts again --------------------------------------------------------------


def restarted() -> None:
    dist.init_process_group("gloo")
    model, threads = model_of(), set(threading.enumerate())
    life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if life:
        report("found", **digests())
        dist.barrier()
    first_step = WINDOW if life else 0  # from the checkpoint of the first window's end
    gathered = recorder("gathered", first_step=first_step)
    local = recorder("local", gather="local", first_step=first_step)
    steps = WINDOW + 3
    longest = max(train(perf, model, steps) for perf in (gathered, local))
    if not life:
        dist.barrier()
        time.sleep(0.3)  # until the first windows are on disk
        if name == "2":
            os.kill(os.getpid(), signal.SIGKILL)
        train(gathered, model, 10_000)
    closing = max(close(perf) for perf in (gathered, local))
    left = [thread.name for thread in threading.enumerate() if thread not in threads]
    report("ended", longest=longest, closing=closing, left=left)


def resized() -> None:
    """The second of two nodes dies as a whole, agent and rank; the first goes on alone."""
    dist.init_process_group("gloo")
    model = model_of()
    perf = recorder("resized")
    if dist.get_world_size() == 2:
        (root / "paired").touch()
        train(perf, model, WINDOW + 3)
        dist.barrier()
        time.sleep(0.3)  # until the first window is on disk
        if os.environ["NODE"] == "second":
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        train(perf, model, 10_000)
    while not (root / "paired").exists():
        time.sleep(0.05)  # the nodes have not met yet: torchrun will start this rank again
    train(perf, model, WINDOW + 2)
    perf.close()


# ---- processes that form another world by themselves -----------------------------------------------


def join(rendezvous: str, rank: int, world_size: int) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{root}/{rendezvous}", rank=rank, world_size=world_size
    )


def in_process() -> None:
    """Processes a, b and c train; c dies; a and b go on as a world of two; d joins them."""
    place = {"a": 0, "b": 1, "c": 2, "d": 2}[name]
    threads = set(threading.enumerate())
    identity = RankIdentity(place, place, 0, "here")
    longest = 0.0
    if name == "d":
        while not (root / "wanted").exists():
            time.sleep(0.01)
        join("third", place, 3)
        perf = recorder("in-process", identity=identity)
    else:
        join("first", place, 3)
        perf = recorder("in-process", identity=identity)
        model = model_of()
        longest = train(perf, model, WINDOW + 3)
        if name == "c":
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        perf.flush()  # this window the others wait for in vain
        if name == "b":  # is a step ahead of a, when c's death is noticed
            with perf.step():
                time.sleep(0.002)
        try:
            train(perf, model, 10_000)
        except RuntimeError:  # the connection to c is closed
            dist.destroy_process_group()
        join("second", place, 2)
        longest = max(longest, rejoin(perf, identity))
        model = model_of()
        longest = max(longest, train(perf, model, WINDOW + 2))
        if name == "a":
            (root / "wanted").touch()
        dist.barrier()
        dist.destroy_process_group()
        join("third", place, 3)
        longest = max(longest, rejoin(perf, identity))
    longest = max(longest, train(perf, model_of(), 2 * WINDOW))
    closing = close(perf)
    dist.destroy_process_group()
    left = [thread.name for thread in threading.enumerate() if thread not in threads]
    report("ended", longest=longest, closing=closing, left=left, failures=perf.failures)


def rejoin(perf: sfapp.Recorder, identity: RankIdentity) -> float:
    begin = time.monotonic()
    perf.rejoin(identity)
    return time.monotonic() - begin


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"restarted": restarted, "resized": resized, "in_process": in_process}[sys.argv[2]]()
