"""A rank of a real job over Gloo that comes to stand still: FOLDER STOPPED_RANK.

Ranks are in pairs and in a group of all. The stopped rank does not call the second step's call of its pair.
Every rank leaves its dump once no rank can go on.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

recorder: Any = _distributed_c10d  # torch's stub lacks the functions that dump


def main(folder: Path, stopped: int) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([at, at + 1], group_desc="TENSOR") for at in range(0, world, 2)]
    threading.Thread(target=train, args=(pairs[rank // 2], rank, stopped), daemon=True).start()
    deadline = time.monotonic() + 60
    newest, since = b"", time.monotonic()
    while time.monotonic() - since < 1 and time.monotonic() < deadline:
        time.sleep(0.1)
        content = recorder._dump_fr_trace_json()
        if content != newest or b"all_reduce" not in content:
            newest, since = content, time.monotonic()
    # Each rank dumps after the last of them has gone quiet, and ends after the last dump.
    wait_for_all(folder, "quiet", rank, world, deadline)
    (folder / f"dump_rank_{rank}").write_bytes(recorder._dump_fr_trace())
    wait_for_all(folder, "dumped", rank, world, deadline)
    os._exit(0)


def wait_for_all(folder: Path, what: str, rank: int, world: int, deadline: float) -> None:
    """Leave a note in the folder, and wait for those of all ranks."""
    (folder / f"{what}.{rank}.note").touch()
    while len(list(folder.glob(f"{what}.*.note"))) < world and time.monotonic() < deadline:
        time.sleep(0.05)


def train(pair: Any, rank: int, stopped: int) -> None:
    for step in range(3):
        if rank == stopped and step == 1:
            threading.Event().wait()
        dist.all_reduce(torch.ones(4), group=pair)
        dist.all_reduce(torch.ones(8))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
