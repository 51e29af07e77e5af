"""Runs loops.py's kinds, each in a process of its own forked from this one, hooks installed: forked.py FOLDER."""

from __future__ import annotations

import multiprocessing
import runpy
import sys
from pathlib import Path

import torch

from sfapp.record.auto.hooks import install
from sfapp.record.auto.session import Session, Settings

LOOPS = Path(__file__).with_name("loops.py")
KINDS = {
    "evaluated": 20,
    "by_hand": 20,
    "adversarial": 10,
    "two_optimizers": 10,
    "line_search": 5,
    "closure_once": 10,
    "scaled": 9,
    "checkpointed": 10,
    "compiled": 20,
    "prefetched": 10,
    "threaded": 10,
    "two_loaders": 10,
    "chunked": 10,
    "uneven": 10,
    "made_up": 10,
    "frozen": 10,
    "workers": 10,
    "untrained": 4,
}


def run(kind: str, steps: int, root: Path) -> None:
    session = Session(Settings(output=root, run_id=kind, window_steps=1000))
    install(session)
    sys.argv = [str(LOOPS), kind, f"--steps={steps}", f"--write={root / kind}.txt"]
    sys.stderr = (root / f"{kind}.err").open("w")
    try:
        runpy.run_path(str(LOOPS), run_name="__main__")
    finally:
        session.close()
        sys.stderr.flush()


if __name__ == "__main__":
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    for kind, steps in KINDS.items():
        process = context.Process(target=run, args=(kind, steps, Path(sys.argv[1])))
        process.start()
        process.join()
        print(kind, process.exitcode)
