"""Show why a rank is late: a job of four processes, one cause of lateness after the other, and the verdicts.

    python examples/why.py

It takes about 40 seconds and needs no GPU, but idle cores: on a busy machine rank 2 waits for a core as well,
which the verdict then lists first for causes that need one. Rank 2 collects garbage, computes more, touches
new memory, waits for a lock and waits for a service; each for 25 steps, after 25 healthy ones.
"""

from __future__ import annotations

import gc
import mmap
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sfapp
from sfapp.accounting import diagnose_runs
from sfapp.packets import read_windows
from sfapp.views import text as words

RANKS, LATE, STEPS = 4, 2, 25
DELAY = 0.04
"""Mean delay in seconds; it varies from step to step, as real ones do."""


def for_a_while(work: Callable[[], object]) -> None:
    """Repeat work for a delay of varying length."""
    until = time.perf_counter() + DELAY * random.uniform(0.5, 1.5)
    while time.perf_counter() < until:
        work()


class Causes:
    """What rank 2 does in the data stage, by name."""

    def __init__(self) -> None:
        self.heap = [[number] for number in range(20_000)]
        self.matrix = torch.ones(64, 64)
        self.memory = mmap.mmap(-1, 16 << 20)
        self.lock, self.asked, self.held = threading.Lock(), threading.Event(), threading.Event()
        threading.Thread(target=self._hold_lock, daemon=True).start()

    def by_name(self) -> dict[str, Callable[[], None]]:
        """Return the causes in the order of their windows."""
        return {
            "nothing": lambda: None,
            "garbage collection": lambda: for_a_while(gc.collect),
            "more computing": lambda: for_a_while(lambda: self.matrix @ self.matrix),
            "page faults": lambda: for_a_while(self._touch_memory),
            "a lock": self._wait_for_lock,
            "a remote service": lambda: time.sleep(DELAY * random.uniform(0.5, 1.5)),
        }

    def _touch_memory(self) -> None:
        self.memory[:: mmap.PAGESIZE] = bytes(len(self.memory) // mmap.PAGESIZE)
        self.memory.madvise(mmap.MADV_DONTNEED)

    def _hold_lock(self) -> None:
        while self.asked.wait():
            self.asked.clear()
            with self.lock:
                self.held.set()
                time.sleep(DELAY * random.uniform(0.5, 1.5))

    def _wait_for_lock(self) -> None:
        self.held.clear()
        self.asked.set()
        self.held.wait()
        with self.lock:
            pass


def train(rank: int, folder: str) -> None:
    """Train one rank; each cause lasts for one window of the recorder."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    model = DistributedDataParallel(nn.Linear(64, 64))
    perf = sfapp.Recorder(f"{folder}/packets", run_id="why", window_steps=STEPS, wrapper="ddp")
    for cause in Causes().by_name().values():
        for _ in range(STEPS):
            with perf.step():
                with perf.stage("data.next_wait"):
                    batch = torch.randn(8, 64)
                    if rank == LATE:
                        cause()
                with perf.stage("model.fwd_loss_cpu_wall"):
                    loss = model(batch).square().mean()
                    time.sleep(random.gauss(0.02, 0.0005))
                with perf.stage("model.backward_cpu_wall"):
                    loss.backward()
    perf.close()
    dist.destroy_process_group()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (folder,), nprocs=RANKS)
        windows = [found.window for found in read_windows([Path(folder) / "packets"]).windows]
    for name, diagnosis in zip(Causes().by_name(), diagnose_runs(windows), strict=True):
        verdict = words.verdict(diagnosis)
        print(f"\nPlanted: {name}")
        print(*(f"  {sentence}" for sentence in (verdict.sentence, *verdict.reasons)), sep="\n")


if __name__ == "__main__":
    main()
