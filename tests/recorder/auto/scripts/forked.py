"""Runs kinds of loops.py, hooks installed, each in a process forked from this one: forked.py FOLDER."""

from __future__ import annotations

import multiprocessing
import runpy
import sys
import time
from multiprocessing.pool import ThreadPool
from pathlib import Path

import torch
import torch.distributed.fsdp

import sfapp.packets  # noqa: F401  # loaded once, for all of them
from sfapp.recorder.auto.session import Session
from sfapp.recorder.auto.settings import Settings
from sfapp.recorder.auto.torch_hooks import install
from tests.recorder.auto.scripts.sleep_clock import slept_ns

LOOPS = Path(__file__).with_name("loops.py")
STEPS_OF = {
    "evaluated": 10,
    "by_hand": 20,
    "adversarial": 6,
    "two_optimizers": 6,
    "line_search": 5,
    "closure_once": 6,
    "scaled": 9,
    "checkpointed": 6,
    "compiled": 10,
    "compiled_step": 6,
    "prefetched": 6,
    "threaded": 6,
    "two_loaders": 6,
    "chunked": 6,
    "uneven": 6,
    "generated": 6,
    "frozen": 6,
    "workers": 6,
    "untrained": 4,
}


def run(kind: str, steps: int, root: Path) -> None:
    clock = slept_ns if kind == "by_hand" else time.perf_counter_ns
    session = Session(Settings(output=root, run_id=kind, window_steps=1000), clock)
    install(session)
    sys.argv = [str(LOOPS), kind, f"--steps={steps}", f"--write={root / kind}.txt"]
    sys.stderr = (root / f"{kind}.err").open("w")
    try:
        runpy.run_path(str(LOOPS), run_name="__main__")
    finally:
        session.close()
        sys.stderr.flush()


def forked(kind: str) -> str:
    """Run one; what went wrong."""
    arguments = kind, STEPS_OF[kind], Path(sys.argv[1])
    process = multiprocessing.get_context("fork").Process(target=run, args=arguments)
    process.start()
    process.join()
    return f"{kind} ended with {process.exitcode}" if process.exitcode else ""


if __name__ == "__main__":
    torch.set_num_threads(1)
    with ThreadPool(2) as pool:
        wrong = pool.map(forked, STEPS_OF, chunksize=1)
    sys.exit("\n".join(filter(None, wrong)) or None)
