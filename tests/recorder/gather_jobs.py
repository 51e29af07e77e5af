"""Training jobs that the tests start under torchrun; not collected by pytest.

gather_jobs.py FOLDER together     every scenario that all ranks survive, one run each, in one job
gather_jobs.py FOLDER killed       rank 2 dies of SIGKILL in its second window
gather_jobs.py FOLDER failing      rank 2 fails of an error in its second window
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import sfapp
from sfapp.model import Accumulation
from sfapp.recorder.transport import window_queue

WINDOW = 5
DATA, BACKWARD = "data.next_wait", "model.backward_cpu_wall"

root = Path(sys.argv[1])
rank = int(os.environ["RANK"])


def recorder(run_id: str, **options: Any) -> sfapp.Recorder:
    settings = {"window_steps": WINDOW, "wrapper": "ddp", "timeout": 10.0, **options}
    return sfapp.Recorder(settings.pop("output", root), run_id=run_id, **settings)


def train(perf: sfapp.Recorder, model: torch.nn.Module, steps: int) -> None:
    for _ in range(steps):
        with perf.step():
            with perf.stage(DATA):
                time.sleep(0.02 if rank == 1 else 0.0)
            with perf.stage(BACKWARD):
                model(torch.ones(2, 8)).sum().backward()


def measured(model: torch.nn.Module) -> None:
    """What rank 0 writes is what every rank's own clock gave it."""
    ticks: list[int] = []

    def clock() -> int:
        ticks.append(time.perf_counter_ns())
        return ticks[-1]

    with recorder("measured", clock=clock, evidence=False) as perf:
        ticks.clear()
        train(perf, model, WINDOW)
    # a step reads the clock at its start, round each of two stages, and at its end
    steps = [ticks[place : place + 6] for place in range(0, 6 * WINDOW, 6)]
    ends = [steps[0][0], *(step[5] for step in steps[:-1])]  # nothing comes before the first step
    (root / f"measured.rank{rank}.txt").write_text(
        "\n".join(
            f"{step[2] - step[1]} {step[4] - step[3]} {step[5] - end} {step[0] - end}"
            for end, step in zip(ends, steps, strict=True)
        )
    )


def changes(model: torch.nn.Module) -> None:
    with recorder("changes") as perf:
        train(perf, model, 3)
        perf.reconfigure(accumulation=Accumulation(factor=2, ordered=True, sync="last"))
        train(perf, model, 2)
        perf.reconfigure(role="even" if rank % 2 == 0 else "odd")
        perf.declare(layout={"dp": rank, "tp": 0})
        train(perf, model, 2)


def disagreeing(model: torch.nn.Module) -> None:
    """Rank 1 declares another accumulation than the others."""
    accumulation = Accumulation(factor=2 if rank == 1 else 4, ordered=False)
    with recorder("disagreeing", accumulation=accumulation) as perf:
        train(perf, model, WINDOW)


def left_out(model: torch.nn.Module) -> None:
    """Rank 2 leaves its second step out, as after running out of memory."""
    with recorder("left-out") as perf:
        for step in range(2 * WINDOW):
            try:
                with perf.step(), perf.stage(BACKWARD):
                    model(torch.ones(2, 8)).sum().backward()
                    if rank == 2 and step == 1:
                        raise MemoryError
            except MemoryError:
                continue


def several(model: torch.nn.Module) -> None:
    """Short windows, of which many are gathered at once; rank 2 leaves a step of the fourteenth out."""
    with recorder("several", window_steps=2, max_pending=64) as perf:
        for step in range(2 * 30 + 1):
            try:
                with perf.step(), perf.stage(BACKWARD):
                    model(torch.ones(2, 8)).sum().backward()
                    perf.observe(f"own.{rank}" if step >= 2 * 24 else "common", float(step))
                    if rank == 2 and step == 26:
                        raise MemoryError
            except MemoryError:
                continue


def paused(model: torch.nn.Module) -> None:
    """Two windows wait for others to go with, and training pauses."""
    window_queue.LONGEST_WAIT = 1.0  # On a busy machine, the last two windows may be half a second apart.
    with recorder("paused", window_steps=2, max_pending=64) as perf:
        train(perf, model, 2 * 12)
        time.sleep(3)
        (root / f"paused.rank{rank}.txt").write_text(str(perf.pending))


def dropped(model: torch.nn.Module) -> None:
    """Rank 0 runs ahead of the others by more windows than may wait, then all go on together."""
    perf = recorder("dropped", max_pending=2)
    for _ in range(6 * WINDOW):
        with perf.step(), perf.stage(DATA):
            time.sleep(0.02 if rank else 0.0)
    dist.barrier()
    time.sleep(0.2)
    train(perf, model, WINDOW)
    perf.close()


def late(model: torch.nn.Module) -> None:
    """Rank 0 closes long after the others, which do not wait for it beyond their timeout."""
    perf = recorder("late", timeout=1.0)
    train(perf, model, 3)
    if rank == 0:
        time.sleep(2.5)
    begin = time.monotonic()
    perf.close()
    (root / f"late.rank{rank}.txt").write_text(f"{time.monotonic() - begin:.2f}")


def stalled(model: torch.nn.Module) -> None:
    """Rank 1 stalls once at the end of a window, for longer than the others wait."""
    with recorder("stalled", timeout=1.0, window_steps=2, max_pending=32) as perf:
        for step in range(40):
            with perf.step():
                with perf.stage(BACKWARD):
                    model(torch.ones(2, 8)).sum().backward()
                if step == 3 and rank == 1:
                    time.sleep(3)
            time.sleep(0.05)


def refusing_disk(model: torch.nn.Module) -> None:
    """Rank 0 cannot write; the others can, and the next window too is tried."""
    blocked = root / "refused.txt"
    blocked.touch()
    with recorder("refusing-disk", output=blocked if rank == 0 else root) as perf:
        train(perf, model, 2 * WINDOW)


def renamed(model: torch.nn.Module) -> None:
    """Every rank made up its own run id."""
    with recorder(f"renamed-by-{rank}") as perf:
        train(perf, model, WINDOW)


def started_again(model: torch.nn.Module) -> None:
    for _ in range(2):
        with recorder("again") as perf:
            train(perf, model, 2)


def side_values(model: torch.nn.Module) -> None:
    """Each rank has a side channel of its own, and one that all have, in every other step."""
    with recorder("beside") as perf:
        for step in range(WINDOW):
            with perf.step(), perf.stage(BACKWARD):
                if step % 2 == 0:
                    perf.observe("common", 10.0 * rank + step)
                perf.observe(f"own.{rank}", float(step))
                model(torch.ones(2, 8)).sum().backward()


def evidence(model: torch.nn.Module) -> None:
    """Rank 0 computes, rank 1 sleeps, and rank 2 collects garbage."""
    kept = [[number] for number in range(30_000)]
    for run_id, gather in (("evidence", "gloo"), ("evidence-local", "local")):
        with recorder(run_id, gather=gather, attributes={"rack": f"r{rank // 2}"}) as perf:
            for _ in range(WINDOW):
                with perf.step(), perf.stage(DATA):
                    until = time.perf_counter() + 0.06  # a step in which evidence is read each time
                    while rank == 0 and time.perf_counter() < until:
                        pass
                    time.sleep(0.06 if rank == 1 else 0.0)
                    while rank == 2 and time.perf_counter() < until:
                        gc.collect()
    del kept


def on_training_thread(model: torch.nn.Module) -> None:
    """As over NCCL, whose operations must all come from one thread; on a CPU over Gloo."""
    with recorder("on-training-thread") as perf:
        group = perf._windows.rank.group
        assert group is not None
        group.needs_training_thread = True
        train(perf, model, 2 * WINDOW + 2)


def local(model: torch.nn.Module) -> None:
    with recorder("local", gather="local") as perf:
        train(perf, model, WINDOW)


def smaller_world(model: torch.nn.Module) -> None:
    """The last scenario: rank 2 leaves, the others form a world of two and go on."""
    perf = recorder("smaller")
    train(perf, model, WINDOW)
    time.sleep(0.5)
    train(perf, model, 2)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 2:
        perf.close()
        return
    dist.init_process_group("gloo", init_method=f"file://{root}/rendezvous", rank=rank, world_size=2)
    perf.rejoin()
    train(perf, DistributedDataParallel(torch.nn.Linear(8, 8)), WINDOW)
    perf.close()


TOGETHER: tuple[Callable[[torch.nn.Module], None], ...] = (
    measured,
    changes,
    disagreeing,
    left_out,
    several,
    paused,
    dropped,
    late,
    stalled,
    refusing_disk,
    renamed,
    started_again,
    side_values,
    evidence,
    on_training_thread,
    local,
)


def together() -> None:
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    for scenario in TOGETHER:
        scenario(model)
        dist.barrier()
    total = torch.ones(1)
    dist.all_reduce(total)  # the training's own group is as it was
    (root / f"total.rank{rank}.txt").write_text(str(int(total)))
    smaller_world(model)


def killed() -> None:
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    with recorder("killed") as perf:
        train(perf, model, WINDOW + 3)
        if rank == 2:
            time.sleep(3)  # long enough on a busy machine for the streamed rows to be acknowledged
            os.kill(os.getpid(), signal.SIGKILL)
        train(perf, model, 10_000)


def failing() -> None:
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    with recorder("failing") as perf:
        train(perf, model, WINDOW + 3)
        if rank == 2:
            raise MemoryError
        train(perf, model, 10_000)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    {"together": together, "killed": killed, "failing": failing}[sys.argv[2]]()
